"""The parent's side of the ranks: starts three groups, commands them, notices whatever goes wrong, leaves nothing.

One thread and one selector: replies, printed text and ends of processes of all groups arrive in `poll`, so a rank
that dies, floods its log or talks nonsense is noticed while any other is waited for. Knows nothing of problems,
verdicts or statistics, and never imports torch.
"""

import contextlib
import fcntl
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Protocol, TypeVar, cast, get_args

from harness.core.checkout import ROOT
from harness.core.decode import decode, encode
from harness.core.errors import HarnessError
from harness.core.records import CheckerName, Clock, Crashed, Raised, TimedOut
from harness.machine import host
from harness.process import sandbox
from harness.process.child import search_path, signal_name
from harness.ranks import wire
from harness.ranks.barrier import Barrier, make_barrier

ROLES: tuple[wire.Role, ...] = get_args(wire.Role)
LOG_TAIL_BYTES = 64 << 10  # of what a rank prints, the end is kept
SHOWN_LOG_CHARS = 4000  # of it, in an outcome
READ_BYTES = 1 << 20
START_S = 120.0  # importing torch from a cold disk
GRACE_S = 0.5  # after the first rank raised, for the others to say what they have to say
STACKS_S = 0.5  # at a deadline, for ranks to write their stacks
# glibc moves these with what a process happened to free, so that one group of ranks would get its buffers out of the
# heap and the other by page faults; fixed at the largest value it takes, all of them reuse memory.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
LOOK_S = 0.01  # while the parent waits at the barrier: how often it looks whether a rank has failed
SEND_S = 30.0  # for a rank to take a command in
GOODBYE_S = 6.0  # for the zygote to kill everything and go
IN_COLLECTIVE = "torch/distributed/"  # in the stack of a rank that waits in one
R = TypeVar("R")


class RankFailure(Exception):
    """A rank of `role` ended the evaluation; `outcome` says how."""

    def __init__(self, role: wire.Role, outcome: Raised | Crashed | TimedOut) -> None:
        super().__init__(role, outcome)
        self.role, self.outcome = role, outcome


class Group(Protocol):
    """What an evaluation needs of a group of ranks; tests have a fake."""

    def send(self, commands: wire.Command | Sequence[wire.Command]) -> None:
        """Sends the command (one for all, or one a rank); ranks carry out theirs in the order sent."""

    def gather(self, reply: type[R], deadline: float) -> list[R]:
        """Every rank's next reply, by rank. Raises RankFailure when a rank of any group raises or ends, or when
        `deadline` (of time.monotonic()) passes."""

    def ask(self, commands: wire.Command | Sequence[wire.Command], reply: type[R], deadline: float) -> list[R]:
        """`send`, then `gather`."""

    def call(
        self, indices: Sequence[int], clock: Clock, deadline: float, lead_s: float = 0.0, keys: Sequence[int] = ()
    ) -> list[list[wire.CallSample]]:
        """Calls of the kernel on these inputs, one after the other, on all ranks, which leave the barrier together, the
        first time `lead_s` after all have come to it: what the hosts need to submit work that waits on the devices
        for the barrier. Inputs that are masked have a key each, which ranks are told when all are done with the call
        before. Returns each call's samples by rank."""

    def busy_us(self) -> float:
        """The CPU time that the group's processes have had so far, whoever started them."""

    def call_late(
        self, late: int, index: int, hold_s: float, deadline: float
    ) -> tuple[list[wire.CallSample], list[int]]:
        """One call that rank `late` enters `hold_s` after the others. Returns the samples by rank, and the ranks that
        had finished before it entered."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How to start ranks. `cores[r]` are those of rank r of every group, or it is empty and all run anywhere.
    `folder` is theirs: each starts in `role/rank` below it. `caches` are for what compilers make, where a role has one
    that outlives the run. `checker`, `cuda_is_cpu` and `confined` are as in wire.RankOrder."""

    world_size: int
    device: str
    threads: int
    cores: tuple[tuple[int, ...], ...] = ()
    spin: bool
    flush_bytes: int
    folder: Path
    caches: Mapping[wire.Role, Path] = field(default_factory=dict)
    checker: CheckerName = "strict"
    cuda_is_cpu: bool = False
    confined: bool = True

    def workdir(self, role: wire.Role, rank: int) -> Path:
        """The folder that a rank starts in, its own."""
        return self.folder / role / str(rank)


class Log:
    """A pipe that someone prints to, of which the end is kept."""

    def __init__(self) -> None:
        self.fd, self.write_fd = os.pipe()
        with contextlib.suppress(OSError):  # past the user's share of pipe memory
            fcntl.fcntl(self.fd, fcntl.F_SETPIPE_SZ, READ_BYTES)  # a rank that prints much waits less for us
        os.set_blocking(self.fd, False)
        self.tail = bytearray()
        self.total_bytes = 0

    def read(self) -> bool:
        """Takes what is there; False at the end of the pipe."""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.fd, READ_BYTES)
            self.tail += data
            self.total_bytes += len(data)
            del self.tail[:-LOG_TAIL_BYTES]
            return bool(data)
        return True

    def text(self, since_bytes: int = 0) -> str:
        """What came after the first `since_bytes` bytes, as far as it was kept."""
        fresh = self.total_bytes - since_bytes
        return self.tail[max(0, len(self.tail) - fresh) :].decode(errors="replace")


class Rank:
    """The parent's end of one rank."""

    def __init__(self, role: wire.Role, rank: int) -> None:
        self.role, self.rank, self.pid = role, rank, 0
        self.sock, self.their_sock = socket.socketpair()
        self.sock.setblocking(False)
        self.log = Log()
        self.parser = wire.Parser()
        self.inbox: deque[wire.Reply] = deque()
        self.gone = ""  # why nothing more will come from it

    def read(self) -> bool:
        """Takes the replies that are there; False at the end of them."""
        try:
            data = self.sock.recv(READ_BYTES)
            self.inbox += self.parser.feed(data)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        except wire.ProtocolError as error:
            self.gone = f"sent something that is no reply ({str(error)[:300]})"
            return False
        return bool(data)


class Ranks:
    """All groups, as a context: entering starts zygote and ranks, leaving ends every process below them.

    Raises HarnessError when they cannot be started, OSError where the machine has not even pipes or processes left.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.ranks = {role: [Rank(role, rank) for rank in range(launch.world_size)] for role in ROLES}
        self.by_pid: dict[int, Rank] = {}
        self.lacking: list[str] = []  # what this kernel does not give to confine ranks with
        self.control, self.their_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.log = Log()
        self.zygote: subprocess.Popen[bytes] | None = None
        self.selector = selectors.DefaultSelector()
        self._watch(self.control, self._read_control)
        self._watch(self.log.fd, self.log.read)
        for rank in self.all_ranks():
            self._watch(rank.sock, rank.read)
            self._watch(rank.log.fd, rank.log.read)

    def __enter__(self) -> "Ranks":
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def all_ranks(self) -> list[Rank]:
        return [rank for role in ROLES for rank in self.ranks[role]]

    def pids(self) -> list[int]:
        """The process ids of the zygote and of every rank."""
        assert self.zygote is not None
        return [self.zygote.pid, *self.by_pid]

    def logs(self) -> dict[str, str]:
        """What each rank printed (the end of it), where it printed anything."""
        self.poll(0)
        return {f"{rank.role} rank {rank.rank}": rank.log.text() for rank in self.all_ranks() if rank.log.tail}

    def poll(self, timeout_s: float) -> None:
        """Takes in whatever has arrived, waiting at most `timeout_s` for something."""
        for key, _ in self.selector.select(min(max(0.0, timeout_s), 3600.0)):
            if not key.data():  # it has come to its end
                self.selector.unregister(key.fileobj)

    def _watch(self, source: int | socket.socket, read: object) -> None:
        self.selector.register(source, selectors.EVENT_READ, read)

    def _read_control(self) -> bool:
        try:
            data = self.control.recv(wire.MAX_MESSAGE_BYTES)
        except ConnectionError:
            data = b""
        if not data:
            for rank in self.all_ranks():
                rank.gone = rank.gone or "ended with the process that ranks are forked from"
            return False
        message: wire.ZygoteMessage = decode(cast("type[wire.ZygoteMessage]", wire.ZygoteMessage), json.loads(data))
        if isinstance(message, wire.Confined):
            self.lacking += [text for text in message.lacking if text not in self.lacking]
        elif isinstance(message, wire.Exited):
            rank = self.by_pid[message.pid]
            rank.gone = rank.gone or _told_exit(message.code)
        else:
            rank = self.ranks[message.role][message.rank]
            rank.pid = message.pid
            self.by_pid[message.pid] = rank
        return True

    def _start(self) -> None:
        threads = str(self.launch.threads)
        sandbox.hide(True)  # a submission's ranks could read the run's secret out of this process
        self.zygote = subprocess.Popen(
            [sys.executable, "-m", "harness.ranks.zygote", str(self.their_control.fileno()), str(self.launch.folder)],
            cwd=ROOT,
            env={
                **sandbox.environment(os.environ),
                **MALLOC,
                "PATH": search_path(),
                "OMP_NUM_THREADS": threads,
                "MKL_NUM_THREADS": threads,
            },
            pass_fds=[self.their_control.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self.log.write_fd,
            stderr=self.log.write_fd,
            start_new_session=True,  # Ctrl-C goes to the parent alone, which then ends the ranks in order
        )
        self.their_control.close()
        os.close(self.log.write_fd)
        barriers = {role: make_barrier(self.launch.world_size) for role in ROLES}
        for number in range(self.launch.world_size):
            # The ranks of this number in all groups read the same inputs; outputs are judged of the candidate only.
            inputs, judged, private = (os.memfd_create(name) for name in ("inputs", "outputs", "outputs"))
            for role in ROLES:
                outputs = private if role == "baseline" else judged
                self._order(self.ranks[role][number], [inputs, outputs, barriers[role]])
            for fd in (inputs, judged, private):
                os.close(fd)
        world_size, spin = self.launch.world_size, self.launch.spin
        groups = {role: RankGroup(self, role, Barrier(barriers[role], world_size, spin)) for role in ROLES}
        for fd in barriers.values():
            os.close(fd)
        self.trusted: Group = groups["trusted"]
        self.baseline: Group = groups["baseline"]
        self.candidate: Group = groups["candidate"]
        deadline = time.monotonic() + START_S
        for group in groups.values():
            try:
                group.gather(wire.Done, deadline)
            except RankFailure as failure:
                told = self.log.text() + getattr(failure.outcome, "log_tail", "")
                raise HarnessError(
                    f"the ranks could not be started: {_first_line(failure.outcome)}\n{told[-2000:]}\n"
                    "Does `python -c 'import torch'` work with this interpreter? Is there memory for this many ranks? "
                    "If --unconfined helps, the sandbox is in the way (docs/trust.md)."
                ) from None

    def _order(self, rank: Rank, files: list[int]) -> None:
        order = wire.RankOrder(
            role=rank.role,
            rank=rank.rank,
            world_size=self.launch.world_size,
            device=self.launch.device,
            threads=self.launch.threads,
            cores=self.launch.cores[rank.rank] if self.launch.cores else (),
            spin=self.launch.spin,
            flush_bytes=self.launch.flush_bytes,
            workdir=str(self.launch.workdir(rank.role, rank.rank)),
            cache=str(self.launch.caches.get(rank.role, self.launch.folder / rank.role / "cache")),
            checker=self.launch.checker,
            cuda_is_cpu=self.launch.cuda_is_cpu,
            confined=self.launch.confined,
        )
        fds = [rank.their_sock.fileno(), rank.log.write_fd, *files]
        with contextlib.suppress(ConnectionError):  # the zygote is gone; poll will tell
            socket.send_fds(self.control, [json.dumps(encode(order)).encode()], fds)
        rank.their_sock.close()
        os.close(rank.log.write_fd)

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)  # the zygote now kills every process below it and goes
        if self.zygote is not None:
            deadline = time.monotonic() + GOODBYE_S
            while self.zygote.poll() is None and time.monotonic() < deadline:
                self.poll(0.01)  # reading on, so that nobody is stuck in a write
            if self.zygote.poll() is None:
                self.zygote.kill()  # its ranks die with it
            self.zygote.wait()
        sandbox.hide(False)
        self.selector.close()
        self.control.close()
        os.close(self.log.fd)
        for rank in self.all_ranks():
            rank.sock.close()
            os.close(rank.log.fd)


class RankGroup:
    """One group of running ranks; see Group."""

    def __init__(self, ranks: Ranks, role: wire.Role, barrier: Barrier) -> None:
        self.ranks, self.role, self.barrier = ranks, role, barrier
        self.members = ranks.ranks[role]
        self.epoch = 0

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
            self.ranks.poll(until - now)
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
                self.ranks.poll(0)
                self._check_all(deadline, self.members)
                look = time.monotonic() + LOOK_S

    def _called(self, count: int, deadline: float) -> list[list[wire.CallSample]]:
        called = self.gather(wire.Called, deadline)
        for rank, reply in zip(self.members, called, strict=True):
            if len(reply.samples) != count:
                self._crashed(rank, f"sent {len(reply.samples)} samples of {count} calls")
        return [list(samples) for samples in zip(*(reply.samples for reply in called), strict=True)]

    def gather(self, reply: type[R], deadline: float) -> list[R]:
        return self._gather(self.members, reply, deadline)

    def _gather(self, members: Sequence[Rank], reply: type[R], deadline: float) -> list[R]:
        while True:
            waiting = [rank for rank in members if not rank.inbox]
            self._check_all(deadline, waiting)
            if not waiting:
                break
            self.ranks.poll(deadline - time.monotonic())
        replies = [rank.inbox.popleft() for rank in members]
        for rank, received in zip(members, replies, strict=True):
            if not isinstance(received, reply):
                self._crashed(rank, f"sent '{received.type}' where '{reply.__name__}' was due")
        return replies  # type: ignore[return-value]

    def _check_all(self, deadline: float, waiting: Sequence[Rank]) -> None:
        everyone = self.ranks.all_ranks()
        for rank in everyone:
            if rank.gone and not any(isinstance(reply, wire.Failed) for reply in rank.inbox):
                self.ranks.poll(0.05)  # its last words
                self._crashed(rank, rank.gone)
        if any(isinstance(reply, wire.Failed) for rank in everyone for reply in rank.inbox):
            self._raised()
        if waiting and time.monotonic() > deadline:
            self._timed_out(waiting)

    def _crashed(self, rank: Rank, message: str) -> NoReturn:
        outcome = Crashed(rank=rank.rank, message=message, log_tail=rank.log.text()[-SHOWN_LOG_CHARS:])
        raise RankFailure(rank.role, outcome)

    def _raised(self) -> NoReturn:
        """One rank raised. The others are often stuck in a collective now: wait a little, not for all."""
        until = time.monotonic() + GRACE_S
        while time.monotonic() < until and not all(rank.inbox or rank.gone for rank in self.members):
            self.ranks.poll(until - time.monotonic())
        for rank in self.members:
            if rank.gone:  # that one crashed, and the others lost their connection to it
                self._crashed(rank, rank.gone)
        everyone = self.ranks.all_ranks()
        raised = [(rank, reply) for rank in everyone for reply in rank.inbox if isinstance(reply, wire.Failed)]
        rank, failed = raised[0]
        alike = [other.rank for other, reply in raised if reply.message == failed.message]
        others = f" (and rank{'s' * (len(alike) > 2)} {', '.join(map(str, alike[1:]))})" if alike[1:] else ""
        raise RankFailure(
            rank.role, Raised(rank=rank.rank, message=failed.message + others, traceback=failed.traceback)
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
            self.ranks.poll(until - time.monotonic())
        stacks = tuple(rank.log.text(marks[rank])[-SHOWN_LOG_CHARS:] for rank in self.members)
        whose = "" if self.role == "candidate" else f"{self.role} "  # then it may not be the submission's fault
        message = f"{whose}{_named([rank.rank for rank in waiting])} had not finished at the deadline"
        elsewhere = [rank.rank for rank in waiting if IN_COLLECTIVE not in stacks[rank.rank]]
        if 0 < len(elsewhere) < len(waiting):
            message += f"; {_named(elsewhere)} did not wait for the others in a collective, so look there first"
        raise RankFailure(self.role, TimedOut(message=message, stacks=stacks))


def _named(ranks: Sequence[int]) -> str:
    numbers = ", ".join(map(str, ranks))
    return f"rank {numbers}" if len(ranks) == 1 else f"ranks {numbers}"


def free_port() -> int:
    """A TCP port of this host that nobody uses just now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _told_exit(code: int) -> str:
    """A process's end in words."""
    if code == -signal.SIGKILL:
        return "was killed by SIGKILL (often the kernel's answer to running out of memory)"
    if code < 0:
        return f"was killed by {signal_name(-code)}"
    return f"exited with code {code} in the middle of the evaluation"


def _first_line(outcome: Raised | Crashed | TimedOut) -> str:
    return outcome.message.partition("\n")[0]
