"""One group of ranks, as the parent commands it: it sends commands and gathers replies.

Knows nothing of how the processes are started and ended (launch.py), nor of problems and verdicts, nor torch.
"""

import os
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from harness.core.decode import part
from harness.core.records import Clock
from harness.process import usage
from harness.ranks import channel, failure, node_clock, wire
from harness.ranks.barrier import Barrier
from harness.ranks.rank import Rank
from harness.ranks.watch import Processes, RanksWatch

LOOK_S = 0.01  # while the parent waits at the barrier: how often it looks whether a rank has failed
LEAD_S = 0.002  # on the device's clock: what hosts need to submit a call's work behind the wait; 5 to 20 times that
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Late:
    """A rank that is let into a call later than the others, by `hold_s`: into number `at` of several."""

    rank: int
    hold_s: float
    at: int = 0


@dataclass(frozen=True, kw_only=True)
class CallOrder:
    """Calls of the kernel on these inputs (-1: none, an empty call), one after the other, on all ranks of a group.

    `keys`: of masked inputs, which ranks get when all are done with the call before. `gated`: there is one call, and
    its input comes in `files`, one a rank, when all ranks wait at the barrier; without files it is an empty call, or
    another one on the last input. `idle`: a gated call without the kernel (see wire.Call)."""

    indices: Sequence[int]
    clock: Clock = "wall"
    late: Late | None = None
    keys: Sequence[int] = ()
    gated: bool = False
    files: Sequence[int] = ()
    output_limit: int = 0
    idle: bool = False


class Group:
    """One group of running ranks, on so many nodes.

    `excess_bytes`: the device memory that a rank reports to hold, where it is more than it may keep. About the last
    call: `opened_ns` is when the parent let it begin (CLOCK_MONOTONIC), and `early` are the ranks that had finished
    before the late rank was let in. `told_ns` is as in Turn, for calls on masked inputs.
    """

    def __init__(self, processes: Processes, role: wire.Role, barrier: Barrier, nodes: int = 1) -> None:
        self.processes, self.role, self.barrier = processes, role, barrier
        self.nodes = nodes
        self.members = processes.ranks[role]
        self.watch = RanksWatch(processes, role)
        self.epoch = 0
        self.excess_bytes = 0
        self.opened_ns = 0
        self.told_ns: Sequence[int] = ()
        self.early: Collection[int] = ()

    def send(self, commands: wire.Command | Sequence[wire.Command], files: Sequence[Sequence[int]] = ()) -> None:
        """Sends the command (one for all, or one for each rank), with each rank's files. Ranks carry out their commands
        in the order sent. A frozen group goes on."""
        each = commands if isinstance(commands, Sequence) else [commands] * len(self.members)
        self._send(zip(self.members, each, files or [()] * len(self.members), strict=True))

    def _send(self, commands: Iterable[tuple[Rank, wire.Command, Sequence[int]]]) -> None:
        self.processes.thaw(self.role)
        for rank, command, files in commands:
            with rank.sending():
                if files:
                    channel.send_files(rank.sock, files)
                rank.sock.sendall(channel.frame(command))

    def ask(self, commands: wire.Command | Sequence[wire.Command], reply: type[R], deadline: float) -> list[R]:
        """Sends the commands, then gathers a reply of each rank. Raises what `gather` does."""
        self.send(commands)
        return self.gather(reply, deadline)

    def take_files(self, count: int) -> list[list[int]]:
        """The files that each rank has sent with its last reply, by rank; they are the caller's to close. Raises
        RankFailure where a rank has sent another number of them."""
        taken = [rank.take_files() for rank in self.members]
        for rank, files in zip(self.members, taken, strict=True):
            if len(files) != count:
                close(taken)
                raise failure.crashed(rank, f"sent {len(files)} files where {count} were due")
        return taken

    def resident_bytes(self) -> list[int]:
        """The most memory that each rank's process has had resident, by rank, as this machine's kernel counts it."""
        return [usage.peak_resident(rank.pid) for rank in self.members]

    def sealed_ns(self) -> int:
        """When all these files had come and could not be changed any more."""
        return max(rank.sealed_ns for rank in self.members)

    def freeze(self) -> None:
        """None of the group's processes gets a core any more until the next `send`."""
        self.processes.freeze(self.role)

    def call(self, order: CallOrder, deadline: float) -> list[list[wire.CallSample]]:
        """Makes these calls. All ranks leave the barrier together, except a late one. Returns each call's samples by
        rank."""
        self.processes.wait_frozen()
        close(rank.take_files() for rank in self.members)  # that nobody asked for
        command = part(order, wire.Call, indices=tuple(order.indices), epoch=self.epoch + 1)
        self.epoch += len(order.indices)
        self.told_ns = ()
        late, run = order.late, self._gated if order.gated else self._masked if order.keys else self._ready
        let_in_ns = run(command, order, deadline)
        called = self._called(len(order.indices), deadline)
        if self.nodes > 1:
            called = node_clock.aligned(called, self.nodes, self.told_ns[:-1] or [self.opened_ns])
        elif late is not None:  # as they say themselves, by the clock that is this process's too
            ends_ns = [call.end_ns for call in called[late.at]]
            self.early = {*self.early, *(rank for rank, end_ns in enumerate(ends_ns) if end_ns < let_in_ns)}
        return called

    def _gated(self, command: wire.Call, order: CallOrder, deadline: float) -> int:
        """Lets ranks call whose input comes at the gate; returns when the late one is let in."""
        late = order.late
        self.send(command)
        self.gather(wire.AtBarrier, deadline)
        if late is not None:
            self.barrier.stand_in(late.rank, command.epoch)
        let_in_ns = self.opened_ns = time.monotonic_ns()
        self._open(self._all_but(late), order.files)
        if late is not None:
            let_in_ns = self._hold(late, command.epoch, deadline)
            self._open([self.members[late.rank]], order.files)
        look = time.monotonic() + LOOK_S
        with self.watch.waiting():
            while order.files and not all(rank.files for rank in self.members):  # nothing else is looked at meanwhile
                self.processes.poll(LOOK_S)
                if time.monotonic() > look:
                    self.watch.check_all(deadline, self.members)
                    look = time.monotonic() + LOOK_S
        return let_in_ns

    def _open(self, members: Iterable[Rank], files: Sequence[int]) -> None:
        for rank in members:
            with rank.sending():
                channel.send_files(rank.sock, [files[rank.rank]] if files else ())

    def _masked(self, command: wire.Call, order: CallOrder, deadline: float) -> int:
        """Runs a burst on ranks that already hold masked inputs: the key of call k is told when all ranks have finished
        call k-1. Returns when the late rank was let in (ns, CLOCK_MONOTONIC; 0 if none is late)."""
        let_in_ns, late, keys = 0, order.late, order.keys
        everyone = range(len(self.members))
        self.send(command)
        self.barrier.tell(everyone, command.epoch, keys[0])
        self.gather(wire.AtBarrier, deadline)
        self.opened_ns = time.monotonic_ns()
        told_ns = [self.opened_ns]
        self.barrier.release(command.epoch)
        for at, key in enumerate(keys[1:], start=1):
            epoch = command.epoch + at
            self._finished(epoch - 1, deadline)
            told_ns.append(time.monotonic_ns())
            if late is not None and late.at == at:
                self.barrier.stand_in(late.rank, epoch)
                self.barrier.tell((rank.rank for rank in self._all_but(late)), epoch, key)
                let_in_ns = self._hold(late, epoch, deadline)
                self.barrier.tell([late.rank], epoch, key)
            else:
                self.barrier.tell(everyone, epoch, key)
        self._finished(command.epoch + len(keys) - 1, deadline)
        self.told_ns = [*told_ns, time.monotonic_ns()]
        return let_in_ns

    def _ready(self, command: wire.Call, order: CallOrder, deadline: float) -> int:
        """Lets ranks call that hold plain inputs; returns when the late one was let in (ns, CLOCK_MONOTONIC)."""
        late, others = order.late, self._all_but(order.late)
        self._send((rank, command, ()) for rank in others)
        self.watch.gather(others, wire.AtBarrier, deadline)
        time.sleep(LEAD_S if order.clock == "device" else 0.0)
        self.opened_ns = time.monotonic_ns()
        self.barrier.release(command.epoch)
        if late is None:
            return self.opened_ns
        let_in_ns = self._hold(late, command.epoch, deadline)
        self._send([(self.members[late.rank], command, ())])
        self.watch.gather([self.members[late.rank]], wire.AtBarrier, deadline)
        return let_in_ns

    def _all_but(self, late: Late | None) -> list[Rank]:
        return [rank for rank in self.members if late is None or rank.rank != late.rank]

    def _hold(self, late: Late, epoch: int, deadline: float) -> int:
        """Waits while the late rank is kept out; returns when it may be let in (CLOCK_MONOTONIC)."""
        others = self._all_but(late)
        self.watch.wait(late.hold_s, deadline, others)
        self.early = {*self.barrier.finished(epoch), *(rank.rank for rank in others if rank.inbox)}
        return time.monotonic_ns()

    def _finished(self, epoch: int, deadline: float) -> None:
        """Returns as soon as all ranks have finished `epoch`; raises as `gather` does."""
        look = time.monotonic() + LOOK_S
        self.watch.begin()
        with self.watch.waiting():
            while not self.barrier.all_finished(epoch):
                if time.monotonic() > look:
                    self.processes.poll(0)
                    self.watch.check_all(deadline, self.members)
                    look = time.monotonic() + LOOK_S

    def _called(self, count: int, deadline: float) -> list[list[wire.CallSample]]:
        called = self.gather(wire.Called, deadline)
        for rank, reply in zip(self.members, called, strict=True):
            if len(reply.samples) != count:
                raise failure.crashed(rank, f"sent {len(reply.samples)} samples of {count} calls")
        self.excess_bytes = max(reply.excess_bytes for reply in called)
        return [list(samples) for samples in zip(*(reply.samples for reply in called), strict=True)]

    def gather(self, reply: type[R], deadline: float) -> list[R]:
        """Every rank's next reply, by rank. Raises RankFailure if any group's rank raises or ends, or at `deadline`."""
        return self.watch.gather(self.members, reply, deadline)


def close(files: Iterable[Iterable[int]]) -> None:
    """Closes these file descriptors of ours."""
    for fd in (fd for each in files for fd in each):
        os.close(fd)
