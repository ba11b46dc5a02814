"""Whether an evaluation passed, which exit code says so, and the figures that only a passed one has.

Pure rules over an EvalReport; knows neither files, processes nor how anything is shown.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from harness.core.records import (
    CaseResult,
    Crashed,
    EvalReport,
    Exit,
    Failure,
    Held,
    NotRun,
    Outcome,
    Passed,
    Raised,
    Timed,
    TimedOut,
    Told,
    Wrong,
)
from harness.core.stats import GeomeanSpeedup, geomean, geomean_speedup, roofline_fraction
from harness.judging.scoring import score_s

Status = Literal["pass", "fail", "error"]
CaseStatus = Literal["pass", "fail", "not_run"]
EXITS: dict[type[Failure], Exit] = {
    Wrong: Exit.INVALID,
    Raised: Exit.INVALID,
    Crashed: Exit.INVALID,
    Held: Exit.INVALID,
    TimedOut: Exit.TIMED_OUT,
}


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a passed evaluation is worth. `roofline_fraction` is the geometric mean over cases, or None where a
    case has no bound. `score_s` is GPU MODE's."""

    geomean_speedup: GeomeanSpeedup
    score_s: float
    roofline_fraction: float | None


def case_status(result: CaseResult) -> CaseStatus:
    """One word for what became of a case."""
    if isinstance(result.outcome, get_args(Failure)):
        return "fail"
    return "not_run" if isinstance(result.outcome, NotRun) else "pass"


def first_failure(report: EvalReport) -> CaseResult | None:
    """The failed case that decides: the first in the report's order."""
    return next((result for result in report.results if case_status(result) == "fail"), None)


def status(report: EvalReport) -> Status:
    """`fail` once a case failed, whatever was not run after it. `pass` when every case has what its mode asks for
    (a test passed, a benchmark timed). Else the evaluation ended early for no fault of the submission: `error`."""
    if first_failure(report) is not None:
        return "fail"
    finished = all(
        isinstance(result.outcome, Timed | Told if _is_timed(report, result) else Passed) for result in report.results
    )
    return "pass" if report.results and finished else "error"


def exit_code(report: EvalReport) -> Exit:
    """The exit code of an evaluation that came as far as a report; the first failure decides."""
    if (failed := first_failure(report)) is not None:
        return next(code for kind, code in EXITS.items() if isinstance(failed.outcome, kind))
    return Exit.OK if status(report) == "pass" else Exit.ERROR


def timed_cases(report: EvalReport) -> tuple[tuple[CaseResult, Timed], ...]:
    """The cases that were timed, each with its samples."""
    return tuple((result, result.outcome) for result in report.results if isinstance(result.outcome, Timed))


def figures(report: EvalReport) -> Figures | None:
    """The evaluation's figures; None unless it passed and benchmark cases were timed in it."""
    cases = timed_cases(report)
    if status(report) != "pass" or not cases:
        return None
    timeds = [timed for _, timed in cases]
    fractions = [roofline_fraction(timed, result.bound_us) for result, timed in cases if result.bound_us is not None]
    return Figures(
        geomean_speedup=geomean_speedup(timeds),
        score_s=score_s(timeds, report.ranking_by),
        roofline_fraction=geomean(fractions) if len(fractions) == len(cases) else None,
    )


def told_score_s(report: EvalReport) -> float | None:
    """GPU MODE's score of what a problem folder's own evaluator told, who times no reference, so that there are no
    other figures. None unless it passed and told times."""
    told = [result.outcome for result in report.results if isinstance(result.outcome, Told)]
    return score_s(told, report.ranking_by) if told and status(report) == "pass" else None


def _is_timed(report: EvalReport, result: CaseResult) -> bool:
    return result.case.kind == "benchmark" and report.mode != "test"


def message(outcome: Outcome) -> str:
    """What is wrong, or "" where nothing is."""
    if isinstance(outcome, Held):
        return f"{outcome.check}: {outcome.evidence}"
    return outcome.message if isinstance(outcome, Wrong | Raised | Crashed | TimedOut) else ""
