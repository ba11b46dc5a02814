"""Waiting for a group's replies: notices when a rank of any group raises or ends, and when the deadline passes."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn, Protocol, TypeVar

from harness.core.words import IDLE, TAIL_CHARS
from harness.ranks import failure, idle, wire
from harness.ranks.rank import Rank

GRACE_S = 0.5  # after the first rank raised, for the others to say what they have to say
STACKS_S = 0.5  # at a deadline, for ranks to write their stacks
R = TypeVar("R")


class Processes(Protocol):
    """The running ranks of all groups, as groups and their watches see them: launch.Ranks, which makes groups."""

    @property
    def idle_s(self) -> float | None: ...
    @property
    def ranks(self) -> Mapping[wire.Role, Sequence[Rank]]: ...
    def all_ranks(self) -> list[Rank]: ...
    def freeze(self, role: wire.Role) -> None: ...
    def thaw(self, role: wire.Role) -> None: ...
    def show_stacks(self, role: wire.Role) -> None: ...
    def check_zygotes(self) -> None: ...
    def wait_frozen(self) -> None: ...
    def poll(self, timeout_s: float) -> None: ...


class RanksWatch:
    """The parent's watch over all ranks while it waits for those of one group."""

    def __init__(self, processes: Processes, role: wire.Role) -> None:
        self.processes, self.role, self.members = processes, role, processes.ranks[role]
        self.waited_s = 0.0  # for them, in the phase so far
        self._idleness = idle.Idleness()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Counts the time of this context as waited for the group."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.waited_s += time.monotonic() - began

    def begin(self) -> None:
        """Begins to wait for something else: how long ranks were idle before does not count."""
        self._idleness.begin()

    def gather(self, members: Sequence[Rank], reply: type[R], deadline: float) -> list[R]:
        """The next reply of each of these ranks. Raises RankFailure as Group.gather does."""
        self.begin()
        with self.waiting():
            while True:
                waiting = [rank for rank in members if not rank.inbox]
                self.check_all(deadline, waiting)
                if not waiting:
                    break
                self.processes.poll(min(deadline - time.monotonic(), idle.LOOK_S))
        replies = [rank.inbox.popleft() for rank in members]
        for rank, received in zip(members, replies, strict=True):
            if not isinstance(received, reply):
                raise failure.crashed(rank, f"sent '{received.type}' where '{reply.__name__}' was due")
        return replies  # type: ignore[return-value]

    def wait(self, seconds: float, deadline: float, members: Sequence[Rank]) -> None:
        """Waits so long while a rank is kept out of a call of these. Raises as `check_all` does."""
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            self.begin()  # they wait for the late one, as they should
            self.check_all(deadline, members)
            self.processes.poll(until - now)

    def check_all(self, deadline: float, waiting: Sequence[Rank]) -> None:
        """Raises RankFailure if a rank of any group has raised or ended, or these are too late, or do nothing."""
        everyone = self.processes.all_ranks()
        for rank in everyone:
            if rank.gone and not any(isinstance(reply, wire.Failed) for reply in rank.inbox):
                self.processes.poll(0.05)  # its last words
                raise failure.crashed(rank, rank.gone)
        if any(isinstance(reply, wire.Failed) for rank in everyone for reply in rank.inbox):
            self._raised()
        if waiting and time.monotonic() > deadline:
            self._timed_out(waiting)
        idle_s = self.processes.idle_s if self.role == "candidate" else None
        if waiting and idle_s is not None and self._idleness.seconds(self.members) >= idle_s:
            self._timed_out(waiting, f": its processes {IDLE} for {idle_s:g} s")

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

    def _timed_out(self, waiting: Sequence[Rank], why: str = "") -> NoReturn:
        self.processes.check_zygotes()
        self.processes.thaw(self.role)  # to tell where they are
        marks = {rank: rank.log.total_bytes for rank in self.members}
        self.processes.show_stacks(self.role)
        until = time.monotonic() + STACKS_S
        while time.monotonic() < until:
            self.processes.poll(until - time.monotonic())
        stacks = tuple(rank.log.text(marks[rank])[-TAIL_CHARS:] for rank in self.members)
        raise failure.timed_out(self.role, waiting, stacks, why)
