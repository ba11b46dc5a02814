"""Who is to blame for a rank's failure: by whose process failed, and by a control run; never by what a message says.

A candidate's failure is its own. A trusted or a baseline rank that fails before anything of the submission's could
reach it fails by the problem or the machine, which is refused. If one fails later, the step is repeated with the
reference as the submission, in fresh processes (kinds.op.control). Where that passes, the submission is held.
"""

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace

from harness.core.errors import HarnessError, UsageError
from harness.core.records import Crashed, Held, Raised, Submission, TimedOut
from harness.core.words import cut_line
from harness.judging import verdict
from harness.kinds import staging
from harness.kinds.gpu_only import refuse_gpu_only
from harness.kinds.kind import BROKE_ITS_JUDGE, OpponentFailed
from harness.kinds.op.plan import OpPlan
from harness.problems.problem import OFFICIAL, Problem
from harness.ranks import wire
from harness.ranks.failure import RankFailure

REASON_CHARS = 300
LESS = "{}smaller shapes (--suite{}) need less memory"
NEXT: dict[wire.Reason, str] = {  # what to do about a failed judge or reference
    "device_memory": LESS,
    "memory": LESS,
    "files": "evaluate again when nothing else of this user has so many files on their way between processes",
    "tasks": "{}a higher limit of processes and threads (`ulimit -u`, or the container's) would do",
    "module": f"install the missing package for {sys.executable}",
    "weak": "evaluate another problem; `python -m harness audit` names the weak ones of a set",
    "": "correct the problem's files, or see with `python -m harness doctor --smoke` whether ranks can talk here",
}
# A file of a rank's working folder, in a traceback.
STAGED = re.compile(r'[^"(\s]*/kernel-eval-[^/"\s]+/(?:\d+/)*[a-z]+/\d+/([^")\s]+)')
FRAME = re.compile(r'File "[^"]*/kernel-eval-[^/"]+/(?:\d+/)*[a-z]+/\d+/([^"]+)", line (\d+)')
WHOSE = {"trusted": "a judge", "baseline": "the reference"}
# What an exception has in it for which the machine may be the reason: a device, or an operation that lacks there.
DEVICE = re.compile(r"cuda|gpu|nccl|nvidia|triton|[_'\"]cpu[_'\"]|not implemented for", re.IGNORECASE)
ON_CPU = "this evaluation runs on CPU cores; take the device from the inputs, or evaluate it on a machine with a GPU"
LEFT = "; a judge and the reference {}, and with less than they leave it may be right"
BESIDE_IT: dict[wire.Reason, str] = {  # what a submission that ran out of memory, or of processes, is told
    "device_memory": LEFT.format("are on the same device"),
    "memory": LEFT.format("have memory of this machine too"),
    "tasks": LEFT.format("count against the same limit of processes and threads (`ulimit -u`, or the container's)"),
}

NEITHER = (
    "either file passes the same step beside the reference, so nobody can tell which is to blame. Next: evaluate each "
    "alone (`python -m harness eval`), or run it again"
)
SHARED: dict[wire.Reason, str] = {  # what one side can take from the other, and what to do where the machine lacks it
    "memory": "smaller shapes need less memory",
    "files": NEXT["files"],
}
Control = Callable[[Submission | None], str]


def decided(
    failure: RankFailure,
    plan: OpPlan,
    case: str,
    made_nbytes: int,
    may_be_its: bool,
    has_timed: bool,
    control: Control,
    breaks: Callable[[], str],
) -> Raised | Crashed | TimedOut | Held:
    """The failure as the submission's outcome. `made_nbytes`: of the case's input and output on a rank, 0 where it is
    not known. `may_be_its`: whether the submission can have reached a rank that is not its own. `has_timed`: whether a
    case was timed before, in which it was right, so that it runs on this kind of device. `control` repeats the step
    with the reference as the submission, against that opponent, and returns why it fails too, or "". `breaks` repeats
    it with the reference as the opponent, and returns how that fails beside the submission, or "".

    Raises HarnessError where nobody can tell which of two files is to blame; UsageError where neither the submission
    nor an opponent is, as where the submission has code that only a GPU runs and this machine has none; and
    OpponentFailed where that is.
    """
    outcome = failure.outcome
    if failure.role == "candidate":
        if plan.device == "cpu" and isinstance(outcome, Raised) and not has_timed:
            refuse_gpu_only(plan.submission, outcome.traceback, outcome.message)
        return _advised(failure, plan)
    what = cut_line(outcome.message, REASON_CHARS)
    if failure.role == "baseline" and plan.opponent is not None:
        if failure.reason not in SHARED or plan.is_control or control(plan.opponent):
            raise OpponentFailed(case, outcome) from None
        if not (why := breaks()):  # an opponent may say anything, and behave beside the reference
            raise HarnessError(f"the opponent failed: {what}; {NEITHER}") from None
        evidence = f"the opponent failed: {what}; beside it the reference fails too: {why}"
        return Crashed(rank=0, message=evidence, log_tail="")
    if may_be_its:
        why = ""
        for opponent in dict.fromkeys((plan.opponent, None)):
            if why := control(opponent):
                continue
            evidence = f"{_who(failure)} failed: {what}; with the reference as the submission the same step passes"
            if opponent is not plan.opponent:
                raise OpponentFailed(case, Crashed(rank=0, message=evidence, log_tail="")) from None
            if opponent is not None and not breaks():
                raise HarnessError(f"{_who(failure)} failed: {what}; {NEITHER}") from None
            return outcome if isinstance(outcome, TimedOut) else Held(check=BROKE_ITS_JUDGE, evidence=evidence)
        raise UsageError(f"{why} (with the reference as the submission, too)") from None
    raise _refused(failure, plan, case, made_nbytes, what) from None


def by_the_slowest(failure: RankFailure, waited_s: Mapping[wire.Role, float]) -> RankFailure:
    """The failure of two files that meet. Where time ran out, it is that of the one for which the harness waited longer
    in the phase: a file that ends its calls just before the deadline would leave the other side none."""
    slowest = max(waited_s, key=lambda role: waited_s[role])
    if not isinstance(failure.outcome, TimedOut) or failure.role == slowest or not waited_s[slowest]:
        return failure
    message = f"it took {waited_s[slowest]:.1f} s of the phase, and the other side {min(waited_s.values()):.1f} s"
    return RankFailure(slowest, TimedOut(message=message, stacks=()))


def _who(failure: RankFailure) -> str:
    outcome = failure.outcome
    number = "" if isinstance(outcome, TimedOut) else f" {outcome.rank}"
    return f"{WHOSE[failure.role]} ({failure.role} rank{number})"


def _refused(failure: RankFailure, plan: OpPlan, case: str, made_nbytes: int, what: str) -> UsageError:
    """The error that begins with the reason why the problem does not run here. A file keeps the traceback or log."""
    reason, text = failure.reason, "\n".join(verdict.left(failure.outcome))
    frames = FRAME.findall(text)
    place = f"{plan.problem.told_file(frames[-1][0])}:{frames[-1][1]}, " if frames else ""
    text = STAGED.sub(lambda found: plan.problem.told_file(found[1]), text)
    known = f" An input and an output take {made_nbytes / 2**30:.1f} GiB, of which the harness holds several copies."
    fewer = "fewer ranks (--ranks) or " if plan.world_size > 1 else ""
    others = [name for name in plan.problem.suites if name not in (OFFICIAL, "cpu", plan.suite.name)]
    usual = NEXT[reason].format(fewer, f" {' or '.join(others)}" if others else "")
    advice = (reason == "" and plan.problem.advice(plan.device, plan.cuda_is_cpu)) or usual
    return UsageError(
        f"{what} ({place}{_who(failure)}): {plan.problem.name} does not run here, at {case}."
        f"{known if made_nbytes and reason == 'device_memory' else ''} Next: {advice}{staging.kept(plan.problem, text)}"
    )


def _advised(failure: RankFailure, plan: OpPlan) -> Raised | Crashed | TimedOut:
    """A submission's failure, with what may be behind it on this machine, and its own files in tracebacks."""
    outcome = failure.outcome
    if failure.reason in BESIDE_IT and not plan.is_control:
        outcome = replace(outcome, message=outcome.message + BESIDE_IT[failure.reason])
    elif isinstance(outcome, Raised) and failure.reason == "module":
        outcome = replace(outcome, message=outcome.message + _modules_there(outcome.message, plan.problem))
    elif _may_be_the_machine(outcome, plan) and (
        advice := plan.problem.advice(plan.device, plan.cuda_is_cpu) or (ON_CPU if plan.device == "cpu" else "")
    ):
        outcome = replace(outcome, message=f"{outcome.message}; this machine may be the reason: {advice}")
    return _named(outcome, plan)


def _modules_there(message: str, problem: Problem) -> str:
    """What can be imported, for a submission that lacked a module: a copy of the shipped one, say."""
    there = f"; ranks have what is installed for {sys.executable}, and files beside a submission below submissions/"
    places = (problem.submissions_folder, problem.submissions_folder.parent)
    lacking = re.search(r"No module named '(\w+)", message)
    if lacking and any(place.joinpath(lacking[1] + end).exists() for place in places for end in ("", ".py")):
        there += f": `make merge PROBLEM={problem.name} OUT=my.py` makes one file of the shipped one and its modules"
    return there


def _may_be_the_machine(outcome: Raised | Crashed | TimedOut, plan: OpPlan) -> bool:
    """Whether it may have ended otherwise elsewhere: an exception whose last frame or text has to do with a device, and
    a deadline where the CPU stands in for CUDA."""
    if isinstance(outcome, Raised):
        return DEVICE.search(outcome.traceback.rpartition('File "')[2]) is not None
    return isinstance(outcome, TimedOut) and plan.cuda_is_cpu


def _named(outcome: Raised | Crashed | TimedOut, plan: OpPlan) -> Raised | Crashed | TimedOut:
    """The outcome with the user's own file in tracebacks and stacks: the staged copy is gone when they are read."""
    submission = plan.submission
    names = {"submission.py": submission.main or submission.name}
    names |= {f"{module.name.replace('.', '/')}.py": module.file for module in submission.modules}

    def shown(text: str) -> str:
        return STAGED.sub(lambda found: names.get(found[1]) or plan.problem.told_file(found[1]), text)

    if isinstance(outcome, Raised):
        return replace(outcome, traceback=shown(outcome.traceback))
    if isinstance(outcome, Crashed):
        return replace(outcome, log_tail=shown(outcome.log_tail))
    return replace(outcome, stacks=tuple(map(shown, outcome.stacks)))
