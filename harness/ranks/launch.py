"""The processes of all ranks: how they are started, watched and ended.

One thread and one selector: replies, printed text and ends of processes of all groups arrive in `poll`, so that a rank
that dies, floods its log or sends nonsense is noticed while the parent waits for any other. Leaving `Ranks` ends every
process below it. Never imports torch.
"""

import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType

from harness.core.errors import HarnessError
from harness.core.records import CheckerName
from harness.process import cgroup, sandbox
from harness.ranks import failure, wire
from harness.ranks.barrier import Barrier, make_barrier
from harness.ranks.group import Group, RankGroup
from harness.ranks.hearing import ENDED, Hearing
from harness.ranks.rank import Rank
from harness.ranks.watch import Watch
from harness.ranks.zygote_messages import Freeze, Retire, ShowStacks, Thaw
from harness.ranks.zygotes import ROLES, Zygotes

START_S = 120.0  # for ranks to start, from a cold disk, and for each further step before the first case
NO_ANSWER = "the process that ranks are forked from did not answer"
ASKS = "Was it stopped from outside? Is the machine out of memory?"
RETIRE_S = 10.0  # for a group's processes to end, which takes milliseconds
FROZEN_S = 10.0  # for all processes of a group to stop, which takes milliseconds


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How to start ranks. `cores[r]` are those of rank r of every group, or it is empty and all run anywhere.
    `folder` is theirs: each starts in `role/rank` below it. `caches` are for what compilers make, where a role has one
    that outlives the run. `hidden`, `checker`, `cuda_is_cpu`, `confined` and `kept_bytes` are as in wire.RankOrder;
    `judges` are folders that trusted ranks see and no others. `nodes` has a connection to the agent of each node that
    runs ranks; without, all run here."""

    world_size: int
    device: str
    threads: int
    cores: tuple[tuple[int, ...], ...] = ()
    spin: bool
    folder: Path
    caches: Mapping[wire.Role, Path] = field(default_factory=dict)
    hidden: tuple[Path, ...] = ()
    judges: tuple[Path, ...] = ()
    checker: CheckerName = "strict"
    cuda_is_cpu: bool = False
    confined: bool = True
    kept_bytes: int = wire.KEPT_BYTES
    nodes: tuple[socket.socket, ...] = ()

    @property
    def local_size(self) -> int:
        """How many ranks of a group a node runs."""
        return self.world_size // max(1, len(self.nodes))

    def workdir(self, role: wire.Role, rank: int) -> Path:
        """The folder that a rank starts in, its own."""
        return self.folder / role / str(rank)

    def order(self, role: wire.Role, rank: int, groups: tuple[str, ...] = ()) -> wire.RankOrder:
        """All that a rank gets at its start."""
        is_judge = role == "trusted"
        return wire.RankOrder(
            role=role,
            rank=rank,
            world_size=self.world_size,
            local_size=self.local_size,
            device=self.device,
            threads=self.threads,
            cores=self.cores[rank % self.local_size] if self.cores else (),
            spin=self.spin,
            workdir=str(self.workdir(role, rank)),
            cache=str(self.caches.get(role, self.folder / role / "cache")),
            hidden=tuple(map(str, self.hidden if is_judge else dict.fromkeys((*self.hidden, *self.judges)))),
            shown=tuple(map(str, self.judges)) if is_judge else (),
            checker=self.checker,
            cuda_is_cpu=self.cuda_is_cpu,
            confined=self.confined,
            kept_bytes=self.kept_bytes,
            groups=groups,
        )


class Ranks(Hearing):
    """All groups, as a context: entering starts zygotes and ranks, leaving ends every process below them.

    Raises HarnessError when they cannot be started, OSError where the machine has not even pipes or processes left.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        super().__init__(launch.world_size)
        self.freezes = 0
        self.bells: dict[wire.Role, int] = {}  # of the groups' barriers, where they have ranks on several nodes
        self.groups: dict[wire.Role, cgroup.Cgroup] = {}  # of ranks that nobody trusts, on this machine
        self.commanded: dict[wire.Role, Group] = {}
        self.zygotes = Zygotes()
        self.is_over = False

    def __enter__(self) -> "Ranks":
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """Ends every process below the zygotes, if that was not done yet."""
        if not self.is_over:
            self._end()

    @property
    def trusted(self) -> Group:
        return self.commanded["trusted"]

    @property
    def baseline(self) -> Group:
        return self.commanded["baseline"]

    @property
    def candidate(self) -> Group:
        return self.commanded["candidate"]

    def retire(self, *roles: wire.Role) -> None:
        """Ends every process of these groups, on one machine, and what they left behind. Their folders are the caller's
        to empty before `begin`. Raises HarnessError where that takes too long."""
        self.retired.clear()
        for role in roles:
            self.thaw(role)
            self.zygotes.tell(Retire(role=role))
        deadline = time.monotonic() + RETIRE_S
        while not self.retired.issuperset(roles):
            if self.is_lost or time.monotonic() > deadline:
                raise HarnessError(f"{NO_ANSWER} for {RETIRE_S:.0f} s, when ranks were to end. {ASKS}")
            self.poll(deadline - time.monotonic())
        for role in roles:
            if role in self.groups:
                self.groups.pop(role).end()
            for rank in self.ranks[role]:
                self.forget(rank)
            self.ranks[role] = [Rank(role, number) for number in range(self.launch.world_size)]
            for rank in self.ranks[role]:
                self.watch_rank(rank)

    def begin(self, launch: Launch, *roles: wire.Role) -> None:
        """Starts these groups, whose processes were retired. Raises what entering does."""
        self.launch = launch
        self._begin(roles)

    def pids(self) -> list[int]:
        """The process ids of the zygotes and of every rank."""
        return [*(process.pid for process in self.zygotes.processes), *self.by_pid]

    def logs(self) -> dict[str, str]:
        """What each rank printed (the end of it), where it printed anything."""
        if not self.is_over:
            self.poll(0)
        return super().logs()

    def freeze(self, role: wire.Role) -> None:
        if role not in self.frozen:
            self.freezes += 1
            self.frozen[role] = self.freezing[role] = self.freezes
            self.zygotes.tell(Freeze(role=role, number=self.freezes))

    def thaw(self, role: wire.Role) -> None:
        if role in self.frozen:
            del self.frozen[role]
            self.freezing.pop(role, None)
            self.zygotes.tell(Thaw(role=role))

    def show_stacks(self, role: wire.Role) -> None:
        self.zygotes.tell(ShowStacks(role=role))

    def check_zygotes(self) -> None:
        """Raises HarnessError if a process that ranks are forked from was stopped or has ended: no rank is to blame."""
        if self.is_lost:
            raise HarnessError(f"ranks {ENDED}. {ASKS}")
        if self.zygotes.is_stopped():
            raise HarnessError(f"{NO_ANSWER}. {ASKS}")

    def wait_frozen(self, deadline: float) -> None:
        until = min(deadline, time.monotonic() + FROZEN_S)
        while self.freezing and not any(rank.gone for rank in self.all_ranks()):
            if time.monotonic() > until:
                raise HarnessError(f"{NO_ANSWER} for {FROZEN_S:.0f} s, or to the end of the phase. {ASKS}")
            self.poll(until - time.monotonic())

    def check_frozen(self, deadline: float) -> None:
        """Waits as `wait_frozen`. Raises RankFailure if a group has run while it was frozen, or a rank failed."""
        self.wait_frozen(deadline)
        Watch(self, "candidate").check_all(deadline, ())

    def _start(self) -> None:
        launch = self.launch
        sandbox.hide(True)  # a submission's ranks could read the run's secret out of this process
        self.zygotes.start(launch.folder, launch.threads, self.log.write_fd, launch.nodes)
        for control in self.zygotes.each_control():
            self.watch(control, partial(self.read_control, control))
        os.close(self.log.write_fd)
        self.bells = {role: os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for role in ROLES if launch.nodes}
        self._begin(ROLES)

    def _begin(self, roles: Sequence[wire.Role]) -> None:
        launch = self.launch
        barriers = {role: make_barrier(launch.world_size) for role in roles}
        if launch.confined and not launch.nodes:
            self.groups |= {role: cgroup.make(sandbox.most()) for role in roles if role != "trusted"}
        for role in roles:
            for rank in self.ranks[role]:
                self._order(rank, barriers[role])
        groups = {role: self._group(role, barriers[role]) for role in roles}
        for fd in barriers.values():
            os.close(fd)
        self.commanded |= groups
        deadline = time.monotonic() + START_S
        for group in groups.values():
            try:
                group.gather(wire.Done, deadline)
            except failure.RankFailure as error:
                first_line = error.outcome.message.partition("\n")[0]
                printed = self.log.text() + getattr(error.outcome, "log_tail", "")
                raise HarnessError(
                    f"the ranks could not be started: {first_line}\n{printed[-2000:]}\n"
                    "Does `python -c 'import torch'` work with this interpreter? Is there memory for this many ranks? "
                    "If --unconfined helps, the sandbox is in the way (docs/trust.md)."
                ) from None

    def _group(self, role: wire.Role, barrier: int) -> RankGroup:
        shared = Barrier(barrier, self.launch.world_size, self.launch.spin, self.bells.get(role))
        return RankGroup(self, role, shared, max(1, len(self.launch.nodes)))

    def _order(self, rank: Rank, barrier: int) -> None:
        bell = [self.bells[rank.role]] if self.bells else []
        group = self.groups.get(rank.role)
        order = self.launch.order(rank.role, rank.rank, group.places if group else ())
        self.zygotes.tell(order, [rank.their_sock.fileno(), rank.log.write_fd, barrier, *bell])
        rank.their_sock.close()
        os.close(rank.log.write_fd)

    def _end(self) -> None:
        self.is_over = True
        self.zygotes.end(self._can_go, lambda: self.poll(0.01))  # reading on, so that nobody is stuck in a write
        for group in self.groups.values():
            group.end()
        sandbox.hide(False)
        self.selector.close()
        self.zygotes.close()
        os.close(self.log.fd)
        for bell in self.bells.values():
            os.close(bell)
        for rank in self.all_ranks():
            rank.sock.close()
            os.close(rank.log.fd)

    def _can_go(self) -> bool:
        """Whether the zygotes will soon see that they are to go: none is stopped, nor still importing torch."""
        roles = {rank.role for rank in self.by_pid.values()}
        return not self.zygotes.is_stopped() and (bool(self.launch.nodes) or (len(roles) > 1 and "trusted" in roles))


def free_port() -> int:
    """A TCP port of this host that nobody uses just now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
