"""Whose fault a rank's failure is: the submission's, or that of what judges it, which is told with what to do."""

import re
import sys
from dataclasses import replace
from pathlib import Path

from harness.core.errors import HarnessError
from harness.core.records import Crashed, Raised, Submission, TimedOut
from harness.kinds.kind import OpponentFailed
from harness.kinds.plan import OpPlan
from harness.ranks import wire
from harness.ranks.failure import RankFailure

LESS = "{}smaller shapes (--suite) need less memory"
NEXT: dict[wire.Reason, str] = {  # what to do about a failed judge or reference
    "device_memory": LESS,
    "memory": LESS,
    "module": f"install the missing package for {sys.executable}",
    "": "`python -m harness doctor --smoke` says whether ranks can run and talk here",
}
# A file of a rank's working folder, in a traceback.
STAGED = re.compile(r'[^"\s]*/kernel-eval-[^/"\s]+/[a-z]+/\d+/([^"\s]+)')
WHOSE = {"trusted": "a judge (trusted rank {})", "baseline": "the reference (baseline rank {})"}
MAY_BE_ITS = (
    "The submission had already run and may be the cause. To find out, run `python -m harness check` with the "
    "problem's reference.py as the submission: if that passes, the submission is the cause.\n"
)


BESIDE_IT = "; a judge and the reference are on the same device, and with less than they leave it may be right"


def _trusted_failure(failure: RankFailure, outcome: Raised | Crashed, has_run: bool, world_size: int) -> str:
    details = outcome.traceback if isinstance(outcome, Raised) else outcome.log_tail
    advice = NEXT[failure.reason].format("fewer ranks (--ranks) or " if world_size > 1 else "")
    return (
        f"{WHOSE[failure.role].format(outcome.rank)} failed, so the submission is not judged: {outcome.message}\n"
        f"{details}\n{MAY_BE_ITS if has_run else ''}Next: {advice}."
    )


def the_submissions(
    failure: RankFailure, plan: OpPlan, folder: Path, case: str, made_nbytes: int, has_run: bool
) -> Raised | Crashed | TimedOut:
    """The failure as the submission's outcome. `folder` is where ranks work; `made_nbytes`: of the case's input and
    output on a rank, 0 where it is not known; `has_run`: code of the submission's. Raises HarnessError where it is not
    the submission's, and OpponentFailed where it is the opponent's."""
    if not folder.is_dir():
        raise HarnessError(
            f"{folder} was removed while ranks ran in it; evaluate again, and keep what cleans up there away from it "
            "(TMPDIR names another place)"
        ) from None
    outcome = failure.outcome
    if failure.role == "baseline" and plan.opponent is not None:
        raise OpponentFailed(case, outcome) from None
    who = plan.submission.name if failure.role == "candidate" else ""
    plan.problem.check_failure(outcome.message, plan.device, plan.cuda_is_cpu, who)
    if failure.role != "candidate" and failure.reason == "device_memory":
        known = f"; an input and an output take {made_nbytes / 2**30:.1f} GiB, and the harness holds several copies"
        raise HarnessError(
            f"{case}: this shape does not fit here: {failure.role} rank {outcome.message}{known if made_nbytes else ''}"
            f"{'; the submission may hold memory too' if has_run else ''}"
        ) from None
    if failure.role != "candidate" and not isinstance(outcome, TimedOut):
        raise HarnessError(_trusted_failure(failure, outcome, has_run, plan.world_size)) from None
    if failure.reason == "device_memory":
        outcome = replace(outcome, message=outcome.message + BESIDE_IT)
    return _named(outcome, plan.submission)


def _named(outcome: Raised | Crashed | TimedOut, submission: Submission) -> Raised | Crashed | TimedOut:
    """With the user's own file in tracebacks and stacks: the staged copy is gone by the time that they are read."""
    names = {"submission.py": submission.name}
    names |= {f"{module.name.replace('.', '/')}.py": module.file for module in submission.modules}

    def shown(text: str) -> str:
        return STAGED.sub(lambda found: names.get(found[1], found[1]), text)

    if isinstance(outcome, Raised):
        return replace(outcome, traceback=shown(outcome.traceback))
    if isinstance(outcome, Crashed):
        return replace(outcome, log_tail=shown(outcome.log_tail))
    return replace(outcome, stacks=tuple(map(shown, outcome.stacks)))
