"""Who is on turn runs, and nobody else; a rank that is late waits alone; files that can still change are refused."""

import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from harness.core.records import EvalReport, Measured
from harness.kinds.op_calls import Calls
from harness.machine.host import descendants, state
from harness.ranks import zygote
from harness.ranks.channel import Channel, Parser, frame, send_files
from harness.ranks.rank import Rank
from harness.ranks.shared_buffer import new_file, seal
from harness.ranks.wire import Done
from harness.ranks.witness import Turn

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
    """Also those that the submission has started."""
    turn = Calls.turn
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

    monkeypatch.setattr(Calls, "turn", watching)
    report = evaluated(COUNTS, mode="benchmark")
    assert all(isinstance(result.outcome, Measured) for result in report.results), report.results
    assert len(seen) > 30
    assert set().union(*seen) <= {"T"}


def parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def test_processes_that_wake_each_other_are_stopped_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even without a PID namespace, where they are stopped one by one."""
    busy: list[int] = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            os.setpgid(0, busy[0] if busy else 0)
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                os.killpg(0, signal.SIGCONT)
            os._exit(0)
        busy.append(child)
        time.sleep(0.05)  # the first has to have its group
    try:
        monkeypatch.setattr(zygote, "descendants", lambda root: busy)
        assert zygote.freeze() == 0
        assert [state(pid) for pid in busy] == ["T", "T"]
        zygote.signal_all(signal.SIGCONT)
        assert "T" not in [state(pid) for pid in busy]
    finally:
        for pid in busy:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


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
    assert Parser().feed(b"\0\0\0\0" + frame(Done()) + b"\0\0") == [Done()]
