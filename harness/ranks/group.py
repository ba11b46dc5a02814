"""One group of ranks, as the parent commands it: it sends commands, gathers replies, and notices failures.

Knows nothing of how the processes are started and ended (launch.py), nor of problems, verdicts or statistics. Never
imports torch.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn, Protocol, TypeVar

from harness.core.records import Clock
from harness.machine import host
from harness.ranks import failure, wire
from harness.ranks.barrier import Barrier
from harness.ranks.rank import Rank

GRACE_S = 0.5  # after the first rank raised, for the others to say what they have to say
STACKS_S = 0.5  # at a deadline, for ranks to write their stacks
LOOK_S = 0.01  # while the parent waits at the barrier: how often it looks whether a rank has failed
SEND_S = 30.0  # for a rank to take a command in
R = TypeVar("R")


class Group(Protocol):
    """What an evaluation needs of a group of ranks; tests have a fake. `kept_bytes`: device memory that a rank of it
    holds for later calls, as they say themselves."""

    kept_bytes: int

    def send(self, commands: wire.Command | Sequence[wire.Command]) -> None:
        """Sends the command (one for all, or one for each rank). Ranks carry out their commands in the order sent."""

    def gather(self, reply: type[R], deadline: float) -> list[R]:
        """Every rank's next reply, by rank. Raises RankFailure when a rank of any group raises or ends, or when
        `deadline` (of time.monotonic()) passes."""

    def ask(self, commands: wire.Command | Sequence[wire.Command], reply: type[R], deadline: float) -> list[R]:
        """`send`, then `gather`."""

    def call(
        self, indices: Sequence[int], clock: Clock, deadline: float, lead_s: float = 0.0, keys: Sequence[int] = ()
    ) -> list[list[wire.CallSample]]:
        """Calls the kernel on these inputs, one after the other, on all ranks. All ranks leave the barrier together.
        `lead_s` passes between the arrival of the last rank and the first release: hosts need that time to submit work
        that waits on the devices. `keys` has a key for each masked input, which ranks get when all are done with the
        call before. Returns each call's samples by rank."""

    def busy_us(self) -> float:
        """The CPU time that the group's processes have had so far, including those that the submission started."""

    def call_late(
        self, late: int, index: int, hold_s: float, deadline: float
    ) -> tuple[list[wire.CallSample], list[int]]:
        """One call that rank `late` enters `hold_s` after the others. Returns the samples by rank, and the ranks that
        finished before it entered."""


class Processes(Protocol):
    """The running ranks of all groups; launch.Ranks is it."""

    @property
    def ranks(self) -> Mapping[wire.Role, Sequence[Rank]]:
        """The ranks of each group, by rank."""

    def all_ranks(self) -> list[Rank]:
        """The ranks of all groups."""

    def poll(self, timeout_s: float) -> None:
        """Takes in whatever has arrived, waiting at most `timeout_s` for something."""


class RankGroup:
    """One group of running ranks; see Group."""

    def __init__(self, processes: Processes, role: wire.Role, barrier: Barrier) -> None:
        self.processes, self.role, self.barrier = processes, role, barrier
        self.members = processes.ranks[role]
        self.epoch = 0
        self.kept_bytes = 0

    def send(self, commands: wire.Command | Sequence[wire.Command]) -> None:
        each = commands if isinstance(commands, Sequence) else [commands] * len(self.members)
        self._send(zip(self.members, each, strict=True))

    def _send(self, commands: Iterable[tuple[Rank, wire.Command]]) -> None:
        for rank, command in commands:
            with contextlib.suppress(ConnectionError, TimeoutError):  # it is gone, or stopped; gather will tell
                rank.sock.settimeout(SEND_S)  # commands are small, a rank that obeys takes them at once
                rank.sock.sendall(wire.frame(command))
                rank.sock.setblocking(False)

    def ask(self, commands: wire.Command | Sequence[wire.Command], reply: type[R], deadline: float) -> list[R]:
        self.send(commands)
        return self.gather(reply, deadline)

    def call(
        self, indices: Sequence[int], clock: Clock, deadline: float, lead_s: float = 0.0, keys: Sequence[int] = ()
    ) -> list[list[wire.CallSample]]:
        epoch = self.epoch + 1
        self.epoch += len(indices)
        self.send(wire.Call(indices=tuple(indices), epoch=epoch, clock=clock))
        if keys:
            self.barrier.tell(epoch, keys[0])
        self.gather(wire.AtBarrier, deadline)
        time.sleep(lead_s)
        self.barrier.release(epoch)
        for number, key in enumerate(keys[1:], start=epoch + 1):
            self._finished(number - 1, deadline)
            self.barrier.tell(number, key)
        return self._called(len(indices), deadline)

    def busy_us(self) -> float:
        return host.busy_us(host.parent_of(self.members[0].pid))  # the cell that its ranks are forked from

    def call_late(
        self, late: int, index: int, hold_s: float, deadline: float
    ) -> tuple[list[wire.CallSample], list[int]]:
        self.epoch += 1
        command = wire.Call(indices=(index,), epoch=self.epoch, clock="wall")
        others = [rank for rank in self.members if rank.rank != late]
        self._send((rank, command) for rank in others)
        self._gather(others, wire.AtBarrier, deadline)
        self.barrier.release(self.epoch)
        until = time.monotonic() + hold_s
        while (now := time.monotonic()) < until:
            self._check_all(deadline, others)
            self.processes.poll(until - now)
        finished = {*self.barrier.finished(self.epoch), *(rank.rank for rank in others if rank.inbox)}
        let_in_ns = time.monotonic_ns()
        self._send([(self.members[late], command)])
        self._gather([self.members[late]], wire.AtBarrier, deadline)
        called = self._called(1, deadline)[0]
        finished |= {rank for rank, call in enumerate(called) if call.end_ns < let_in_ns}  # as it says itself
        return called, sorted(finished)

    def _finished(self, epoch: int, deadline: float) -> None:
        """Returns as soon as all ranks have finished `epoch`; raises as `gather` does."""
        look = time.monotonic() + LOOK_S
        while not self.barrier.all_finished(epoch):
            if time.monotonic() > look:
                self.processes.poll(0)
                self._check_all(deadline, self.members)
                look = time.monotonic() + LOOK_S

    def _called(self, count: int, deadline: float) -> list[list[wire.CallSample]]:
        called = self.gather(wire.Called, deadline)
        for rank, reply in zip(self.members, called, strict=True):
            if len(reply.samples) != count:
                raise failure.crashed(rank, f"sent {len(reply.samples)} samples of {count} calls")
        self.kept_bytes = max(reply.kept_bytes for reply in called)
        return [list(samples) for samples in zip(*(reply.samples for reply in called), strict=True)]

    def gather(self, reply: type[R], deadline: float) -> list[R]:
        return self._gather(self.members, reply, deadline)

    def _gather(self, members: Sequence[Rank], reply: type[R], deadline: float) -> list[R]:
        while True:
            waiting = [rank for rank in members if not rank.inbox]
            self._check_all(deadline, waiting)
            if not waiting:
                break
            self.processes.poll(deadline - time.monotonic())
        replies = [rank.inbox.popleft() for rank in members]
        for rank, received in zip(members, replies, strict=True):
            if not isinstance(received, reply):
                raise failure.crashed(rank, f"sent '{received.type}' where '{reply.__name__}' was due")
        return replies  # type: ignore[return-value]

    def _check_all(self, deadline: float, waiting: Sequence[Rank]) -> None:
        everyone = self.processes.all_ranks()
        for rank in everyone:
            if rank.gone and not any(isinstance(reply, wire.Failed) for reply in rank.inbox):
                self.processes.poll(0.05)  # its last words
                raise failure.crashed(rank, rank.gone)
        if any(isinstance(reply, wire.Failed) for rank in everyone for reply in rank.inbox):
            self._raised()
        if waiting and time.monotonic() > deadline:
            self._timed_out(waiting)

    def _raised(self) -> NoReturn:
        """One rank raised. The others are often stuck in a collective now: waits a little, not for all."""
        until = time.monotonic() + GRACE_S
        while time.monotonic() < until and not all(rank.inbox or rank.gone for rank in self.members):
            self.processes.poll(until - time.monotonic())
        for rank in self.members:
            if rank.gone:  # that one crashed, and the others lost their connection to it
                raise failure.crashed(rank, rank.gone)
        everyone = self.processes.all_ranks()
        raise failure.raised(
            [(rank, reply) for rank in everyone for reply in rank.inbox if isinstance(reply, wire.Failed)]
        )

    def _timed_out(self, waiting: Sequence[Rank]) -> NoReturn:
        marks = {rank: rank.log.total_bytes for rank in self.members}
        for rank in self.members:
            if not rank.pid:  # it has not been started yet
                continue
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(rank.pid, signal.SIGUSR1)  # faulthandler writes its Python stack into its log
        until = time.monotonic() + STACKS_S
        while time.monotonic() < until:
            self.processes.poll(until - time.monotonic())
        stacks = tuple(rank.log.text(marks[rank])[-failure.SHOWN_LOG_CHARS :] for rank in self.members)
        raise failure.timed_out(self.role, waiting, stacks)
