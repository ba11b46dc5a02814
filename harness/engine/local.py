"""Runs jobs on this machine: each is a child process with a session and process group of its own.

A job's folder lies in the engine's. Beside the files that base names it has ORDER, the job as it was submitted, and
LOCK, which the job holds as long as it lives (child.py). A job ends when its engine's process does. A later engine over
the same folder finds the job by these files, whether it is still ending or has left a result.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.core import files
from harness.core.json_file import line_of
from harness.core.processes import end_group, end_tree
from harness.engine import base
from harness.engine.base import End, Job, JobDone, State, Ticket
from harness.engine.folders import JobFolders
from harness.process.child import has_ended

CHILD = Path(__file__).with_name("child.py")
ORDER = "order.json"
LOCK = "lock"
END_S = 10.0  # from asking a job to end until it is killed
POLL_S = 0.05


@dataclass(kw_only=True)
class _Child:
    """A job that this engine started; `end` once it is known."""

    process: "subprocess.Popen[bytes]"
    deadline_s: float  # by the monotonic clock
    end: End | None = None


class LocalEngine(JobFolders):
    """An Engine whose jobs run in `cwd` with exactly `environ`; `folder`, its own, holds the jobs' folders."""

    at_once = 1  # all would share this machine's devices
    outlived = False

    def __init__(self, folder: Path, cwd: Path, environ: Mapping[str, str]) -> None:
        super().__init__(folder)
        self._cwd, self._environ = cwd, dict(environ)
        self._children: dict[str, _Child] = {}

    def submit(self, job: Job) -> Ticket:
        folder = self._made(job)
        try:
            files.replace_file(folder / ORDER, line_of(job).encode(), is_alone=True)
            process = self._started(job, folder)
        except BaseException:
            files.remove(folder)
            raise
        self._children[job.id] = _Child(process=process, deadline_s=time.monotonic() + job.deadline_s)
        return job.ticket

    def poll(self, ticket: Ticket) -> State:
        child = self._children.get(ticket.id)
        if child is None:
            return self._from_before(ticket)
        if child.end is None and has_ended(child.process.pid):
            child.end = base.Exited(code=_reaped(child.process))
        elif child.end is None and time.monotonic() > child.deadline_s:
            _end(child.process)
            child.end = base.Overdue()
        if child.end is None:
            return base.Running(events=self._events(ticket))
        return JobDone(end=child.end, has_result=self._has_result(ticket))

    def cancel(self, ticket: Ticket) -> None:
        child = self._children.get(ticket.id)
        if child is None:
            while (pid := _holder(self._of(ticket) / LOCK)) is not None:
                end_tree(pid, END_S)
                time.sleep(POLL_S)
        elif child.end is None:
            _end(child.process)
            child.end = base.Cancelled()

    def discard(self, ticket: Ticket) -> None:
        self.cancel(ticket)
        self._children.pop(ticket.id, None)
        files.remove(self._of(ticket))

    def _started(self, job: Job, folder: Path) -> "subprocess.Popen[bytes]":
        command = [word.replace(base.FOLDER, str(folder)) for word in job.command]
        guarded = [sys.executable, "-I", "-S", str(CHILD), str(folder / LOCK), str(os.getpid()), *command]
        with (folder / base.OUT).open("wb") as out, (folder / base.ERR).open("wb") as err:
            return subprocess.Popen(
                guarded,
                cwd=self._cwd,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def _from_before(self, ticket: Ticket) -> State:
        """The state of a job that an earlier engine over the same folder started."""
        folder = self._of(ticket)
        if _holder(folder / LOCK) is not None:
            return base.Running(events=self._events(ticket))
        if self._has_result(ticket):
            return JobDone(end=base.Unwatched(), has_result=True)
        return base.Lost(why="its process is gone and left no result" if folder.exists() else "there is no such job")


# ---- processes -------------------------------------------------------------------------------------------------------
def _reaped(process: "subprocess.Popen[bytes]") -> int:
    """The exit code of a process that has ended, after what is left of its group was killed."""
    end_group(process.pid)
    return process.wait()


def _end(process: "subprocess.Popen[bytes]") -> None:
    end_tree(process.pid, END_S)
    _reaped(process)


def _holder(lock: Path) -> int | None:
    """The process that holds the lock file's lock; None if none does."""
    return int(files.read_text(lock)) if files.is_locked(lock) else None
