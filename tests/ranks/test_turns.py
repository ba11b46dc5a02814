"""Who is on turn runs, and nobody else; a rank that is late waits alone; files that can still change are refused."""

import contextlib
import ctypes
import itertools
import os
import re
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.core.processes import descendants, state
from harness.core.records import EvalReport, Measured
from harness.kinds.op.calls import Calls
from harness.process import freezer
from harness.process.freezer import Freezer
from harness.ranks.channel import Channel, MessageParser, frame, send_files
from harness.ranks.launch import Ranks
from harness.ranks.rank import MOST_REPLIES, Rank
from harness.ranks.shared_buffer import new_file, seal
from harness.ranks.wire import Done
from harness.ranks.witness import Turn
from tests.waiting import until

COUNTS = """
import os, time
from reference import ref_kernel

started = []

def custom_kernel(data):
    if not started:
        started.append(os.fork())
        if started == [0]:
            while True:
                time.sleep(0.001)
    return ref_kernel(data)
"""


def test_while_a_group_is_on_turn_every_process_of_the_other_is_stopped(
    evaluated: Callable[..., EvalReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that the submission has started. In the end the harness asks whether any of them ran."""
    turn, check_frozen = Calls.turn, Ranks.check_frozen
    asked: list[set[str]] = []
    seen: list[set[str]] = []

    def watching(self: Calls, group: Any, *how: Any, **more: Any) -> Turn:
        other = self.baseline if group is self.candidate else self.candidate
        cell = parent(other.members[0].pid)  # type: ignore[attr-defined]
        called = group.call

        def calling(*given: Any, **named: Any) -> Any:
            found = called(*given, **named)
            seen.append({state(pid) for pid in descendants(cell)})
            return found

        monkeypatch.setattr(group, "call", calling)
        try:
            return turn(self, group, *how, **more)
        finally:
            monkeypatch.setattr(group, "call", called)

    def checking(self: Ranks) -> None:
        asked.append(set(self.frozen))
        check_frozen(self)

    monkeypatch.setattr(Calls, "turn", watching)
    monkeypatch.setattr(Ranks, "check_frozen", checking)
    report = evaluated(COUNTS, mode="benchmark")
    assert all(isinstance(result.outcome, Measured) for result in report.results), report.results
    assert len(seen) > 30
    assert set().union(*seen) <= {"T"}
    assert asked == [{"baseline", "candidate"}]


def parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Starts processes that carry out a function, which are all that there is to freeze. They are killed."""
    pids: list[int] = []
    monkeypatch.setattr(freezer, "_below", lambda: pids)

    def start(function: Callable[..., object], *arguments: object) -> int:
        if (child := os.fork()) == 0:
            signal.alarm(60)
            try:
                function(*arguments)
            finally:
                os._exit(0)
        pids.append(child)
        return child

    yield start
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_processes_that_wake_each_other_are_stopped_all_the_same(started: Callable[..., int]) -> None:
    """Even without a PID namespace, where they are stopped one by one."""

    def wake(group: int) -> None:
        os.setpgid(0, group)
        while True:
            os.killpg(0, signal.SIGCONT)

    busy: list[int] = []
    for _ in range(2):
        busy.append(started(wake, busy[0] if busy else 0))
        until(lambda: os.getpgid(busy[-1]) == busy[0])  # the first has to have its group before the second joins it
    frozen = Freezer()
    assert frozen.freeze() == 0
    assert [state(pid) for pid in busy] == ["T", "T"]
    time.sleep(0.02)
    frozen.thaw()
    assert frozen.ran == ""
    assert "T" not in [state(pid) for pid in busy]


def test_a_process_is_stopped_when_all_of_its_threads_are(started: Callable[..., int]) -> None:
    """Its first thread may have ended: then it looks like a process that has ended."""

    def burn() -> None:
        threading.Thread(target=lambda: [sum(range(1000)) for _ in range(10**7)]).start()
        ctypes.CDLL(None).pthread_exit(None)

    pid = started(burn)
    until(lambda: sorted(freezer.states_of(pid)) == ["R", "Z"])
    frozen = Freezer()
    assert frozen.freeze() == 0
    assert sorted(freezer.states_of(pid)) == ["T", "Z"]
    time.sleep(0.02)
    frozen.thaw()
    assert frozen.ran == ""


@pytest.mark.parametrize(("state", "flags", "counts_as"), [("D", 0, "D"), ("D", 4, "R"), ("S", 4, "R"), ("Z", 4, "Z")])
def test_a_process_that_ends_is_waited_for(state: str, flags: int, counts_as: str, monkeypatch: Any) -> None:
    """Freeing its memory takes the machine's time, and it does not stop any more."""
    words = [state, *["0"] * (freezer.FLAGS_AT - 1), str(flags), *["0"] * 10, "1", "0"]
    monkeypatch.setattr(freezer, "stat", lambda pid, thread="": words)
    assert freezer.states_of(7) == counts_as


def test_a_process_that_its_own_timer_lets_go_on_is_told_of(started: Callable[..., int]) -> None:
    is_set = os.eventfd(0)

    def burn() -> None:
        libc, timer = ctypes.CDLL(None), ctypes.c_void_p()
        libc.timer_create(1, struct.pack("Qii48x", 0, signal.SIGCONT, 0), ctypes.byref(timer))
        for turn in itertools.count():
            libc.timer_settime(timer, 0, struct.pack("4q", 0, 0, 0, 100_000_000), None)
            if turn == 0:
                os.eventfd_write(is_set, 1)

    pid = started(burn)
    os.eventfd_read(is_set)
    os.close(is_set)
    frozen = Freezer()
    assert frozen.freeze() == 0
    stopped_ns = frozen.clocks_ns[pid]
    until(lambda: freezer._clocks_ns([pid])[pid] > stopped_ns + freezer.CHARGED_NS)  # more than is an interrupt's
    assert frozen.freeze() == 0  # as at the end of an evaluation
    assert re.fullmatch(r"used \d+\.\d ms of CPU time", frozen.ran)


def test_what_an_interrupt_may_have_charged_is_told_of_when_it_comes_again(
    started: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.2 ms of CPU time in one turn name nobody; in a third turn they do."""
    pid, clock_ns = started(signal.pause), [0]
    monkeypatch.setattr(freezer, "_clocks_ns", lambda pids: {pid: clock_ns[0]})
    frozen = Freezer()
    for turn in range(3):
        assert frozen.ran == "", turn
        frozen.freeze()
        clock_ns[0] += 200_000
        frozen.thaw()
    assert frozen.ran == "used 0.6 ms of CPU time"
    frozen = Freezer()
    for turn in range(100):  # in one turn of 25
        frozen.freeze()
        clock_ns[0] += 200_000 if turn % 25 == 24 else 0
        frozen.thaw()
    assert (frozen.ran, len(frozen.used_ns)) == ("", 4)
    frozen = Freezer()
    frozen.freeze()
    clock_ns[0] += 40_000_000  # no interrupt takes as long
    frozen.thaw()
    assert frozen.ran == "used 40.0 ms of CPU time"


def test_a_process_that_ends_or_starts_while_it_is_stopped_is_told_of(
    started: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a third turn: a fork that was under way may be done only when all else has stopped."""
    for what in ("ended a process", "started a process"):
        first, frozen = started(signal.pause), Freezer()
        others = [started(signal.pause) for _ in range(freezer.REPEATS)]
        for other in others:
            assert frozen.ran == ""
            assert frozen.freeze() == 0
            if what.startswith("ended"):
                os.kill(other, signal.SIGKILL)
                os.waitpid(other, 0)
                freezer._below().remove(other)
            else:
                started(signal.pause)
            frozen.thaw()
        assert frozen.ran == what
        assert state(first) != "T"
    frozen = Freezer()
    monkeypatch.setattr(freezer, "last_started", itertools.count().__next__)  # in a PID namespace: gone before we look
    for _ in range(freezer.REPEATS):
        assert frozen.ran == ""
        frozen.freeze()
        frozen.thaw()
    assert frozen.ran == "started a process"


def rank() -> tuple[Rank, Channel]:
    made = Rank("candidate", 0)
    os.close(made.log.fd)
    os.close(made.log.write_fd)
    return made, Channel(made.their_sock)


def test_a_file_counts_from_when_nobody_can_change_it() -> None:
    parent_end, theirs = rank()
    fd = new_file("output")
    seal(fd)
    before_ns = time.monotonic_ns()
    theirs.send_files([fd])
    theirs.send(Done())
    assert parent_end.read()
    assert parent_end.read()
    assert before_ns < parent_end.sealed_ns < time.monotonic_ns()
    assert list(parent_end.inbox) == [Done()]
    [received] = parent_end.take_files()
    assert os.fstat(received).st_ino == os.fstat(fd).st_ino
    for one in (fd, received):
        os.close(one)


@pytest.mark.parametrize("kind", ["unsealed", "a pipe", "many"])
def test_other_files_end_it(kind: str) -> None:
    parent_end, theirs = rank()
    fds = list(os.pipe()) if kind == "a pipe" else [new_file("output")]
    if kind == "many":
        seal(fds[0])
    for _ in range(100 if kind == "many" else 1):
        theirs.send_files(fds[:1])
        parent_end.read()
    assert parent_end.gone == "sent a file that it can still change"
    for fd in [*fds, *parent_end.take_files()]:
        os.close(fd)


def test_files_go_beside_messages_and_between_them() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        fd = new_file("input")
        ours.sendall(frame(Done()))
        send_files(ours, [fd])
        ours.sendall(frame(Done()))
        send_files(ours, [])
        channel = Channel(theirs)
        assert channel.receive(Done) == Done()
        assert channel.receive(Done) == Done()
        channel.receive_files()
        assert len(channel.files) == 1
        os.close(channel.files.popleft())
        os.close(fd)
    assert MessageParser().feed(b"\0\0\0\0" + frame(Done()) + b"\0\0") == [Done()]


def test_a_rank_that_sends_replies_which_nobody_asked_for_has_crashed() -> None:
    """They would be kept in the parent, however many they are."""
    parent_end, theirs = rank()
    for _ in range(MOST_REPLIES):
        theirs.send(Done())
    parent_end.read()
    assert len(parent_end.inbox) == MOST_REPLIES
    assert not parent_end.gone
    theirs.send(Done())
    parent_end.read()
    assert parent_end.inbox
    assert parent_end.gone == "sent more than 16 replies that nobody asked for"


def test_so_has_one_that_sends_faster_than_it_is_listened_to() -> None:
    parent_end, theirs = rank()
    theirs.sock.setblocking(False)
    for _ in range(10_000):
        with contextlib.suppress(BlockingIOError):
            theirs.sock.send(bytes(1 << 16))
        if not parent_end.read():
            break
    assert parent_end.gone == "sent more than 8 MiB that nobody asked for"
    assert len(parent_end.unparsed) < 9 << 20
