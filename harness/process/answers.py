"""Runs an untrusted program that prints better and better answers, and time-stamps each answer as it arrives.

An answer is a line that begins with `[` and ends with `]`. Knows how programs are started, limited, watched and ended;
does not know what an answer means. The clock is the parent's; it runs from when the program is about to be executed.
"""

import math
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from harness.core.checkout import ROOT
from harness.core.decode import part
from harness.core.errors import HarnessError
from harness.core.json_file import line_of
from harness.core.processes import descendants, end_tree
from harness.process import cgroup, usage
from harness.process.child import end_text, has_ended, read_pipes
from harness.process.confined import STARTED, ConfinedOrder

POLL_S = 0.05
WATCH_S = 0.25  # between two looks at what the program's processes use
LINE_BYTES = 64 << 20  # an answer for ten million nodes
MOST_KEPT, KEPT_BYTES = 512, 256 << 20  # answers, and their text; beyond, every second one of the older ones is dropped
START_S = 60.0  # for the launcher to come to the program
OVERHEAD_TASKS = 2  # of the launcher, in the program's group
STDERR_BYTES = STATUS_BYTES = 1 << 16
DRAIN_S = 2.0


@dataclass(frozen=True, kw_only=True)
class ProcessLimits:
    """The limits of a program. It is ended after `wall_s`; no answer counts that comes after `answer_s`. `memory_bytes`
    is of all its processes together, with memory that they share and files of memory, once each; `tasks` are its
    processes and their threads."""

    wall_s: float
    cores: tuple[int, ...]
    memory_bytes: int
    answer_s: float = math.inf
    output_bytes: int = 1 << 30
    tasks: int = 512


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A line that may be an answer, `at_s` seconds after the program was started."""

    at_s: float
    text: bytes


@dataclass(frozen=True, kw_only=True)
class Finished:
    """How a run of a program ended after `seconds`. `broke` says which limit it broke, in words, and is empty where it
    broke none; `ended` how it ended otherwise (`exited with code 1`), empty where it ended in order."""

    answers: tuple[Answer, ...]
    late_answers: int
    seconds: float
    is_late: bool  # it still ran at the limit of the wall clock
    broke: str
    ended: str
    stderr: str
    peak_bytes: int
    lacking: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Command:
    """A program in `folder`/work, which with `cache` is all that it may write to. Of the folders in `hidden` it sees
    only those in `shown`, and what Python imports."""

    arguments: tuple[str, ...]
    folder: Path
    cache: Path
    environ: Mapping[str, str]
    hidden: tuple[Path, ...] = ()
    shown: tuple[Path, ...] = ()
    confined: bool = True


def run(command: Command, limits: ProcessLimits) -> Finished:
    """Runs it to its end or to a limit, and ends what is left of it. HarnessError if it cannot start."""
    status_fd, their_fd = os.pipe()
    group = cgroup.make(
        cgroup.Most(cores=limits.cores, memory_bytes=limits.memory_bytes, tasks=limits.tasks + OVERHEAD_TASKS)
    )
    order = part(
        command,
        ConfinedOrder,
        command=command.arguments,
        cores=limits.cores,
        memory_bytes=limits.memory_bytes,
        status_fd=their_fd,
        groups=group.places,
        kept=group.kept,
    )
    child = subprocess.Popen(
        [sys.executable, "-m", "harness.process.confined", line_of(order)],
        cwd=ROOT,
        env=dict(command.environ),
        pass_fds=[their_fd],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(their_fd)
    reading = _Reading(child, limits, status_fd, group)
    try:
        reading.until_end()
    finally:
        end_tree(child.pid)
        child.wait()
        hit = group.hit()
        group.end()
        reading.drain()
    lacking, _, said = reading.status.decode(errors="replace").partition(STARTED.decode())
    is_started = STARTED in reading.status
    ended = _ending(said.partition("\n")[0]) if said or not is_started else "ended the process that waits for it"
    if cgroup.MEMORY in hit:
        reading.broke = _too_much(limits)
    elif cgroup.TASKS in hit and ended:
        reading.broke = _too_many(limits)
    if not is_started and not reading.broke and not reading.is_late:
        raise HarnessError(f"{command.arguments[0]} was not started: {reading.stderr_text()}")
    return part(
        reading,
        Finished,
        answers=tuple(reading.answers),
        ended=ended,
        stderr=reading.stderr_text(),
        lacking=tuple(filter(None, lacking.split("\n"))),
    )


def _too_much(limits: ProcessLimits) -> str:
    return f"used more than {limits.memory_bytes / 2**30:.1f} GiB of memory"


def _too_many(limits: ProcessLimits) -> str:
    return f"ran more than {limits.tasks} processes and threads"


def _ending(said: str) -> str:
    if not said.isdigit():
        return said
    code = os.waitstatus_to_exitcode(int(said))
    return end_text(code) if code else ""


@dataclass
class _Line:
    """The line that is being read: its beginning, or nothing where it is no answer or too long."""

    data: bytearray = field(default_factory=bytearray)
    is_answer: bool | None = None  # not known before its first character

    def add(self, data: bytes) -> None:
        if self.is_answer is None and data.strip():
            self.is_answer = data.lstrip().startswith(b"[")
        if self.is_answer and len(self.data) + len(data) > LINE_BYTES:
            self.is_answer = False
            self.data.clear()
        if self.is_answer:
            self.data += data

    def answer(self) -> bytes | None:
        text = bytes(self.data).strip()
        return text if self.is_answer and text.endswith(b"]") else None


class _Reading:
    """Reads a program's output as it comes, and watches what the program takes."""

    def __init__(
        self, child: subprocess.Popen[bytes], limits: ProcessLimits, status_fd: int, group: cgroup.Cgroup
    ) -> None:
        assert child.stdout is not None
        assert child.stderr is not None
        self.child, self.limits, self.group = child, limits, group
        self.began = time.monotonic()
        self.answers: list[Answer] = []
        self.late_answers = self.kept_bytes = self.output_bytes = self.peak_bytes = 0
        self.status = b""
        self.line = _Line()
        self.stderr = bytearray()
        self.is_late, self.broke, self.seconds = False, "", 0.0
        self.selector = selectors.DefaultSelector()
        self.pipes: tuple[tuple[IO[bytes], object], ...] = (
            (os.fdopen(status_fd, "rb"), self._take_status),
            (child.stdout, self._take),
            (child.stderr, self._take_error),
        )
        for pipe, take in self.pipes:
            os.set_blocking(pipe.fileno(), False)
            self.selector.register(pipe, selectors.EVENT_READ, take)

    def until_end(self) -> None:
        watch_at = self.began
        while not self.broke:
            now = time.monotonic()
            self.seconds = now - self.began
            if has_ended(self.child.pid):  # its number stays its own until all below it have been ended
                return
            wall_s = self.limits.wall_s if STARTED in self.status else START_S
            if self.seconds >= wall_s:
                self.is_late = True
                return
            if now >= watch_at:
                watch_at = now + WATCH_S
                self._watch()
            read_pipes(self.selector, min(POLL_S, wall_s - self.seconds))

    def drain(self) -> None:
        """Reads what is still in the pipes, and closes them. What is last need not end with a line end."""
        end = time.monotonic() + DRAIN_S
        while self.selector.get_map() and not self.broke and time.monotonic() < end:
            read_pipes(self.selector, POLL_S)
        if not self.broke:
            self._keep(self.line.answer())
        self.selector.close()
        for pipe, _ in self.pipes:
            pipe.close()

    def stderr_text(self) -> str:
        return self.stderr.decode(errors="replace")

    def _take(self, data: bytes) -> None:
        self.output_bytes += len(data)
        if self.output_bytes > self.limits.output_bytes:
            self.broke = f"printed more than {self.limits.output_bytes >> 20} MiB"
        *whole, rest = data.split(b"\n")
        newest = None  # of those that arrived at once
        for text in whole:
            self.line.add(text)
            newest = self.line.answer() or newest
            self.line = _Line()
        self.line.add(rest)
        self._keep(newest)

    def _keep(self, text: bytes | None) -> None:
        if text is None:
            return
        at_s = time.monotonic() - self.began
        if at_s > self.limits.answer_s:
            self.late_answers += 1
            return
        self.answers.append(Answer(at_s=at_s, text=text))
        self.kept_bytes += len(text)
        if self.kept_bytes > KEPT_BYTES or len(self.answers) > MOST_KEPT:
            self.answers = self.answers[-1::-2][::-1]  # the newest stays
            self.kept_bytes = sum(len(one.text) for one in self.answers)

    def _take_status(self, data: bytes) -> None:
        if STARTED in data and STARTED not in self.status:
            self.began = time.monotonic()
        self.status = (self.status + data)[:STATUS_BYTES]

    def _take_error(self, data: bytes) -> None:
        self.stderr = (self.stderr + data)[-STDERR_BYTES:]

    def _watch(self) -> None:
        """Ends what takes too many processes or too much memory."""
        used = self.group.used_bytes()
        if used is None or cgroup.TASKS not in self.group.kept:
            below = descendants(self.child.pid)
            tasks = sum(map(usage.tasks, below))
            if tasks > self.limits.tasks + OVERHEAD_TASKS:
                self.broke = _too_many(self.limits)
                return
            used = usage.memory(below) if used is None else used
        self.peak_bytes = max(self.peak_bytes, used)
        if used > self.limits.memory_bytes:
            self.broke = _too_much(self.limits)
