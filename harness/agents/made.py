"""Results made of reports: what a program gets of an evaluation."""

from dataclasses import replace

from harness.agents.hints import next_after, next_of
from harness.agents.result import (
    DETAIL_CHARS,
    MESSAGE_CHARS,
    CaseFigure,
    Conditions,
    Evidence,
    Figures,
    Interval,
    Result,
    Stage,
    Stages,
    Status,
)
from harness.agents.reward import FUNCTIONS, Function, Reward
from harness.board.entries import Board
from harness.board.places import noise_of, one_launch
from harness.core.decode import part
from harness.core.errors import BadSubmissionError, HarnessError
from harness.core.records import CaseResult, Crashed, Estimate, EvalReport, Held, Measured, Raised, Submission, TimedOut
from harness.core.stats import median
from harness.core.words import both_ends, clean, clean_line
from harness.judging import verdict
from harness.judging.warnings import text_of
from harness.report.failures import stacks

# Phases of every kind of problem before its first case, and behind its last.
AROUND = {"start", "reference", "peaks of this machine", "compile", "build", "import", "clock", "end"}


def result_of(
    report: EvalReport,
    function: Function = "log2_speedup",
    lower: bool = False,
    is_final: bool = True,
    board: Board | None = None,
) -> Result:
    """The result of an evaluation. `is_final`: its suite is the one that was asked for, else nothing is ranked. `board`
    has entries whose launches show how much launches differ; without it the usual noise is assumed."""
    failed = verdict.first_failure(report)
    status = verdict.status(report)
    figures = _figures(report, board or Board())
    ranked = status == "pass" and figures is not None and report.confined and not report.data and is_final
    result = part(
        report,
        Result,
        ranks=report.world_size,
        verdict=failed.outcome.type if failed else "pass" if status == "pass" else "error",
        ranked=ranked,
        stages=_stages(report),
        reward=Reward(value=0.0, function=function, lower=lower, why=_unranked(report, is_final)),
        next="",
        figures=figures,
        evidence=_evidence(report, failed) if failed else None,
        warnings=tuple(clean_line(text_of(one)) for one in report.warnings),
        file=report.submission.name,
        sha256=report.submission.sha256,
        is_reference=report.is_reference,
        seconds=round(sum(report.phases_s.values()), 3),
    )
    if ranked and figures is not None:
        result = replace(result, reward=rewarded(figures, function, lower, result.is_reference))
    return replace(result, next=next_of(result, report))


def refused(error: HarnessError, conditions: Conditions, submission: Submission | None = None) -> Result:
    """The result where there is no report: the file cannot be a submission, or the harness or the machine failed."""
    is_files = isinstance(error, BadSubmissionError)
    message = both_ends(clean(str(error)), MESSAGE_CHARS)
    none = Stage(status="not_run")
    return part(
        conditions,
        Result,
        verdict="rejected" if is_files else "error",
        ranked=False,
        stages=Stages(compile=Stage(status="fail", message=message) if is_files else none, correct=none, fast=none),
        reward=part(conditions, Reward, value=0.0, why="it did not run"),
        next=next_after(error),
        evidence=Evidence(where="before it ran", message=message),
        file=submission.name if submission else "",
        sha256=submission.sha256 if submission else "",
    )


def rewarded(figures: Figures, function: Function, lower: bool, is_reference: bool = False) -> Reward:
    """The reward of a ranked result. `is_reference`: the submission is the reference by its text, so that what it was
    measured at is noise, and it earns what the reference is worth."""
    speedup = figures.speedup
    if speedup is None:
        return Reward(value=0.0, function=function, lower=lower, why="the problem has no reference that is timed")
    if lower and speedup.low is None:
        return Reward(value=0.0, function=function, lower=lower, why="no interval: measure longer")
    if is_reference:
        as_fast = [(baseline, baseline, limit) for _, baseline, limit in figures.times]
        value, why = FUNCTIONS[function](1.0, 1.0, as_fast)
        return Reward(value=value, function=function, lower=lower, why=why or "it is the reference: its speedup is 1")
    share = speedup.low / speedup.value if lower and speedup.low is not None else 1.0
    value, why = FUNCTIONS[function](speedup.value, share, figures.times)
    if value and not lower and speedup.value > 1 and (speedup.low is None or speedup.low <= 1):
        why = why or "doubtful: the speedup's interval does not exclude 1; measure longer, or take the lower end"
    return Reward(value=value, function=function, lower=lower, why=why)


def _unranked(report: EvalReport, is_final: bool) -> str:
    if verdict.first_failure(report) is not None or verdict.status(report) != "pass":
        return "it did not pass"
    if report.figures is None:
        return f"mode {report.mode} times nothing"
    if not report.confined:
        return "it ran outside the sandbox"
    if report.data:
        return "it ran on the user's own data"
    return "" if is_final else "it was screened, and left out of what is measured on the whole suite"


def _stages(report: EvalReport) -> Stages:
    has_worked = not report.phases_s or bool(report.phases_s.keys() - AROUND)
    failed = verdict.first_failure(report)
    in_compile = failed is not None and not has_worked
    message = _message(report, failed) if failed else ""
    before = sum(seconds for name, seconds in report.phases_s.items() if name in AROUND - {"end"})
    compiled = Stage(status="fail", message=message) if in_compile else Stage(status="pass", done=1, total=1)
    correct = [one for one in report.results if not in_compile and _is_right(one)]
    fast = [one for one in report.results if one.case.kind == "benchmark"]
    measured = [one for one in fast if isinstance(one.outcome, Measured)]
    spoils_times = failed is not None and failed.case.is_timed and _is_right(failed)
    times: Status = "pass" if fast and len(measured) == len(fast) and not failed else "not_run"
    return Stages(
        compile=replace(compiled, seconds=round(before, 3)),
        correct=Stage(
            status="not_run" if in_compile else "fail" if failed and not spoils_times else "pass",
            done=len(correct),
            total=len(report.results),
            seconds=round(report.phases_s.get("test", 0.0), 3),
            message="" if in_compile or spoils_times else message,
        ),
        fast=Stage(
            status="fail" if spoils_times else times,
            done=len(measured),
            total=len(fast),
            seconds=round(report.phases_s.get("benchmark", 0.0), 3),
            message=message if spoils_times else "",
        ),
    )


def _is_right(result: CaseResult) -> bool:
    """Whether the case's checked calls were right: it passed, or was held only for its times."""
    outcome = result.outcome
    if verdict.case_status(result) == "fail":
        return isinstance(outcome, Held) and result.verdicts is not None and result.verdicts.strict.passed
    return verdict.case_status(result) == "pass"


def _message(report: EvalReport, failed: CaseResult) -> str:
    """What is wrong; where one of several ranks raised or ended, which one."""
    outcome, words = failed.outcome, verdict.message(failed.outcome)
    if isinstance(outcome, Raised | Crashed) and report.world_size > 1:
        words = f"rank {outcome.rank}: {words}"
    return both_ends(clean(words), MESSAGE_CHARS)


def _evidence(report: EvalReport, failed: CaseResult) -> Evidence:
    outcome = failed.outcome
    detail = "\n".join(verdict.left(outcome))
    if isinstance(outcome, TimedOut):
        detail = "\n\n".join(f"{where}:\n{stack}" for where, stack in stacks(outcome))
    detail = detail or report.printed(failed, outcome.rank if isinstance(outcome, Crashed) else 0)
    where = f"{failed.case.kind}: {clean_line(failed.case.title)}"
    return Evidence(where=where, message=_message(report, failed), detail=both_ends(clean(detail), DETAIL_CHARS))


def _interval(found: Estimate | None) -> Interval | None:
    if found is None:
        return None
    low, high = found.ci or (None, None)
    return Interval(value=found.value, low=low, high=high)


def _figures(report: EvalReport, board: Board) -> Figures | None:
    found = report.figures
    if found is None or report.environment is None:
        return None
    noise = noise_of(board, report.problem, report.environment.machine_class, report.device)
    return Figures(
        speedup=_interval(one_launch(found.ratio, noise)) if found.ratio else None,
        fraction=_interval(found.fraction),
        score=found.score.value,
        score_unit=found.score.unit,
        score_better=found.score.better,
        cases=tuple(_case(one) for one in report.results if one.figures is not None and one.case.kind != "drawn"),
    )


def _case(result: CaseResult) -> CaseFigure:
    figures, measured = result.figures, result.outcome
    assert figures is not None
    assert isinstance(measured, Measured)
    bounded = measured.against_bound
    return CaseFigure(
        label=clean_line(result.case.title),
        params=result.case.params,
        metric=figures.metric.name,
        unit=figures.metric.unit,
        value=figures.value,
        baseline=figures.baseline,
        speedup=_interval(figures.ratio),
        limit=result.bound.value if result.bound else None,
        limited=bounded.metric.name if result.bound else "",
        limited_value=median(bounded.own) if result.bound and bounded.own else None,
        limited_baseline=median(bounded.baseline) if result.bound and bounded.baseline else None,
    )
