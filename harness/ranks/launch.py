"""The processes of all ranks: how they are started, watched and ended.

One thread and one selector: replies, printed text and ends of processes of all groups arrive in `poll`, so that a rank
that dies, floods its log or sends nonsense is noticed while the parent waits for any other. Leaving `Ranks` ends every
process below it. Never imports torch.
"""

import contextlib
import math
import os
import secrets
import selectors
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from harness.core.decode import part
from harness.core.errors import HarnessError
from harness.process import cgroup, sandbox
from harness.ranks import failure, wire, zygote_messages
from harness.ranks.barrier import Barrier, make_barrier
from harness.ranks.group import Group
from harness.ranks.rank import Rank
from harness.ranks.watch import RanksWatch
from harness.ranks.zygotes import GROUPS, ROLES, Zygotes

START_S = 120.0  # for ranks to start, from a cold disk, and for each further step before the first case
NO_ANSWER = "the process that ranks are forked from did not answer"
ENDED = "ended with the process that ranks are forked from"
MORE_TASKS = (
    "No more processes are permitted here: raise the limit (`ulimit -u`, or the container's), or ask for fewer ranks "
    "(--ranks, RANKS=)."
)
NOT_STARTED = (
    "Does `python -c 'import torch'` work with this interpreter? Is there memory for this many ranks? "
    "If --unconfined helps, the sandbox is in the way (docs/trust.md)."
)
ASKS = "Was it stopped from outside? Is the machine out of memory?"
ANSWER_S = 10.0  # for nodes' agents to say that they are there
FROZEN_S = 10.0  # for all processes of a group to stop, which takes milliseconds


def drawn() -> dict[wire.Role, wire.GroupName]:
    """Draws which group has which role, so that a rank cannot tell its role from its folder or order of start."""
    first, *others = GROUPS
    if secrets.randbits(1):
        others.reverse()
    return dict(zip(ROLES, (first, *others), strict=True))


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How to start ranks. `cores[r]` are those of rank r of every group, or it is empty and all run anywhere.
    `folder` is theirs: each starts in `group/rank` below it. `names` says which group has which role; outputs of the
    roles in `judged` are, by trusted ranks that run `judge`. `caches` are for what compilers make, where a role has one
    that outlives the run. `hidden`, `cuda_is_cpu`, `confined`, `first_gpu` and `kept_bytes` are as in wire.RankOrder;
    `judges` are folders that trusted ranks see and no others. `idle_s`: for how long the candidate's ranks, waited for,
    may do nothing; None: until the deadline. `nodes` has a connection to each node's agent; without, all run here.
    `preload` are modules of torch's that trusted ranks need, which their zygote imports once for all launches."""

    world_size: int
    device: str
    threads: int
    cores: tuple[tuple[int, ...], ...] = ()
    spin: bool
    folder: Path
    names: Mapping[wire.Role, wire.GroupName] = field(default_factory=lambda: drawn())
    judged: tuple[wire.Role, ...] = ("candidate",)
    caches: Mapping[wire.Role, Path] = field(default_factory=dict)
    hidden: tuple[Path, ...] = ()
    judges: tuple[Path, ...] = ()
    judge: str = wire.TRUSTED
    cuda_is_cpu: bool = False
    confined: bool = True
    first_gpu: int = 0
    kept_bytes: int = wire.KEPT_BYTES
    idle_s: float | None = None
    nodes: tuple[socket.socket, ...] = ()
    preload: tuple[str, ...] = ()

    @property
    def roles(self) -> dict[wire.GroupName, wire.Role]:
        """The groups' roles, in the order in which they start."""
        of = {group: role for role, group in self.names.items()}
        return {group: of[group] for group in GROUPS}

    def again(self, folder: Path) -> "Launch":
        """Another launch in that folder, in which the two groups that nobody trusts change places, and each rank has
        the next one's GPU."""
        names = {**self.names, "baseline": self.names["candidate"], "candidate": self.names["baseline"]}
        return replace(self, folder=folder, names=names, first_gpu=(self.first_gpu + 1) % self.local_size)

    @property
    def local_size(self) -> int:
        """How many ranks of a group a node runs."""
        return self.world_size // max(1, len(self.nodes))

    def workdir(self, role: wire.Role, rank: int) -> Path:
        return self.folder / self.names[role] / str(rank)

    def workdirs(self, role: wire.Role) -> list[Path]:
        return [self.workdir(role, rank) for rank in range(self.world_size)]

    def order(self, role: wire.Role, rank: int, groups: tuple[str, ...] = ()) -> wire.RankOrder:
        is_judge = role == "trusted"
        return part(
            self,
            wire.RankOrder,
            group=self.names[role],
            rank=rank,
            cores=self.cores[rank % self.local_size] if self.cores else (),
            workdir=str(self.workdir(role, rank)),
            cache=str(self.caches.get(role, self.folder / self.names[role] / "cache")),
            hidden=tuple(map(str, self.hidden if is_judge else dict.fromkeys((*self.hidden, *self.judges)))),
            shown=tuple(map(str, self.judges)) if is_judge else (),
            program=self.judge if is_judge else wire.UNTRUSTED,
            judged=role in self.judged,
            groups=groups,
            preload=self.preload if is_judge else (),
        )


def log_name(role: wire.Role, rank: int) -> str:
    return f"{role} rank {rank}"


class Questions:
    """Asks the agents of so many nodes whether they work, before a rank is blamed for its silence."""

    def __init__(self, nodes: int) -> None:
        self.nodes, self.number = nodes, 0
        self.is_stopped: dict[int, bool] = {}  # by node: the answers to the last question

    def heard(self, answer: zygote_messages.NodeAnswered) -> None:
        if answer.number == self.number:
            self.is_stopped[answer.node] = answer.is_stopped

    def ask(self, zygotes: Zygotes, poll: Callable[[float], None]) -> None:
        """Raises HarnessError where a node does not answer within ANSWER_S, or its ranks cannot be reached."""
        if self.nodes == 0:
            return
        self.number += 1
        self.is_stopped.clear()
        zygotes.tell(zygote_messages.GroupOrder(group="trusted", what="ask", number=self.number))
        until = time.monotonic() + ANSWER_S
        while len(self.is_stopped) < self.nodes and time.monotonic() < until:
            poll(until - time.monotonic())
        again = "Nothing is recorded; evaluate again"
        for node in range(self.nodes):
            if node not in self.is_stopped:
                raise HarnessError(
                    f"node {node} did not answer for {ANSWER_S:.0f} s: its agent was stopped, or the network to it "
                    f"stalls. {again}"
                )
            if self.is_stopped[node]:
                raise HarnessError(f"node {node}: {NO_ANSWER}. Was it stopped from outside? {again}")


class Ranks:
    """All groups, as a context: entering starts zygotes and ranks, leaving ends every process below them. With the
    `zygotes` of others that have ended and kept them, it takes a tenth of the time.

    Raises HarnessError when they cannot be started, OSError where the machine has not even pipes or processes left.
    """

    def __init__(self, launch: Launch, zygotes: Zygotes | None = None) -> None:
        self.launch, self.idle_s, self.zygotes = launch, launch.idle_s, zygotes or Zygotes()
        self.roles = launch.roles
        self.ranks = {role: [Rank(role, rank) for rank in range(launch.world_size)] for role in ROLES}
        self.by_pid: dict[int, Rank] = {}
        self.exited: set[int] = set()  # of these
        self.freezes = 0
        self.frozen: dict[wire.Role, int] = {}  # groups that do not run, each by the number of its last Freeze
        self.freezing: dict[wire.Role, int] = {}  # those of them that have not answered yet
        self.questions = Questions(len(launch.nodes))
        self.bells: dict[wire.Role, int] = {}  # of the groups' barriers, where they have ranks on several nodes
        self.groups: dict[wire.Role, cgroup.Cgroup] = {}  # of ranks that nobody trusts, on this machine
        self.barriers: list[Barrier] = []  # of the groups
        self.lacking: list[str] = []  # what this kernel does not give to confine ranks with
        self.is_lost = self.is_over = False  # a zygote has ended; so has everything
        self.selector = selectors.DefaultSelector()
        self._watch(self.zygotes.log.fd, self.zygotes.log.read)
        for rank in self.all_ranks():
            self._watch(rank.sock, rank.read)
            self._watch(rank.log.fd, rank.log.read)

    def __enter__(self) -> "Ranks":
        with contextlib.ExitStack() as started:
            started.callback(self.end)
            self._start()
            started.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self, keep_zygotes: bool = False) -> None:
        """Ends every process below the zygotes, if that was not done yet, and the zygotes too unless they are kept.
        Raises HarnessError where kept ones do not answer."""
        if self.is_over:
            return
        self.is_over = True
        read = partial(self.poll, 0.01)  # on, so that nobody is stuck in a write
        is_kept = keep_zygotes and self.zygotes.end_groups(lambda: self.exited >= set(self.by_pid), read)
        if not is_kept:
            self.zygotes.end(self._can_go, read)
        for group in self.groups.values():
            group.end()
        sandbox.hide(False)
        self.selector.close()
        if not is_kept:
            self.zygotes.close()
        for bell in self.bells.values():
            os.close(bell)
        for close in [*(one.close for one in self.barriers), *(rank.close for rank in self.all_ranks())]:
            close()
        if keep_zygotes and not is_kept:
            raise HarnessError(f"{NO_ANSWER}. {ASKS}")

    def all_ranks(self) -> list[Rank]:
        return [rank for role in ROLES for rank in self.ranks[role]]

    def pids(self) -> list[int]:
        return [*(process.pid for process in self.zygotes.processes), *self.by_pid]

    def logs(self) -> dict[str, str]:
        """The end of the log of each rank that printed anything."""
        if not self.is_over:
            self.poll(0)
        return {log_name(rank.role, rank.rank): rank.log.text() for rank in self.all_ranks() if rank.log.tail}

    def freeze(self, role: wire.Role) -> None:
        if role not in self.frozen:
            self.freezes += 1
            self.frozen[role] = self.freezing[role] = self.freezes
            self._tell(role, "freeze", self.freezes)

    def thaw(self, role: wire.Role) -> None:
        if role in self.frozen:
            del self.frozen[role]
            self.freezing.pop(role, None)
            self._tell(role, "thaw")

    def show_stacks(self, role: wire.Role) -> None:
        """Has each of its ranks write its Python stack into its log."""
        self._tell(role, "show_stacks")

    def _tell(self, role: wire.Role, what: zygote_messages.What, number: int = 0) -> None:
        self.zygotes.tell(zygote_messages.GroupOrder(group=self.launch.names[role], what=what, number=number))

    def check_zygotes(self) -> None:
        """Raises HarnessError if a process that ranks are forked from was stopped or has ended: no rank is to blame."""
        if self.is_lost:
            raise HarnessError(f"ranks {ENDED}. {ASKS}")
        if self.zygotes.is_stopped():
            raise HarnessError(f"{NO_ANSWER}. {ASKS}")
        self.questions.ask(self.zygotes, self.poll)

    def wait_frozen(self) -> None:
        """Returns when all have stopped that are to. A phase's deadline does not end it: who takes long to stop just
        before a deadline would not time out."""
        until = time.monotonic() + FROZEN_S
        while self.freezing and not any(rank.gone for rank in self.all_ranks()):
            if time.monotonic() > until:
                raise HarnessError(f"{NO_ANSWER} for {FROZEN_S:.0f} s. {ASKS}")
            self.poll(until - time.monotonic())

    def check_frozen(self) -> None:
        """Waits as `wait_frozen`. Raises RankFailure if a group has run while it was frozen, or a rank failed."""
        self.wait_frozen()
        RanksWatch(self, "candidate").check_all(math.inf, ())

    def poll(self, timeout_s: float) -> None:
        """Takes in whatever has arrived, waiting at most `timeout_s` for something."""
        for key, _ in self.selector.select(min(max(0.0, timeout_s), 3600.0)):
            if not key.data():  # it has come to its end
                self.selector.unregister(key.fileobj)

    def _watch(self, source: int | socket.socket, read: object) -> None:
        self.selector.register(source, selectors.EVENT_READ, read)

    def _read_control(self, control: socket.socket) -> bool:
        try:
            data = control.recv(zygote_messages.MAX_MESSAGE_BYTES)
        except ConnectionError:
            data = b""
        if not data:
            self.is_lost = True
            for rank in self.all_ranks():
                rank.gone = rank.gone or ENDED
            return False
        message = zygote_messages.message_of(data)
        if isinstance(message, zygote_messages.NodeLost):
            raise HarnessError(message.why)
        if isinstance(message, zygote_messages.NodeAnswered):
            self.questions.heard(message)
        elif isinstance(message, zygote_messages.Confined):
            self.lacking += [text for text in message.lacking if text not in self.lacking]
        elif isinstance(message, zygote_messages.GroupFrozen):
            role = self.roles[message.group]
            rank = self.ranks[role][0]
            if message.running:
                rank.gone = rank.gone or f"left {message.running} processes that do not stop while it is not timed"
            elif message.ran:
                rank.gone = rank.gone or f"ran while not on turn: the {role} {message.ran} while it was stopped"
            if self.freezing.get(role) == message.number:
                del self.freezing[role]
        elif isinstance(message, zygote_messages.RankExited):
            self.by_pid[message.pid].exited(message.code)
            self.exited.add(message.pid)
        else:
            rank = self.ranks[self.roles[message.group]][message.rank]
            rank.pid = message.pid
            self.by_pid[message.pid] = rank
        return True

    def _start(self) -> None:
        launch = self.launch
        sandbox.hide(True)  # a submission's ranks could read the run's secret out of this process
        if not self.zygotes.processes:
            self.zygotes.start(launch.folder, launch.threads, launch.nodes)
        for control in self.zygotes.each_control():
            self._watch(control, partial(self._read_control, control))
        barriers = {role: make_barrier(launch.world_size) for role in ROLES}
        self.bells = {role: os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for role in ROLES if launch.nodes}
        if launch.confined and not launch.nodes:
            self.groups = {role: cgroup.make(sandbox.most()) for role in self.roles.values() if role != "trusted"}
        for rank in (rank for role in self.roles.values() for rank in self.ranks[role]):
            self._order(rank, barriers[rank.role])
        groups: dict[wire.Role, Group] = {}
        for role, fd in barriers.items():
            self.barriers.append(Barrier(fd, launch.world_size, launch.spin, self.bells.get(role)))
            groups[role] = Group(self, role, self.barriers[-1], max(1, len(launch.nodes)))
            os.close(fd)
        self.trusted, self.baseline, self.candidate = (groups[role] for role in ROLES)
        deadline = time.monotonic() + START_S
        for group in groups.values():
            try:
                group.gather(wire.Done, deadline)
            except failure.RankFailure as error:
                first_line = error.outcome.message.partition("\n")[0]
                printed = self.zygotes.log.text() + getattr(error.outcome, "log_tail", "")
                raise HarnessError(
                    f"the ranks could not be started: {first_line}\n{printed[-2000:]}\n{advice_on(printed)}"
                ) from None

    def _order(self, rank: Rank, barrier: int) -> None:
        bell, group = [self.bells[rank.role]] if self.bells else [], self.groups.get(rank.role)
        order = self.launch.order(rank.role, rank.rank, group.places if group else ())
        self.zygotes.tell(order, [rank.their_sock.fileno(), rank.log.write_fd, barrier, *bell])
        rank.their_sock.close()
        os.close(rank.log.write_fd)

    def _can_go(self) -> bool:
        """Whether the zygotes will soon see that they are to go: none is stopped, nor still importing torch."""
        roles = {rank.role for rank in self.by_pid.values()}
        return not self.zygotes.is_stopped() and (bool(self.launch.nodes) or (len(roles) > 1 and "trusted" in roles))


def advice_on(printed: str) -> str:
    """What to try where ranks could not be started and have printed that."""
    return MORE_TASKS if wire.NO_TASKS in printed else NOT_STARTED


def free_port() -> int:
    """A TCP port of this host that nobody uses just now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
