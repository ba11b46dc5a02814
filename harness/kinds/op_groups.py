"""The three groups of ranks of one evaluation, and whose turn it is: process groups, deadlines, rest, memory.

What the groups do on their turns is in kinds.op_calls.
"""

import time

from harness.judging.checkers import CHECKERS
from harness.kinds.op_deadline import Deadline
from harness.kinds.plan import OpPlan
from harness.ranks import wire
from harness.ranks.group import Group
from harness.ranks.launch import Ranks, free_port


class Groups:
    """`phase` is the running phase's deadline. `has_read`: whether trusted ranks have read any output of a candidate or
    an opponent."""

    def __init__(self, plan: OpPlan, ranks: Ranks) -> None:
        self.plan = plan
        self.trusted, self.baseline, self.candidate = ranks.trusted, ranks.baseline, ranks.candidate
        self.phase = Deadline(0.0)
        self.has_read = False
        self.has_files = plan.device == "cpu"  # each input and output is in a file of its own
        self.rested: list[Group] = []  # that gave memory back
        self.ahead = 0  # calls in its process group by which the candidate is ahead, until both are timed
        self._opened = 0
        self.at = 0  # the number of the case that runs, among all

    @property
    def opened(self) -> int:
        """How many process groups these ranks have been given."""
        return self._opened

    def go_on(self, opened: int) -> None:
        """The trusted and baseline ranks have had so many process groups already: each has a number of its own."""
        self._opened = opened

    @property
    def deadline(self) -> float:
        """Monotonic seconds, when the phase has to be over."""
        return self.phase.at_s

    def share_s(self) -> float:
        """The seconds that the phase has left for each case to come, the running one among them."""
        cases = sum(len(phase.cases) for phase in self.plan.phases)
        return max(0.0, self.phase.last_s - time.monotonic()) / max(1, cases - self.at)

    def begin(self, limit_s: float) -> None:
        """A phase begins."""
        self.phase = Deadline(limit_s, CHECKERS[self.plan.checker].longest)

    def open(self, *groups: Group) -> None:
        """Gives each group's ranks a new process group, in place of what they have; all groups at the same time. A
        problem for one GPU has none, which saves NCCL's start; its peaks are measured with one."""
        self.ahead = 0
        problem = self.plan.problem
        if not problem.multi_gpu:
            groups = tuple(group for group in groups if group is self.trusted and problem.cost_of is not None)
        for group in groups:
            self._opened += 1
            group.send(wire.CloseGroup())
            group.send(wire.OpenGroup(number=self._opened, free_port=free_port()))
        for group in groups:
            group.gather(wire.Done, self.deadline)
            group.gather(wire.Done, self.deadline)

    def reads_of(self, group: Group) -> None:
        """Trusted ranks read outputs of that group."""
        self.has_read = self.has_read or group is self.candidate or self.plan.opponent is not None

    def freeze(self, *groups: Group) -> None:
        """These are not on turn. Groups on AMD's GPUs and on several nodes' are not frozen: that has not been tried."""
        if self.plan.device == "cpu" or self.plan.is_stepped:
            for group in groups:
                group.freeze()

    def peak_of(self, group: Group) -> int:
        """The most memory, in bytes, that a rank of the group has had so far."""
        return max(told.peak_bytes for told in group.ask(wire.TellMemory(), wire.MemoryTold, self.deadline))

    def peaks_of_all(self) -> dict[str, int]:
        """The same of every group, by its name."""
        groups = {"trusted": self.trusted, "baseline": self.baseline, "candidate": self.candidate}
        return {name: self.peak_of(group) for name, group in groups.items()}

    def memory_of(self, group: Group) -> int:
        """The device memory, in bytes, that a rank of the group had at most during its last watched call; 0 on CPUs."""
        return max(told.call_bytes for told in group.ask(wire.TellMemory(), wire.MemoryTold, self.deadline))

    def regain(self, group: Group) -> None:
        """The group gets back as much memory as it gave back when it rested."""
        if group in self.rested:
            self.rested.remove(group)
            group.ask(wire.Regain(), wire.Done, self.deadline)

    def rest(self, group: Group) -> None:
        """The group is not on turn: what it keeps of its devices is somebody else's, if it is much; and it does not
        run."""
        if group.kept_bytes > wire.KEPT_BYTES:
            group.ask(wire.Yield(), wire.Done, self.deadline)
            self.rested.append(group)
        self.freeze(group)
