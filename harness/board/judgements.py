"""What an evaluation is worth on the board, and what becomes of the same file's earlier judgements. Pure functions."""

import hashlib
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.board.digits import DIGITS, round_off, rounded
from harness.board.entries import (
    Board,
    Earlier,
    Entry,
    EntryCase,
    EntrySeries,
    Group,
    HeldEntry,
    Hold,
    Judged,
    Verification,
    Versions,
    described,
    is_same_code,
    one_line,
    order,
    printable,
)
from harness.core.decode import part
from harness.core.errors import BadFileError, HarnessError
from harness.core.machine_records import Environment
from harness.core.metrics import RANKED
from harness.core.records import CaseResult, Estimate, EvalReport, Held, Measured, Score, Series, Submission
from harness.core.stats import median, quartiles, ratios_of, values_of
from harness.judging.figures import least_of
from harness.judging.scoring import SCORINGS
from harness.judging.verdict import first_failure, measured_cases
from harness.problems.problem import Problem, Suite
from harness.problems.same_code import same_code

JUDGES = 1  # part of every problem version: raise it with a change of a check or verdict that lets other results pass
UNKNOWN_MACHINE = "an unknown machine"
KEPT = 5  # earlier judgements of other sources of a file that the board keeps; runs/ has the rest


def problem_version(problem: Problem, suite: Suite, device: str) -> str:
    """The version of everything that a judgement depends on, as 16 hexadecimal digits: the problem's files as ranks see
    them, the cases that run, how they are ranked, the clock that ranks on that device, and this harness's JUDGES.
    Raises BadFileError where a file cannot be read. Fixed bounds and peaks in hardware.yaml are not part of it: results
    are judged by them again from the report (`rejudge`)."""
    cases = [[one.kind, one.params, one.seed, one.world_size] for one in (*suite.tests, *suite.benchmarks)]
    rules: dict[str, object] = {
        "judges": JUDGES,
        "gate": problem.checker,
        "ranking_by": problem.ranking_by,
        "cases": cases,
    }
    if suite.drawn:
        rules["drawn"] = suite.drawn
    if (clock := RANKED[device]) != "wall":
        rules["clock"] = clock
    digest = hashlib.sha256(json.dumps(rules, sort_keys=True).encode())
    try:
        staged = sorted(problem.versioned().items())
    except OSError as error:
        raise BadFileError(f"{error.filename}: cannot be read: {error.strerror}; check its rights") from None
    for name, data in staged:
        digest.update(f"\0{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:16]


def group_of(report: EvalReport) -> Group:
    """What the evaluation is ranked within; of a run that ended before its machine was looked at, an unknown one."""
    machine_class = report.environment.machine_class if report.environment else UNKNOWN_MACHINE
    return (report.problem, report.suite, machine_class, report.world_size)


def judged(report: EvalReport, version: str | None = None) -> Judged | None:
    """The judgement that the board keeps of this evaluation: an entry, or that it was held, and why; None for any
    other, and for one on a user's own data, which nobody else has."""
    if report.data:
        return None
    return entry_of(report, version) or held_of(report, version)


def held_of(report: EvalReport, version: str | None = None) -> HeldEntry | None:
    """The held evaluation; None for one whose first failure is none of credibility, and for one that passed."""
    failed = first_failure(report)
    if failed is None or not isinstance(failed.outcome, Held) or report.environment is None:
        return None
    environment = report.environment
    return part(
        report,
        HeldEntry,
        **_file_of(report, environment),
        check=one_line(failed.outcome.check),
        evidence=one_line(failed.outcome.evidence),
        score=None,
        ratio=None,
        date=report.started_at,
        run_ids=(report.run_id,),
        versions=part(environment, Versions),
        problem_version=version,
    )


def entry_of(report: EvalReport, version: str | None = None) -> Entry | None:
    """The entry that this evaluation is worth; None for one that did not pass or timed nothing."""
    found = report.figures
    if found is None:
        return None
    assert report.environment is not None, "an evaluation that came to an end knows its machine"
    environment = report.environment
    return part(
        report,
        Entry,
        **_file_of(report, environment),
        score=found.score,
        **_pair("ratio", found.ratio),
        **_pair("fraction", found.fraction),
        launches=found.ratio.launches if found.ratio else 1,
        launch_sd=_launch_sd(report) if found.ratio and found.ratio.launches > 1 else None,
        date=report.started_at,
        versions=part(environment, Versions),
        problem_version=version,
        cases=entry_cases(report),
    )


def _launch_sd(report: EvalReport) -> float:
    return statistics.stdev(values_of([ratios_of(measured.ranked) for _, measured in measured_cases(report)]))


def _file_of(report: EvalReport, environment: Environment) -> dict[str, Any]:
    """The fields of OfFile that the report has under other names, or not printable."""
    return {
        "machine_class": printable(environment.machine_class),
        "author": printable(report.author),
        "file": printable(report.submission.name),
        "sha256": report.submission.sha256,
        "machine": environment.machine or None,
        "code": code_of(report.submission),
    }


def code_of(submission: Submission) -> str | None:
    """The digest of the code that the submission shares with its copies; None without source."""
    return same_code(submission.source, submission.modules) if submission.source else None


def entry_cases(report: EvalReport) -> tuple[EntryCase, ...]:
    measured = [one for one in report.results if one.figures is not None and one.case.kind != "drawn"]
    return tuple(_entry_case(one, report.empty_call_samples_us) for one in measured)


def _entry_case(result: CaseResult, empty: dict[str, tuple[float, ...]]) -> EntryCase:
    figures, found = result.figures, result.outcome
    assert figures is not None
    assert isinstance(found, Measured)
    ranked = found.ranked
    return EntryCase(
        label=printable(result.case.title),
        params=result.case.params,
        metric=figures.metric.name,
        unit=figures.metric.unit,
        value=figures.value,
        baseline=figures.baseline,
        **_pair("ratio", figures.ratio),
        **_pair("fraction", figures.fraction),
        samples=len(ranked.own) or (ranked.summary.runs if ranked.summary else None),
        bounded=found.against_bound.metric.name if result.bound else "",
        bound=result.bound,
        series=tuple(_series(one, empty.get(one.metric.name, ())) for one in found.series),
        rank_ends_us=found.rank_ends_us,
        best=found.best,
        own_kernels=found.own_kernels,
    )


def _series(one: Series, empty: Sequence[float]) -> EntrySeries:
    low, value, high = _quartiles(one.own)
    baseline_low, baseline, baseline_high = _quartiles(one.baseline)
    return EntrySeries(
        metric=printable(one.metric.name),
        unit=printable(one.metric.unit),
        low=low,
        value=value,
        high=high,
        baseline_low=baseline_low,
        baseline=baseline,
        baseline_high=baseline_high,
        empty=median(empty) if empty else None,
        least=least_of(one),
    )


def _quartiles(samples: Sequence[float]) -> tuple[float, float, float] | tuple[None, None, None]:
    """The first quartile, the median and the third quartile; None thrice where there are no samples."""
    if not samples:
        return (None, None, None)
    low, high = quartiles(samples)
    return (low, median(samples), high)


def _pair(name: str, found: Estimate | None) -> dict[str, Any]:
    return {name: found.value if found else None, f"{name}_ci": found.ci if found else None}


def replaced(board: Board, old: Judged, new: Judged, why: str) -> Board:
    """The board with `new` in the place of `old`, whose judgement becomes history for that reason. What else stands
    where `new` comes to stand becomes history too.

    Raises HarnessError where `old` is not on the board any more: deleted, or judged otherwise, in the meantime.
    """
    current = standing_of(board, old)
    others: tuple[Judged, ...] = board.entries if isinstance(new, Entry) else board.held
    gone = [(current, why)]
    gone += [(one, "evaluated again") for one in others if one.identity == new.identity and one is not current]
    return _put(board, new, gone)


def confirmed(board: Board, old: Entry, found: Verification, why: str, version: str) -> Board:
    """The board on which that entry is verified under that problem version, and a held evaluation of its source
    released for that reason.

    Raises HarnessError where `old` is not on the board any more.
    """
    current = standing_of(board, old)
    assert isinstance(current, Entry)
    others = tuple(one for one in board.entries if one is not current)
    same = [one for one in board.held if (one.identity, one.sha256) == (current.identity, current.sha256)]
    return _put(
        replace(board, entries=others),
        replace(current, verified=found, problem_version=version),
        [(one, why) for one in same],
    )


def held(old: Judged, check: str, evidence: str, run_ids: tuple[str, ...], version: str | None = None) -> HeldEntry:
    """`old`, held by a later judgement with those runs as evidence. Its claim stays."""
    why = {"check": one_line(check), "evidence": one_line(evidence), "run_ids": run_ids}
    return part(old, HeldEntry, **why, problem_version=version or old.problem_version, history=(), holds=())


def doubted(board: Board, entry: Entry) -> HeldEntry | None:
    """The held evaluation of the very source that this entry is ranked with, if there is one."""
    same = (one for one in board.held if (one.identity, one.sha256) == (entry.identity, entry.sha256))
    return next(same, None)


def standing_of(board: Board, old: Judged) -> Judged:
    """The board's record of that judgement now, verified or not. HarnessError where it was changed."""
    records: tuple[Judged, ...] = board.entries if isinstance(old, Entry) else board.held
    for one in records:
        if (one.identity, one.run_id, one.sha256) == (old.identity, old.run_id, old.sha256):
            return one
    now = next((one for one in board.judged if one.identity == old.identity), None)
    became = f"now stands there: {described(now)}" if now else "it was deleted"
    raise HarnessError(
        f"{old.run_id} was changed in the leaderboard meanwhile ({became}); nothing was changed, the new runs are kept"
    )


def with_judged(board: Board, one: Judged) -> Board:
    """The board with this evaluation in place of what it supersedes: a held one replaces an earlier held one of the
    same identity; an entry replaces the earlier entry, and what is held there of another source."""
    same_kind: tuple[Judged, ...] = board.entries if isinstance(one, Entry) else board.held
    gone = [(old, "evaluated again") for old in same_kind if old.identity == one.identity]
    if isinstance(one, Entry):
        others = (old for old in board.held if old.identity == one.identity and old.sha256 != one.sha256)
        gone += [(old, "another source was evaluated") for old in others]
    return _put(board, one, gone)


def _put(board: Board, one: Judged, gone: list[tuple[Judged, str]]) -> Board:
    """The board with `one` in place of those in `gone`, which join its history with their reasons."""
    history, holds = list(one.history), list(one.holds)
    for old, why in gone:
        if isinstance(old, Entry):
            error = None if old.log_error is None else rounded(old.log_error, 3)
            history.append(part(old, Earlier, score=old.score.value, ratio_error=error, why=one_line(why)))
        else:
            holds.append(part(old, Hold, why=one_line(why)))
        history += old.history
        holds += old.holds
    one = round_off(one)
    one = replace(
        one,
        history=tuple(_kept(one, sorted(history, key=lambda past: past.date, reverse=True))),
        holds=tuple(sorted(holds, key=lambda past: past.date, reverse=True)),
    )
    left = [old for old, _ in gone]
    entries = [entry for entry in board.entries if not any(entry is old for old in left)]
    held = [other for other in board.held if not any(other is old for old in left)]
    if isinstance(one, Entry):
        entries.append(one)
    else:
        held.append(one)
    return replace(
        board,
        entries=tuple(sorted(rescored(entries), key=order)),
        held=tuple(sorted(held, key=lambda other: other.identity)),
    )


def rescored(entries: Sequence[Entry]) -> list[Entry]:
    """The entries with scores that are relative to others' results computed anew: a new best value of a case changes
    everybody's score. Entries of one group that measured the same cases share their best values."""
    best: dict[tuple[Group, str], float] = {}
    relative = [entry for entry in entries if entry.score.relative_by]
    for entry in relative:
        for case in entry.cases:
            known = (case.value, case.best or case.value, best.get((entry.group, case.label), case.value))
            best[entry.group, case.label] = min(known)
    return [
        replace(entry, score=_relative(entry, best)) if entry.score.relative_by and entry.cases else entry
        for entry in entries
    ]


def _relative(entry: Entry, best: Mapping[tuple[Group, str], float]) -> Score:
    own = [case.value for case in entry.cases]
    total = SCORINGS[entry.score.relative_by].total(own, [best[entry.group, case.label] for case in entry.cases])
    return replace(entry.score, value=rounded(total, DIGITS))


def _kept(one: Judged, history: Sequence[Earlier]) -> Iterator[Earlier]:
    """Of the past, newest first, the judgements that today's estimate is made of, and the latest KEPT others."""
    others = 0
    for past in history:
        is_same = is_same_code(past, one) and past.problem_version == one.problem_version
        others += not is_same
        if is_same or others <= KEPT:
            yield past
