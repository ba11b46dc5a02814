"""The verb `rejudge`: what are entries worth by today's problem and checks?

Judges a set of entries again after a problem, its shapes, a check or a peak has changed, shows the difference, and
changes the board only with --apply, all of it in one step. The old judgement goes into the entry's history with the
reason. Without --apply nothing is written anywhere.

An entry that was judged under today's problem version is judged from its report: score, speedup and bound are computed
anew from the samples of then, by today's ranking rule, costs and hardware table. Every other one is run again from its
stored source, once (--rerun: all are). What is not right any more is held, with that as its evidence.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.text import Text

from harness.board import entries, judgements, reports, runs
from harness.board.entries import Board, Entry, HeldEntry, Judged
from harness.board.reports import Report, ReportCase
from harness.core.checkout import Checkout
from harness.core.records import BadFileError, Case, EvalReport, Timed, UsageError
from harness.core.stats import Interval, geomean, geomean_speedup, median
from harness.core.words import clean_line
from harness.evaluation import verify
from harness.judging import verdict
from harness.judging.scoring import score_s
from harness.kinds.settings import Setting
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
def rejudged(one: Judged, setting: Setting, rerun: bool, checkout: Checkout) -> Row:
    """The entry judged anew, from its report where that suffices, else, or with `rerun`, run again."""
    version = judgements.problem_version(setting.problem, setting.suite)
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
    Console(stderr=True).print(Text(clean_line(f"{one.file}, {one.run_id}")), soft_wrap=True)
    found = [verify.launch(one, setting, submission, checkout)]
    if verify.held_by_chance(found[0]):  # twice is no chance
        found.append(verify.launch(one, setting, submission, checkout))
    why = f"rejudged: {_change(one, version)}"
    return Rejudged(old=one, new=_judged(one, found, version), why=why, runs=tuple(found))


def from_report(one: Entry, report: Report, problem: Problem) -> Judged:
    """The entry as its report makes it by today's rules. Raises UsageError where the report is not the entry's."""
    if (report.run_id, report.submission.sha256) != (one.run_id, one.sha256) or not report.timed:
        raise UsageError(f"the report of {one.run_id} is not of this entry; run it again")
    timeds = [_timed(case, report.block_of(case)) for case in report.timed]
    fractions = []
    for case in report.timed:
        bound = _bound(case, report, problem)
        if bound is None:
            continue
        time_us = median(case.roofline_samples_us)
        if time_us < bound[0]:
            evidence = f"{time_us:.2f} us are less than the bound of {bound[0]:.2f} us ({bound[1]}), by its report"
            return judgements.held(one, "roofline", evidence, (one.run_id,))
        fractions.append(bound[0] / time_us)
    speedup = geomean_speedup(timeds)
    interval = speedup.interval
    made = replace(
        one,
        score_s=score_s(timeds, problem.ranking_by),
        geomean_speedup=speedup.value,
        geomean_speedup_ci=(interval.low, interval.high) if isinstance(interval, Interval) else None,
        roofline_fraction=geomean(fractions) if len(fractions) == len(timeds) else None,
    )
    if entries.round_off(made) == one:
        return one
    return replace(made, verified=None, history=(), holds=())  # what was is the board's to keep


def _judged(one: Judged, found: Sequence[EvalReport], version: str) -> Judged:
    """What the last of these evaluations is worth. What failed keeps what it claimed, and is held."""
    judged = judgements.judged(found[-1], version)
    if isinstance(judged, Entry):
        return judged
    failed = verdict.first_failure(found[-1])
    assert failed is not None, "a leaderboard run that is no entry has failed"
    decision = verify.not_passed(failed, len(found), len(found))
    check = "rejudge" if decision.check == "verify" else decision.check
    return judgements.held(one, check, decision.why, tuple(report.run_id for report in found), version)


def _change(one: Judged, version: str) -> str:
    if one.problem_version is None:
        return f"its problem version was not recorded, now {version}"
    if one.problem_version == version:
        return "run again"
    return f"problem version {one.problem_version} became {version}"


def _timed(case: ReportCase, block: int) -> Timed:
    wall = case.clocks["wall"]
    return Timed(samples_us=wall.samples_us, ref_samples_us=wall.ref_samples_us, block=block)


def _bound(case: ReportCase, report: Report, problem: Problem) -> tuple[float, str] | None:
    """The case's bound by today's cost and hardware table; a machine that the table does not know keeps the peaks that
    were measured on it. None where the problem has no cost, or the report no peaks."""
    model = report.environment.machine_class.partition("x ")[2] if report.environment else ""
    peaks = (hardware.match(model) if report.device != "cpu" else None) or report.peaks
    if peaks is None or problem.cost_of is None:
        return None
    cost = problem.cost(Case(kind=case.kind, params=case.params, seed=0, world_size=case.world_size))
    return hardware.bound(cost, peaks)


def applied(found: Board, changes: Sequence[Rejudged]) -> Board:
    """The board with all changes. Raises HarnessError, and so changes nothing, where one of the entries was changed
    meanwhile."""
    for row in changes:
        found = judgements.replaced(found, row.old, row.new, row.why)
    return found
