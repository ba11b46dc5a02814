"""The verb `rejudge`: what are entries worth by today's problem and checks? docs/usage.md says what it changes.

An entry that was judged under today's problem version is judged from its report: score, speedup and bound are computed
anew from the samples of then, by today's ranking rule, costs and hardware table. Every other one is run again, once.
Under another version it takes its figures from that launch, since its earlier ones belong to another problem. Under the
same (--rerun) launches are compared by speedup, since absolute times change from day to day.
"""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.board import judgements, reports, runs
from harness.board.digits import same_figures
from harness.board.entries import Board, Entry, HeldEntry, Judged
from harness.board.places import noise_of
from harness.core.checkout import Checkout
from harness.core.errors import BadFileError, UsageError
from harness.core.metrics import STEPWISE
from harness.core.records import Bound, CaseResult, EvalReport, Measured
from harness.core.stats import CONFIDENCE, LaunchNoise, median, student_t
from harness.core.words import clean_line, times_text
from harness.evaluation import verify
from harness.judging import verdict
from harness.judging.figures import figured
from harness.kinds.kind import Progress, Setting
from harness.machine import hardware
from harness.problems.problem import Problem

JSON_SCHEMA = 1  # of --json; 1: first


@dataclass(frozen=True, kw_only=True)
class Rejudged:
    """`old` was judged again as `new`, for the reason `why`, in those `runs` where it was run again."""

    old: Judged
    new: Judged
    why: str
    runs: tuple[EvalReport, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Left:
    """`old` could not be judged again, and why."""

    old: Judged
    why: str


Row = Rejudged | Left


# ---- again -----------------------------------------------------------------------------------------------------------
def rejudged(
    one: Judged, setting: Setting, rerun: bool, checkout: Checkout, progress: Progress, noise: LaunchNoise | None = None
) -> Row:
    """Judges the entry again: from its report where that suffices, else, or with `rerun`, by running it again. `noise`
    is what launches differ by; the usual where it is None."""
    version = judgements.problem_version(setting.problem, setting.suite, setting.device)
    stale = one.problem_version != version
    if isinstance(one, Entry) and not stale and not rerun:
        with contextlib.suppress(UsageError, BadFileError):  # gone, or not readable any more
            new = from_report(one, reports.find(one.run_id, checkout.root), setting.problem)
            return Rejudged(old=one, new=new, why="judged again from its report")
    if isinstance(one, HeldEntry) and one.check == "verify" and not stale:
        return Left(old=one, why="held by `verify`, which alone can release it")
    try:
        verify.check_machine(one)
        submission = runs.load_source(one.sha256, one.file, checkout.root, one.run_id)
    except (UsageError, runs.SourceError) as error:
        return Left(old=one, why=str(error))
    progress.note(clean_line(f"{one.file}, {one.run_id}"))
    found = [verify.launch(one, setting, submission, progress)]
    if verify.held_by_chance(found[0]):  # twice is no chance
        found.append(verify.launch(one, setting, submission, progress))
    why = f"rejudged: {_change(one, version)}"
    new = _judged(one, found, version)
    noise = noise_of(Board(), one.problem, one.machine_class, one.device) if noise is None else noise
    if isinstance(one, Entry) and isinstance(new, Entry) and not stale and reproduces(one, new, noise):
        why += f"; it reproduces: {times_text(one.ratio or 0)} then, {times_text(new.ratio or 0)} now"
        new = one
    return Rejudged(old=one, new=new, why=why, runs=tuple(found))


def reproduces(old: Entry, new: Entry, noise: LaunchNoise) -> bool:
    """Whether two launches, both in the sandbox or neither, and on the same shapes as far as that is known, have
    speedups that differ by no more than launches of one source do (95 %)."""
    if old.ratio is None or new.ratio is None or old.score.unit != new.score.unit or old.confined != new.confined:
        return False
    if old.cases and [one.params for one in old.cases] != [one.params for one in new.cases]:
        return False
    errors = [one.log_error or 0.0 for one in (old, new)]
    t = student_t((1 + CONFIDENCE) / 2, noise.freedom)
    return abs(math.log(new.ratio / old.ratio)) <= t * math.hypot(noise.sd, noise.sd, *errors)


def from_report(one: Entry, report: EvalReport, problem: Problem) -> Judged:
    """The entry as its report makes it by today's rules. Raises UsageError where the report is not the entry's."""
    if (report.run_id, report.submission.sha256) != (one.run_id, one.sha256) or report.figures is None:
        raise UsageError(f"the report of {one.run_id} is not of this entry; run it again")
    results = tuple(replace(result, bound=_bound(result, report, problem)) for result in report.results)
    again = figured(replace(report, results=results, ranking_by=problem.ranking_by))
    for result, measured in verdict.measured_cases(again):
        bound, (metric, own) = result.bound, (measured.against_bound.metric, measured.against_bound.own)
        if bound and own and metric.name not in STEPWISE and metric.sign * (median(own) - bound.value) < 0:
            what = "less" if metric.better == "less" else "more"
            evidence = f"{median(own):.2f} {metric.unit} are {what} than the limit of {bound.value:.2f} {metric.unit}"
            evidence += f" ({bound.by}), by its report"
            return judgements.held(one, "roofline", evidence, (one.run_id,))
    made = judgements.entry_of(again, one.problem_version)
    assert made is not None, "a report with figures is worth an entry"
    made = replace(made, file=one.file, author=one.author, code=one.code)  # a report has no source
    kept = replace(made, verified=one.verified, history=one.history, holds=one.holds)
    if same_figures(kept, one):
        return one
    return made  # what was is the board's to keep


def _judged(one: Judged, found: Sequence[EvalReport], version: str) -> Judged:
    """What the last of these evaluations is worth. What failed keeps what it claimed, and is held."""
    judged = judgements.judged(found[-1], version)
    if isinstance(judged, Entry):
        return judged
    decision = verify.not_passed(found[-1], len(found), len(found))
    check = "rejudge" if decision.check == "verify" else decision.check
    return judgements.held(one, check, decision.why, tuple(report.run_id for report in found), version)


def _change(one: Judged, version: str) -> str:
    if one.problem_version is None:
        return f"its problem version was not recorded, now {version}"
    if one.problem_version == version:
        return "run again"
    return f"problem version {one.problem_version} became {version}"


def _bound(result: CaseResult, report: EvalReport, problem: Problem) -> Bound | None:
    """The case's bound by today's cost and hardware table; a machine that the table does not know keeps the peaks that
    were measured on it. None without a cost, or peaks in the report. The bound of what is no time is the report's."""
    peaks = (hardware.match(report.device_model) if report.device != "cpu" else None) or report.peaks
    is_time = not isinstance(result.outcome, Measured) or result.outcome.against_bound.metric.unit == "us"
    if problem.cost_of is None or not is_time:
        return result.bound  # which then is of the case alone
    if peaks is None or not result.case.is_timed:
        return None
    return hardware.limit(problem.cost(result.case), peaks)


def applied(found: Board, changes: Sequence[Rejudged]) -> Board:
    """The board with all changes. Raises HarnessError, and changes nothing, if an entry was changed meanwhile."""
    for row in changes:
        found = judgements.replaced(found, row.old, row.new, row.why)
    return found
