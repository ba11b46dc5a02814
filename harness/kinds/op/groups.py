"""The three groups of ranks of one evaluation, and whose turn it is: process groups, deadlines, rest, memory.

What the groups do on their turns is in kinds.op.calls.
"""

import contextlib
import time
from collections.abc import Callable, Iterator

from harness.core.records import Case, Failure
from harness.kinds.checkers import CHECKERS
from harness.kinds.kind import OpponentFailed, SubmissionFailed
from harness.kinds.op.plan import OpPlan
from harness.ranks import wire
from harness.ranks.group import Group
from harness.ranks.launch import Ranks, free_port

SHOWN_S = 0.1
MAKING, JUDGING = "making inputs", "judging"


class Deadline:
    """The deadlines of a phase: the submission's, `limit_s` seconds from now, and that of trusted ranks.

    The time that trusted ranks take to make inputs and judge outputs does not count towards `limit_s`, since neither a
    slow check nor a busy machine is the submission's doing. They have `judges_s` seconds of their own in the phase, so
    no phase takes longer than both together.
    """

    def __init__(self, limit_s: float, judges_s: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._limit_s = clock, limit_s
        self.at_s = clock() + limit_s  # of the clock
        self.judges_s = judges_s  # that trusted ranks have left
        self._spent_s: dict[str, float] = {}

    @property
    def judged_by_s(self) -> float:
        """The time of the clock at which inputs that are being made, or outputs that are being judged, are late."""
        return self._clock() + self.judges_s

    @contextlib.contextmanager
    def spent_on(self, what: str) -> Iterator[None]:
        began_s = self._clock()
        try:
            yield
        finally:
            took_s = self._clock() - began_s
            self._spent_s[what] = self._spent_s.get(what, 0.0) + took_s
            if what in (MAKING, JUDGING):
                self.at_s += took_s
                self.judges_s -= took_s

    def spent_s(self, what: str) -> float:
        return self._spent_s.get(what, 0.0)

    def told(self) -> str:
        """Where the time went, in words, the longest part first."""
        went = sorted(self._spent_s.items(), key=lambda item: -item[1])
        spent = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in went if seconds >= SHOWN_S)
        limit = f"the phase's limit is {self._limit_s:g} s without {MAKING} and {JUDGING}"
        return f"{limit}{f', and its time went to: {spent}' if spent else ''}"


class Groups:
    """`phase` is the running phase's deadline. `rivals` are the groups that run a submission: the candidate, and with
    an opponent the baseline. Rivals are called, judged, probed and held alike, in an order that the secret decides, so
    that no rank can tell whether it plays the candidate or the baseline. `has_read`: whether trusted ranks have read
    any output of theirs."""

    def __init__(self, plan: OpPlan, ranks: Ranks) -> None:
        self.plan = plan
        self.trusted, self.baseline, self.candidate = ranks.trusted, ranks.baseline, ranks.candidate
        self.rivals = (self.candidate, *([self.baseline] if plan.opponent is not None else []))
        # Make the idle calls. An opponent's ranks would not be trusted with them.
        self.idlers = self.baseline if plan.opponent is None else self.trusted
        self.phase = Deadline(0.0)
        self.has_read = False
        self.has_files = plan.device == "cpu"  # each input and output is in a file of its own
        self.rested: list[Group] = []  # that gave memory back
        self.ahead = 0  # calls in its process group by which the candidate is ahead, until both are timed
        self._opened = 0
        self.at = 0  # the number of the case that runs, among all

    def in_order(self, *place: int | str) -> tuple[Group, ...]:
        """The rivals, in an order that the secret decides for that place of the evaluation."""
        return self.rivals[::-1] if self.plan.seed("order", *place) % 2 else self.rivals

    def both(self, *place: int | str) -> tuple[Group, ...]:
        """Baseline and candidate, rivals as `in_order` has them."""
        return self.in_order(*place) if len(self.rivals) > 1 else (self.baseline, self.candidate)

    def baselines(self, *place: int | str) -> tuple[Group, ...]:
        """The baseline; if it is a rival, both, as `in_order` has them: what is done to one is done to the other."""
        return self.in_order(*place) if len(self.rivals) > 1 else (self.baseline,)

    def blamed(self, group: Group, case: Case, failure: Failure) -> SubmissionFailed | OpponentFailed:
        """What is to be raised for that failure, of the candidate or of an opponent."""
        if group is self.candidate:
            return SubmissionFailed(failure)
        return OpponentFailed(f"{case.kind} {case.label}", failure)

    @property
    def deadline(self) -> float:
        """Monotonic seconds, when the phase has to be over."""
        return self.phase.at_s

    def share_s(self) -> float:
        """The seconds that trusted ranks have left in the phase for each case to come, the running one among them."""
        cases = sum(len(phase.cases) for phase in self.plan.phases)
        return max(0.0, self.phase.judges_s) / max(1, cases - self.at)

    def begin(self, limit_s: float) -> None:
        self.phase = Deadline(limit_s, limit_s * CHECKERS[self.plan.checker].judges)
        for group in self.rivals:
            group.watch.waited_s = 0.0

    def waited_s(self) -> dict[wire.Role, float]:
        """How long was waited in the phase for each rival."""
        return {one.role: one.watch.waited_s for one in self.rivals}

    def open(self, *groups: Group) -> None:
        """Gives each group's ranks a new process group in place of their old one; all groups at the same time. A
        problem for one GPU has none, which saves NCCL's start; its peaks are measured with one."""
        self.ahead = 0
        problem = self.plan.problem
        if not problem.multi_gpu:
            groups = tuple(group for group in groups if group is self.trusted and problem.cost_of is not None)
        self._opened += 1
        for group in groups:
            group.send(wire.Do(what="close_group"))
            group.send(wire.OpenGroup(number=self._opened, free_port=free_port()))
        for group in groups:
            group.gather(wire.Done, self.deadline)
            group.gather(wire.Done, self.deadline)

    def reads_of(self, group: Group) -> None:
        """Trusted ranks read outputs of that group."""
        self.has_read = self.has_read or group is self.candidate or self.plan.opponent is not None

    def is_judged(self, group: Group) -> bool:
        return group in self.rivals or CHECKERS[self.plan.checker].judges_baseline

    def name_of(self, group: Group) -> str:
        return {self.candidate: "the submission", self.baseline: self.plan.baseline_name}.get(group, "trusted ranks")

    def freeze(self, *groups: Group) -> None:
        """Stops groups that are not on turn. Not tried on AMD's GPUs and on several nodes: those are not stopped."""
        if self.plan.device == "cpu" or self.plan.is_stepped:
            for group in groups:
                if group is not self.trusted:  # it judges, and makes the idle calls of two rivals
                    group.freeze()

    def peak_of(self, group: Group) -> int:
        """The most memory, in bytes, that a rank of the group has had so far: resident, by the kernel. On GPUs
        and on several nodes ranks say it, so it is a claim."""
        if self.has_files and self.plan.nodes == 1:
            return max(group.resident_bytes())
        return max(told.peak_bytes for told in group.ask(wire.Do(what="tell_memory"), wire.MemoryTold, self.deadline))

    def memory_of(self, group: Group) -> int:
        """The device memory, in bytes, that a rank of the group had at most during its last watched call; 0 on CPUs."""
        return max(told.call_bytes for told in group.ask(wire.Do(what="tell_memory"), wire.MemoryTold, self.deadline))

    def regain(self, group: Group) -> None:
        """The group gets back as much memory as it gave back when it rested."""
        if group in self.rested:
            self.rested.remove(group)
            group.ask(wire.Do(what="regain"), wire.Done, self.deadline)

    def rest(self, group: Group) -> None:
        """Ends the group's turn: it gives back device memory if it holds more than it may keep, and is stopped."""
        if group.excess_bytes:
            # What trusted ranks have open of it stays taken, so they close it first: the group then waits until the
            # driver has cleared all that it gave back.
            self.trusted.ask(wire.Yield(), wire.Done, self.deadline)
            group.ask(wire.Yield(), wire.Done, self.deadline)
            self.rested.append(group)
        self.freeze(group)

    def stop(self, group: Group) -> None:
        """Ends the group's turn as `rest` does, and returns when all of its processes have stopped."""
        self.rest(group)
        group.processes.wait_frozen()
