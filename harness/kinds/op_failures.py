"""Whose fault a rank's failure is: the submission's, or that of what judges it, which is told with what to do."""

import re
import sys

from harness.core.errors import HarnessError
from harness.core.records import Crashed, Raised, TimedOut
from harness.kinds.kind import OpponentFailed
from harness.kinds.plan import OpPlan
from harness.ranks import wire
from harness.ranks.failure import RankFailure

# What to do about a failed judge or reference, by what is found in its message; the last fits all.
TRUSTED_FAILURES = (
    (r"SIGKILL|OutOfMemory|out of memory|cannot allocate", "fewer ranks (--ranks) need less memory"),
    (r"No module named", f"install the missing package for {sys.executable}"),
    ("", "`python -m harness doctor --smoke` says whether ranks can run and talk here"),
)
WHOSE = {"trusted": "a judge (trusted rank {})", "baseline": "the reference (baseline rank {})"}
MAY_BE_ITS = (
    "The submission ran on this machine by then and may be the cause. If the reference evaluates by itself, it is: "
    "`python -m harness check` with the problem's reference.py as the submission.\n"
)


def _trusted_failure(role: wire.Role, outcome: Raised | Crashed, submission_has_run: bool) -> str:
    details = outcome.traceback if isinstance(outcome, Raised) else outcome.log_tail
    advice = next(advice for says, advice in TRUSTED_FAILURES if re.search(says, outcome.message))
    return (
        f"{WHOSE[role].format(outcome.rank)} failed, so the submission is not judged: {outcome.message}\n{details}\n"
        f"{MAY_BE_ITS if submission_has_run else ''}Next: {advice}."
    )


def the_submissions(
    failure: RankFailure, plan: OpPlan, case: str, made_nbytes: int, has_run: bool
) -> Raised | Crashed | TimedOut:
    """The failure as the submission's outcome. `made_nbytes`: of the case's input and output on a rank, 0 where it is
    not known; `has_run`: code of the submission's. Raises HarnessError where it is not the submission's, and
    OpponentFailed where it is the opponent's."""
    outcome = failure.outcome
    if failure.role == "baseline" and plan.opponent is not None:
        raise OpponentFailed(case, outcome) from None
    who = plan.submission.name if failure.role == "candidate" else ""
    plan.problem.check_failure(outcome.message, plan.device, plan.cuda_is_cpu, who)
    if failure.role != "candidate" and outcome.message.startswith(wire.OUT_OF_MEMORY):
        known = f"; an input and an output take {made_nbytes / 2**30:.1f} GiB, and are there several times"
        raise HarnessError(
            f"{case}: this shape does not fit here: {failure.role} rank {outcome.message}{known if made_nbytes else ''}"
            f"{'; the submission may hold memory too' if has_run else ''}"
        ) from None
    if failure.role != "candidate" and not isinstance(outcome, TimedOut):
        raise HarnessError(_trusted_failure(failure.role, outcome, has_run)) from None
    return outcome
