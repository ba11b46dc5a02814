"""The control run: a step of an evaluation again, with the reference as the submission, in fresh processes.

It tells a submission that broke a judge from a problem or a machine on which the judge fails by itself.
"""

import contextlib
from dataclasses import dataclass
from typing import Literal, Protocol, Self

from harness.core.errors import HarnessError, UsageError
from harness.core.records import Case, Failure, Held, Measured, NotRun, Passed, Profile, Submission
from harness.judging import verdict
from harness.kinds.kind import Checked, OpponentFailed, Phase, Progress
from harness.kinds.op_calls import Calls
from harness.kinds.plan import OpPlan
from harness.ranks.launch import Ranks

Then = Literal["check", "measure", "profile"]


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a session was doing: the case number `at`, with so many inputs of timed calls made before it, in a phase."""

    phase: Phase
    case: Case
    at: int
    inputs_timed: int
    then: Then = "check"


class Repeating(Protocol):
    """What a control run needs of a session, which it makes another one like."""

    plan: OpPlan
    progress: Progress
    ranks: Ranks
    calls: Calls
    checked: int
    step: Step | None

    def running(self) -> contextlib.AbstractContextManager[None]: ...
    def control_plan(self, opponent: Submission | None) -> OpPlan: ...
    def prepare(self) -> Passed | Failure: ...
    def phase(self, phase: Phase) -> contextlib.AbstractContextManager[None]: ...
    def check(self, case: Case) -> Checked: ...
    def measure(self, case: Case) -> Measured | Failure: ...
    def profile(self, case: Case) -> Profile | Failure: ...
    def like_this(self, plan: OpPlan) -> Self: ...


def control(session: Repeating, opponent: Submission | None) -> str:
    """Ends the session's ranks and repeats its step with the reference as the submission, against that opponent. Why
    that fails too, in a line, or "": it passes. Raises HarnessError where ranks are on several nodes."""
    if session.plan.nodes > 1:
        raise HarnessError(
            "a judge or the reference failed, and over several nodes no control run says whether the submission is the "
            "cause; evaluate the problem's reference.py as the submission: if that passes, it is"
        )
    session.progress.note("a judge or the reference failed: repeats the step with the reference as the submission")
    session.ranks.end()
    again = session.like_this(session.control_plan(opponent))
    try:
        with again.running():
            found = _repeated(again, session.step)
    except OpponentFailed:
        return "the opponent fails"
    except UsageError as error:
        return str(error)
    return "" if isinstance(found, Passed | Measured | Profile | Held) else verdict.message(found)


def _repeated(session: Repeating, step: Step | None) -> Passed | Measured | Profile | Failure | NotRun:
    """Does that step of another session, on the same inputs; None: what comes before the first case."""
    found: Passed | Measured | Profile | Failure | NotRun = session.prepare()
    if step is None or not isinstance(found, Passed):
        return found
    session.checked, session.calls.inputs_timed = step.at, step.inputs_timed
    with session.phase(step.phase):
        found = session.check(step.case).outcome
        if isinstance(found, Passed) and step.then == "measure":
            return session.measure(step.case)
        return session.profile(step.case) if isinstance(found, Passed) and step.then == "profile" else found
