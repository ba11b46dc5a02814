"""Whether an evaluation passed, and which exit code says so.

Pure rules over an EvalReport; knows neither files, processes nor how anything is shown.
"""

from dataclasses import dataclass
from typing import Literal

from harness.core.errors import Exit
from harness.core.records import CaseResult, EvalReport, Failure, Measured, NotRun, Outcome, Passed

Status = Literal["pass", "fail", "error"]
CaseStatus = Literal["pass", "fail", "not_run"]
Ending = Literal["passed", "failure", "error", "skipped"]


@dataclass(frozen=True, kw_only=True)
class OutcomeWords:
    """What is said of an outcome; texts take its fields by their names. `exit` is what an evaluation that it ends exits
    with, `ending` what it is for a test runner. `message` says what happened, `short` where or by what check in a few
    words, `told` all of that to KernelBot; `left` names the field with what it left behind."""

    exit: Exit = Exit.OK
    ending: Ending = "passed"
    message: str = ""
    short: str = ""
    told: str = "right, but not timed: another case failed, so nothing is ranked"
    left: str = ""


OUTCOMES: dict[str, OutcomeWords] = {
    "passed": OutcomeWords(),
    "measured": OutcomeWords(),
    "not_run": OutcomeWords(ending="skipped", told="not run: a failure ended the evaluation before this case"),
    "wrong": OutcomeWords(exit=Exit.INVALID, ending="failure", message="{message}", told="{message}"),
    "held": OutcomeWords(
        exit=Exit.INVALID,
        ending="failure",
        message="{check}: {evidence}",
        short="{check}",
        told="not believed ({check}): {evidence}",
    ),
    "raised": OutcomeWords(
        exit=Exit.INVALID,
        ending="error",
        message="{message}",
        short="rank {rank}: {message}",
        told="rank {rank}: {message}",
        left="traceback",
    ),
    "crashed": OutcomeWords(
        exit=Exit.INVALID,
        ending="error",
        message="{message}",
        short="rank {rank}: {message}",
        told="rank {rank}: {message}",
        left="log_tail",
    ),
    "timed_out": OutcomeWords(
        exit=Exit.TIMED_OUT, ending="error", message="{message}", told="timed out: {message}", left="stacks"
    ),
}


def word(outcome: Outcome) -> str:
    """What a case came to: `timed out`, `held`."""
    return outcome.type.replace("_", " ")


def message(outcome: Outcome) -> str:
    """What is wrong, or "" where nothing is."""
    return OUTCOMES[outcome.type].message.format_map(vars(outcome))


def left(outcome: Outcome) -> tuple[str, ...]:
    """What the outcome left behind: a traceback, the end of a log, a stack of each rank."""
    found = getattr(outcome, OUTCOMES[outcome.type].left, ())
    return (found,) if isinstance(found, str) else found


def case_status(result: CaseResult) -> CaseStatus:
    """One word for what became of a case."""
    if isinstance(result.outcome, Failure):
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
    measures = report.mode != "test"
    finished = all(
        isinstance(one.outcome, Measured if measures and one.case.is_timed else Passed) for one in report.results
    )
    return "pass" if report.results and finished else "error"


def exit_code(report: EvalReport) -> Exit:
    """The exit code of an evaluation that came as far as a report; the first failure decides."""
    if (failed := first_failure(report)) is not None:
        return OUTCOMES[failed.outcome.type].exit
    return Exit.OK if status(report) == "pass" else Exit.ERROR


def measured_cases(report: EvalReport) -> tuple[tuple[CaseResult, Measured], ...]:
    """The benchmarks that were measured, each with its series."""
    benchmarks = (result for result in report.results if result.case.kind != "drawn")
    return tuple((result, result.outcome) for result in benchmarks if isinstance(result.outcome, Measured))
