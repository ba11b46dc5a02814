"""One hint: what whoever wrote a submission should do next, by the verdict and what it rests on."""

from harness.agents.result import CaseFigure, Result
from harness.core.errors import BadFileError, BadSubmissionError, HarnessError, UsageError
from harness.core.records import CaseResult, EvalReport, Held, Raised
from harness.core.words import clean_line, percent_text, times_text
from harness.judging import verdict
from harness.kinds.checkers import CHECKERS
from harness.report.failures import adapter_calls, has_own_frame

BY_CHECK = {
    "clock": "finish all work before the call returns: its times do not fit what trusted processes saw",
    "cache": "compute every result anew: calls on an input that was seen before are faster",
    "roofline": "do all of the work in every call: it is faster than the machine's peak rates permit",
    "communication": "use the other ranks' data of this call: a rank finished before data that it needs was there",
    "broke its judge": "return plain tensors of the right dtype, shape and device, and keep little device memory "
    "between calls: evidence.message says what broke its judge",
    "training": "train on every sample, in order: what the run did does not fit its log",
    "convergence": "train by the rules: it reaches the quality in fewer samples than the data permits",
    "bound": "return a solution of this instance: its cost is below a proved lower bound",
}
LEFT = {  # what a failure leaves
    "wrong": "what it printed is",
    "raised": "the traceback is",
    "crashed": "what it printed last is",
    "timed_out": "where each rank stood is",
}


def next_of(result: Result, report: EvalReport) -> str:
    failed = verdict.first_failure(report)
    if failed is not None:
        return _after(failed, result, report)
    if result.verdict == "error":
        return "the evaluation ended early: try again"
    if result.figures is None:
        return f"it is right: `python -m harness eval {report.problem} FILE` times it"
    if not result.ranked and result.reward.why:
        return f"it is right, but not ranked: {result.reward.why}"
    return _faster(result.figures.cases, report)


def next_after(error: HarnessError) -> str:
    """The hint where there is no report."""
    if isinstance(error, BadSubmissionError):
        return "correct the file as the message says"
    if isinstance(error, UsageError | BadFileError):
        return "the problem cannot be evaluated like that here: evidence.message says why"
    return "the harness or the machine failed: try again"


def _after(failed: CaseResult, result: Result, report: EvalReport) -> str:
    outcome, where = failed.outcome, f"{failed.case.kind} {clean_line(failed.case.title)}"
    if isinstance(outcome, Held):
        return BY_CHECK.get(outcome.check, "make it do its work as the reference does: its result is not believed")
    detail = result.evidence.detail if result.evidence else ""
    is_shown = has_own_frame(outcome) if isinstance(outcome, Raised) else bool(detail)
    if result.stages.compile.status == "fail":
        says = f"{LEFT[outcome.type]} in evidence.detail" if is_shown else "evidence.message says why it does not"
        return f"make the file import, or build: {says}"
    if isinstance(outcome, Raised) and not is_shown:
        calls = adapter_calls(report, outcome)
        return f"change the submission as evidence.message says, on {where}{calls and '; '}{calls}"
    hints = {
        "wrong": f"compare with {CHECKERS[report.checker].right} on {where}: evidence.message says what is wrong",
        "raised": f"correct what raises on {where}",
        "crashed": f"correct what ends the process on {where}",
        "timed_out": f"find what waits or loops on {where}",
    }
    return hints[outcome.type] + (f"; {LEFT[outcome.type]} in evidence.detail" if is_shown else "")


def _faster(cases: tuple[CaseFigure, ...], report: EvalReport) -> str:
    """The shape that has most to gain: the farthest from its limit, or else the smallest speedup."""
    known = [(one.limit / (one.limited_value or one.value), one) for one in cases if one.limit is not None]
    if known:
        part, worst = min(known, key=lambda pair: pair[0])
        reason = f"reaches {percent_text(part)} of its limit"
    else:
        ratios = [(one.speedup.value, one) for one in cases if one.speedup is not None]
        if not ratios:
            return "it is ranked: try something faster"
        ratio, worst = min(ratios, key=lambda pair: pair[0])
        reason = f"is {times_text(ratio)} the reference"
    most = f"{worst.label} has most to gain, as it {reason}"
    if not CHECKERS[report.checker].has_profile:
        return most
    profile = f"`python -m harness eval {report.problem} FILE --mode profile --benchmark {cases.index(worst)}`"
    return f"{most}: {profile} shows what takes the time"
