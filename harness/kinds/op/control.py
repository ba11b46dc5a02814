"""What becomes of an evaluation by ranks when one of them fails: the control run, and who is to blame.

A control run is the step in which a rank failed again, with the reference as the submission, in fresh processes. It
tells a submission that broke a judge from a problem or a machine on which the judge fails by itself.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from harness.core.errors import HarnessError, UsageError
from harness.core.records import Case, Crashed, Held, Measured, Raised, Submission, TimedOut, Verdicts
from harness.judging import verdict
from harness.kinds.kind import BROKE_ITS_JUDGE, OpponentFailed, Phase, Progress, Session, SubmissionFailed, Then
from harness.kinds.op import failures as op_failures
from harness.kinds.op.calls import Calls
from harness.kinds.op.plan import OpPlan
from harness.ranks.failure import RankFailure
from harness.ranks.launch import Launch, Ranks


@dataclass(frozen=True, kw_only=True)
class Step:
    """How far a session is: the phase, the case and its number `at`, and how many timed inputs were made before."""

    phase: Phase
    case: Case
    at: int
    inputs_timed: int
    then: Then = "check"


class Guarded(Session):
    """A session that knows its step, and repeats it with the reference as the submission if a rank fails in it."""

    launch: Launch
    ranks: Ranks
    calls: Calls

    plan: OpPlan

    def __init__(self, plan: OpPlan, progress: Progress) -> None:
        super().__init__(plan, progress)
        self.has_run = False  # code of the submission's or an opponent's
        self.has_timed = False  # a case that the submission was right in
        self.phase_now: Phase
        self.step: Step | None = None  # None before the first case
        self.checked = 0  # cases

    def control_plan(self, opponent: Submission | None) -> OpPlan:
        return replace(self.plan, is_control=True, opponent=opponent)

    def against_reference(self) -> OpPlan:
        """The plan with the reference in the opponent's place."""
        return replace(self.plan, opponent=None)

    def begin(self, case: Case) -> None:
        self.calls.at = self.checked
        self.step = Step(phase=self.phase_now, case=case, at=self.checked, inputs_timed=self.calls.inputs_timed)
        self.checked += 1

    def goes_on(self, then: Then) -> None:
        """The case that was just checked goes on with that."""
        assert self.step is not None, "a case is checked first"
        self.has_timed = True
        self.step = replace(self.step, then=then)

    def check(self, case: Case) -> Verdicts | None:
        with self.guarded():
            self.begin(case)
            return self.checked_case(case)

    def measure(self, case: Case) -> Measured:
        self.goes_on("measure")
        with self.guarded():
            return self.measured_case(case)

    def checked_case(self, case: Case) -> Verdicts | None:
        """As Session.check, guarded."""
        raise NotImplementedError

    def measured_case(self, case: Case) -> Measured:
        """As Session.measure, guarded."""
        raise NotImplementedError

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Raises SubmissionFailed where a rank fails within by the submission's fault, else HarnessError."""
        try:
            yield
        except RankFailure as failure:
            self.ranks.check_zygotes()
            if not self.launch.folder.is_dir():
                raise HarnessError(
                    f"{self.launch.folder} was removed while ranks ran in it; evaluate again, and keep what cleans up "
                    "there away from it (TMPDIR names another place)"
                ) from None
            found = self._decided(failure)
            if isinstance(found, TimedOut):
                found = replace(found, message=f"{found.message}; {self.calls.phase.told()}")
            raise SubmissionFailed(found) from None

    def _decided(self, failure: RankFailure) -> Raised | Crashed | TimedOut | Held:
        made = max((rank.inputs[0].nbytes + rank.output_limit for rank in self.calls.made), default=0)
        cases = [case for phase in self.plan.phases for case in phase.cases]
        case = cases[min(self.calls.at, len(cases) - 1)]
        where, phase = f"{case.kind} {case.label}", self.calls.phase
        if failure.role == "trusted" and isinstance(failure.outcome, TimedOut) and phase.judges_s <= 0:
            raise HarnessError(
                f"{failure.outcome.message} at {where}, while inputs were made or outputs judged ({phase.told()}); the "
                "submission is not to blame. Next: evaluate again when the machine has less to do, or with a longer "
                "--timeout"
            )
        if self.plan.opponent is not None:
            failure = op_failures.by_the_slowest(failure, self.calls.waited_s())
        if failure.role == "candidate" and failure.reason in op_failures.SHARED and not self.plan.is_control:
            self._check_shared(where, op_failures.SHARED[failure.reason])
            if failure.reason == "files" and self.plan.opponent is not None:  # no file by itself comes to that
                raise HarnessError(f"{failure.outcome.message}; {op_failures.NEITHER}") from None
        # A trusted process that only raises has not been reached before it has read an output.
        reached = self.has_run if failure.role == "baseline" or failure.reason else self.calls.has_read
        may_be_its = reached and not self.plan.is_control
        return op_failures.decided(
            failure, self.plan, where, made, may_be_its, self.has_timed, control=self._control, breaks=self._breaks
        )

    def _check_shared(self, case: str, advice: str) -> None:
        """Raises UsageError, with that advice, if the reference in the submission's place lacks memory, say, too: the
        machine's lack. Raises OpponentFailed if it only does so beside an opponent."""
        if self.plan.nodes > 1 or not (why := self._control(self.plan.opponent)):
            return
        if self.plan.opponent is not None and not self._control(None):
            taken = Crashed(rank=0, message=f"beside it, the reference fails too: {why}", log_tail="")
            raise OpponentFailed(case, taken)
        raise UsageError(f"{why} (with the reference as the submission, too). Next: {advice}")

    def _control(self, opponent: Submission | None) -> str:
        """Ends this session's ranks and repeats its step with the reference as the submission, against that opponent.
        Why that fails too, in a line, or "": it passes. Raises HarnessError where ranks are on several nodes."""
        if self.plan.nodes > 1:
            raise HarnessError(
                "a judge or the reference failed, and over several nodes no control run says whether the submission is "
                "the cause; evaluate the problem's reference.py as the submission: if that passes, it is"
            )
        self.progress.note("repeats the step with the reference as the submission, to see whose failure it is")
        try:
            self._repeat(self.control_plan(opponent))
        except OpponentFailed:
            return "the opponent fails"
        except UsageError as error:
            return str(error)
        except SubmissionFailed as failed:
            return "" if isinstance(failed.outcome, Held) else verdict.message(failed.outcome)
        return ""

    def _breaks(self) -> str:
        """The same with the submission, against the reference: how it breaks that, or ""."""
        self.progress.note("repeats the step with the reference as the opponent, to see whose failure it is")
        try:
            self._repeat(self.against_reference())
        except SubmissionFailed as failed:
            outcome = failed.outcome
            is_its = isinstance(outcome, TimedOut) or getattr(outcome, "check", "") == BROKE_ITS_JUDGE
            return verdict.message(outcome) if is_its else ""
        except UsageError:  # the reference fails by itself
            return ""
        return ""

    def _repeat(self, plan: OpPlan) -> None:
        self.ranks.end()
        control = type(self)(plan, self.progress)
        with control.running():
            control.repeat(self.step)

    def repeat(self, step: Step | None) -> None:
        """Does that step of another session, on the same inputs; None: what comes before the first case."""
        self.prepare()
        if step is None:
            return
        self.checked, self.calls.inputs_timed = step.at, step.inputs_timed
        with self.phase(step.phase):
            self.check(step.case)
            if step.then == "measure":
                self.measure(step.case)
            elif step.then == "profile":
                self.profile(step.case)
