"""Tasks of a server for agents: verbs of this harness as child processes, one at a time, followed by long polls.

A child ends with the server, also where that is killed. Only the last TASKS are kept.
"""

import contextlib
import itertools
import os
import queue
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal

from harness.core.checkout import ROOT
from harness.core.errors import UsageError
from harness.core.events import RunningStage, event_of
from harness.core.files import read_text, scratch
from harness.core.processes import PR_SET_PDEATHSIG
from harness.core.words import clean, clean_line
from harness.machine import host
from harness.process.sandbox import prctl

TASKS, WAITING = 200, 64  # kept at most, and waiting at most
END_S = 20.0  # for an evaluation to end its ranks
TAIL_CHARS = 2000
EVENTS = "events"
State = Literal["waiting", "running", "done", "cancelled"]
Read = Callable[[Path, int, str], dict[str, Any]]  # the folder, the exit code and what was printed -> the result


@dataclass(eq=False)
class ToolTask:
    """One verb: `files` are written to its folder, which `words` may name by `{folder}`; `read` makes the result."""

    words: Sequence[str]
    files: Mapping[str, str]
    read: Read
    id: str = ""
    state: State = "waiting"
    progress: str = ""
    result: dict[str, Any] | None = None
    process: "subprocess.Popen[bytes] | None" = None
    ended: threading.Event = field(default_factory=threading.Event)

    def told(self) -> dict[str, Any]:
        return {"task": self.id, "state": self.state, "progress": self.progress, "result": self.result}


class Tasks:
    """The queue, a context: leaving it ends what runs."""

    def __init__(self, root: Path) -> None:
        self._root = root  # in which verbs run
        self._tasks: dict[str, ToolTask] = {}
        self._queue: queue.SimpleQueue[ToolTask | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True, name="tasks")
        self._is_over = False
        self._lock = threading.Lock()

    def __enter__(self) -> "Tasks":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over = True
        for task in self._tasks.values():
            self._end(task)
        self._queue.put(None)
        self._thread.join(END_S)

    def add(self, task: ToolTask) -> ToolTask:
        """Puts it into the queue. Raises UsageError where too many wait."""
        if sum(one.state == "waiting" for one in self._tasks.values()) >= WAITING:
            raise UsageError(f"{WAITING} tasks wait already; wait for one, or cancel one")
        task.id = secrets.token_hex(6)
        ended = [id_ for id_, one in self._tasks.items() if one.ended.is_set()]
        for id_ in itertools.islice(ended, max(0, len(self._tasks) - TASKS + 1)):
            del self._tasks[id_]
        self._tasks[task.id] = task
        self._queue.put(task)
        return task

    def find(self, id_: str) -> ToolTask:
        """Raises UsageError where there is none, or none any more."""
        if id_ not in self._tasks:
            raise UsageError(f"no task {id_[:20]!r}; `evaluate` and its like return the ids of theirs")
        return self._tasks[id_]

    def wait(self, id_: str, seconds: float) -> ToolTask:
        """The task, when it has ended or so many seconds have passed."""
        task = self.find(id_)
        task.ended.wait(seconds)
        return task

    def cancel(self, id_: str) -> ToolTask:
        task = self.find(id_)
        self._end(task)
        return task

    def _end(self, task: ToolTask) -> None:
        with self._lock:
            if task.ended.is_set():
                return
            task.state = "cancelled"
            if task.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    task.process.send_signal(signal.SIGTERM)
            else:
                task.ended.set()

    def _work(self) -> None:
        while (task := self._queue.get()) is not None:
            if task.state == "waiting" and not self._is_over:
                try:
                    with scratch("kernel-eval-task-") as folder:
                        self._run(task, folder)
                except OSError as error:  # the machine has no more to give, as on a full disk; the queue goes on
                    task.state, task.result = "done", {"error": host.refusal(error)}
            task.ended.set()

    def _run(self, task: ToolTask, folder: Path) -> None:
        for name, text in task.files.items():
            (folder / name).write_text(text, encoding="utf-8", errors="replace")
        words = [word.replace("{folder}", str(folder)) for word in task.words]
        with open(folder / "printed", "w+b") as printed:
            with self._lock:  # no cancel comes between the state and the process
                if task.state != "waiting":
                    return
                task.state, task.process = "running", self._started(words, printed)
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = task.process.wait(0.1)
                    break
                task.progress = progress_of(folder / EVENTS)
            if task.state == "running":
                printed.seek(0)
                said = clean(printed.read().decode(errors="replace"))[-TAIL_CHARS:]
                try:
                    task.result = task.read(folder, code, said)
                except Exception as error:  # a result that is none: the harness failed, and the queue goes on
                    task.result = {"error": f"{type(error).__name__}: {clean_line(str(error))}", "printed": said}
                task.state = "done"

    def _started(self, words: Sequence[str], printed: IO[bytes]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-m", "harness", *words],
            cwd=self._root,
            env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "100"},
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            start_new_session=True,
            preexec_fn=partial(prctl, PR_SET_PDEATHSIG, signal.SIGTERM),  # ends in order when the server is gone
        )


def progress_of(path: Path) -> str:
    """How far the evaluation is, by its events: `test 1/2 M 7 H 96`."""
    stage = RunningStage(phase="")
    for event in map(event_of, read_text(path).split("\n") if path.exists() else ()):
        stage = stage.after(event) if event else stage
    return stage.text
