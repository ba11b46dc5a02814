"""Whether an evaluation passed, and which exit code says so.

Pure rules over an EvalReport; knows neither files, processes nor how anything is shown.
"""

from typing import Literal, get_args

from harness.core.errors import Exit
from harness.core.records import (
    CaseResult,
    Crashed,
    EvalReport,
    Failure,
    Held,
    Measured,
    NotRun,
    Outcome,
    Passed,
    Raised,
    TimedOut,
    Wrong,
)

Status = Literal["pass", "fail", "error"]
CaseStatus = Literal["pass", "fail", "not_run"]
EXITS: dict[type[Failure], Exit] = {
    Wrong: Exit.INVALID,
    Raised: Exit.INVALID,
    Crashed: Exit.INVALID,
    Held: Exit.INVALID,
    TimedOut: Exit.TIMED_OUT,
}


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
    (a test passed, a benchmark measured). Else the evaluation ended early for no fault of the submission: `error`."""
    if first_failure(report) is not None:
        return "fail"
    finished = all(
        isinstance(result.outcome, Measured if _is_measured(report, result) else Passed) for result in report.results
    )
    return "pass" if report.results and finished else "error"


def exit_code(report: EvalReport) -> Exit:
    """The exit code of an evaluation that came as far as a report; the first failure decides."""
    if (failed := first_failure(report)) is not None:
        return next(code for kind, code in EXITS.items() if isinstance(failed.outcome, kind))
    return Exit.OK if status(report) == "pass" else Exit.ERROR


def measured_cases(report: EvalReport) -> tuple[tuple[CaseResult, Measured], ...]:
    """The benchmarks that were measured, each with its series."""
    benchmarks = (result for result in report.results if result.case.kind != "drawn")
    return tuple((result, result.outcome) for result in benchmarks if isinstance(result.outcome, Measured))


def _is_measured(report: EvalReport, result: CaseResult) -> bool:
    return result.case.is_timed and report.mode != "test"


def message(outcome: Outcome) -> str:
    """What is wrong, or "" where nothing is."""
    if isinstance(outcome, Held):
        return f"{outcome.check}: {outcome.evidence}"
    return outcome.message if isinstance(outcome, Wrong | Raised | Crashed | TimedOut) else ""
