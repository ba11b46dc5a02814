"""Runs jobs on a Slurm cluster, by sbatch, squeue, scontrol and scancel.

A job's folder lies on a file system that this machine and the nodes share. Slurm says where a job waits or runs; how it
ended is in a file that node.py writes there. Slurm's accounting (sacct) is not needed, nor pickles or a broker. A
controller that does not answer for a while loses no job: the last known state stands until it is back.
"""

import errno
import getpass
import hashlib
import json
import math
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.core import files
from harness.core.json_file import file_if_any
from harness.engine import base, node
from harness.engine.base import EngineError, Job, JobDone, Lost, Running, State, Ticket, Waiting
from harness.engine.folders import JobFolders

SLURM_ID = "slurm.json"  # in a job's folder: the number that Slurm gave it
SLURM_OUT = "slurm.out"  # what node.py and Slurm printed
COMMAND_S = 30.0  # for a command of Slurm's
SILENT_S = 900.0  # for which Slurm may not answer
LOOK_S = 1.0  # between two looks at Slurm's queue
SETTLE_S = 5.0  # for files of an ended job to be seen here: file systems over a network are late
LATE_S = 90.0  # where Slurm says that it came to its end: NFS keeps what is known of a folder for up to 60 s
GONE_S = 60.0  # for a cancelled job to end
SPARE_S = 120.0  # by which Slurm's limit is above a job's deadline, which node.py sees to
FULL = (errno.ENOSPC, errno.EDQUOT)
HAS_NODES = {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "STAGE_OUT", "SIGNALING"}
ALIVE = {"PENDING", "CONFIGURING", "REQUEUED", *HAS_NODES}


@dataclass(frozen=True, kw_only=True)
class SlurmSettings:
    """What engine.yaml says of a cluster. `folder`: where jobs have their folders, which all nodes see; below the
    checkout if it is relative. `nodes`: of each job. `jobs_at_once`: of a server's submissions. `python`: the
    interpreter on the nodes. `options` go to sbatch as they are."""

    engine: Literal["slurm"]
    folder: str = ".cache/jobs"
    partition: str = ""
    account: str = ""
    nodes: int = 1
    gpus_per_node: int = 0
    exclusive: bool = False
    time_limit_min: int = 60
    jobs_at_once: int = 1
    python: str = ""
    options: tuple[str, ...] = ()

    def sbatch(self) -> list[str]:
        """The options of sbatch that all jobs have."""
        named = {"partition": self.partition, "account": self.account, "gpus-per-node": self.gpus_per_node}
        chosen = [f"--{name}={value}" for name, value in named.items() if value]
        several = [f"--nodes={self.nodes}", "--ntasks-per-node=1"] if self.nodes > 1 else []
        return [*chosen, *several, *(["--exclusive"] if self.exclusive else []), *self.options]


@dataclass(frozen=True)
class _Seen:
    """A job as squeue or scontrol tells it: its number, state, nodes, and its script's exit code and signal."""

    number: str
    state: str
    nodes: str
    code: int = 0


class SlurmEngine(JobFolders):
    """An Engine whose jobs run in `cwd` with the environment `environ`, beside what Slurm sets on the node; `folder`
    holds the jobs' folders, is this engine's alone, and all nodes see it."""

    outlived = True

    def __init__(self, folder: Path, cwd: Path, environ: Mapping[str, str], settings: SlurmSettings) -> None:
        super().__init__(folder.resolve())
        self._cwd, self._environ, self._settings = cwd, dict(environ), settings
        self.at_once = settings.jobs_at_once
        # Other engines' jobs of this user have other names.
        self._prefix = f"eval-{hashlib.sha256(str(self._folder).encode()).hexdigest()[:8]}-"
        self._queue: dict[str, _Seen] = {}  # by the jobs' names
        self._looked_s, self._answered_s = -LOOK_S, time.monotonic()
        self._known_s = -math.inf  # of when the queue is
        self._submitted_s: dict[str, float] = {}  # when
        self._cancelled: dict[str, float] = {}  # when
        self._gone_s: dict[str, float] = {}  # when a job was first seen to be in no queue
        self._last: dict[str, _Seen] = {}  # Slurm's record of those that have ended

    def submit(self, job: Job) -> Ticket:
        try:
            return self._submitted(job)
        except OSError as error:
            if error.errno not in FULL:
                raise
            raise base.UnavailableError(f"{self._folder}: {error.strerror}; free space there") from None

    def _submitted(self, job: Job) -> Ticket:
        folder = self._made(job)
        order = {
            "command": [word.replace(base.FOLDER, str(folder)) for word in job.command],
            "deadline_s": job.deadline_s,
            "cwd": str(self._cwd),
            "environ": self._environ,
            "out": base.OUT,
            "err": base.ERR,
        }
        try:
            files.replace_file(folder / node.ORDER, json.dumps(order).encode(), is_alone=True)
            (folder / node.ORDER).chmod(0o600)  # an environment may have secrets
            number = self._sbatch(job, folder)
            files.replace_file(folder / SLURM_ID, json.dumps({"job": number}).encode(), is_alone=True)
        except BaseException:
            files.remove(folder)  # a job that Slurm has all the same finds no order, and ends
            raise
        self._submitted_s[job.id] = time.monotonic()
        return job.ticket

    def poll(self, ticket: Ticket) -> State:
        if not self._of(ticket).is_dir():
            return Lost(why="there is no such job")
        if (end := self._end(ticket)) is not None:
            return end
        seen = self._look().get(self._prefix + ticket.id)
        if seen is not None and seen.state in ALIVE:
            self._gone_s.pop(ticket.id, None)
            return Running(events=self._events(ticket)) if seen.state in HAS_NODES else Waiting()
        return self._left(ticket)

    def cancel(self, ticket: Ticket) -> None:
        if not isinstance(self.poll(ticket), JobDone | Lost):
            try:
                self._run("scancel", "--full", f"--name={self._prefix}{ticket.id}", f"--user={getpass.getuser()}")
            except EngineError as error:
                raise EngineError(f"job {self.number(ticket)} may still run, `scancel` it later: {error}") from None
            self._cancelled[ticket.id] = time.monotonic()

    def discard(self, ticket: Ticket) -> None:
        """See Engine. Raises EngineError if Slurm does not end it."""
        self.cancel(ticket)
        until = time.monotonic() + GONE_S
        while not isinstance(self.poll(ticket), JobDone | Lost):
            if time.monotonic() > until:
                raise EngineError(f"job {self.number(ticket)} still runs {GONE_S:.0f} s after scancel; ask squeue why")
            time.sleep(LOOK_S / 4)
        for known in (self._cancelled, self._submitted_s, self._gone_s, self._last):
            known.pop(ticket.id, None)
        files.remove(self._of(ticket))

    def number(self, ticket: Ticket) -> str:
        """Slurm's number of the job; "" if that is not known."""
        return str((file_if_any(dict[str, Any], self._of(ticket) / SLURM_ID) or {}).get("job", ""))

    # ---- Slurm

    def _sbatch(self, job: Job, folder: Path) -> str:
        minutes = math.ceil((job.deadline_s + SPARE_S) / 60)
        program = [self._settings.python or sys.executable, "-I", "-S", node.__file__, str(folder)]
        script = f"#!/bin/sh\nexec {shlex.join(program)}\n"
        options = [f"--job-name={self._prefix}{job.id}", f"--output={folder / SLURM_OUT}", f"--time={minutes}"]
        fixed = ["--parsable", "--no-requeue", "--export=NIL", f"--chdir={folder}", "--signal=B:TERM@30"]
        try:
            told = self._run("sbatch", *fixed, *options, *self._settings.sbatch(), stdin=script)
        except base.NotInstalledError:
            raise
        except EngineError as error:
            raise error if self._answers() else base.UnavailableError(str(error)) from None
        # A site's own sbatch may print more, or other words; the job is known by its name.
        return "".join(re.findall(r"^(?:Submitted batch job )?(\d+)(?:[; ].*)?$", told, re.MULTILINE)[-1:])

    def _answers(self) -> bool:
        """Whether a refusal of sbatch's is the controller's, which may have restarted meanwhile."""
        try:
            return "UP" in self._run("scontrol", "ping").split()
        except EngineError:
            return False

    def _look(self) -> dict[str, _Seen]:
        """Slurm's queue, of LOOK_S ago at most, or older while Slurm is silent; OSError after SILENT_S of silence."""
        now = time.monotonic()
        if now - self._looked_s < LOOK_S:
            return self._queue
        self._looked_s = now
        try:
            told = self._run("squeue", "--noheader", f"--user={getpass.getuser()}", "--format=%j|%i|%T|%N")
        except EngineError as error:
            if now - self._answered_s > SILENT_S:
                raise OSError(f"Slurm has not answered for {SILENT_S / 60:.0f} min: {error}") from None
            return self._queue
        rows = (line.split("|") for line in told.splitlines())
        self._queue = {row[0]: _Seen(row[1], row[2], row[3]) for row in rows if len(row) == 4}
        self._answered_s = self._known_s = time.monotonic()
        return self._queue

    def _left(self, ticket: Ticket) -> State:
        """The state of a job that has left Slurm's queue, or never came there, and that has not told its end yet."""
        now = time.monotonic()
        if (cancelled_s := self._cancelled.get(ticket.id)) is not None:
            is_gone = self._answered_s > cancelled_s
            return JobDone(end=base.Cancelled(), has_result=self._has_result(ticket)) if is_gone else Running()
        has_begun = (self._of(ticket) / node.STARTED).exists()
        alive = Running(events=self._events(ticket)) if has_begun else Waiting()
        if self._known_s <= self._submitted_s.get(ticket.id, -math.inf):
            return alive  # Slurm has been silent since the job was submitted, or since this engine began
        gone_s = now - self._gone_s.setdefault(ticket.id, now)
        if gone_s < SETTLE_S:
            return alive
        if self._has_result(ticket):
            return JobDone(end=base.Unwatched(), has_result=True)
        seen = self._last.get(ticket.id) or self._told_at_last(ticket)
        if seen is None:
            return Lost(why="Slurm does not know the job, and it left no result") if self._answers() else alive
        if seen.state in ALIVE:
            del self._gone_s[ticket.id]
            return alive
        self._last[ticket.id] = seen
        return alive if seen.state == "COMPLETED" and gone_s < LATE_S else _without_end(seen, has_begun)

    def _told_at_last(self, ticket: Ticket) -> _Seen | None:
        """Slurm's record of a job that is no longer in the queue."""
        number = self.number(ticket)
        try:
            told = self._run("scontrol", "show", "job", "--oneliner", number) if number else ""
        except EngineError:
            return None
        fields = dict(re.findall(r"(\w+)=(\S*)", told))
        if "JobState" not in fields:
            return None
        code, _, by_signal = fields.get("ExitCode", "0:0").partition(":")
        nodes = fields.get("NodeList", "").replace("(null)", "")
        return _Seen(number, fields["JobState"], nodes, int(code) or -int(by_signal or 0))

    def _run(self, command: str, *arguments: str, stdin: str = "") -> str:
        """The command's output. Raises EngineError where it fails or does not come to an end."""
        try:
            ran = subprocess.run(
                [command, *arguments], input=stdin, capture_output=True, text=True, errors="replace", timeout=COMMAND_S
            )
        except FileNotFoundError:
            raise base.NotInstalledError(
                f"{command}: not installed here; Debian and Ubuntu have it in slurm-client, and engine.yaml is for "
                "machines that can submit to a cluster"
            ) from None
        except subprocess.TimeoutExpired:
            raise EngineError(f"{command} did not answer for {COMMAND_S:.0f} s; does `scontrol ping` answer?") from None
        if ran.returncode != 0:
            said = " ".join(ran.stderr.split()) or f"exit code {ran.returncode}"
            advice = "; engine.yaml has the partition, the account and options" if command == "sbatch" else ""
            raise EngineError(f"{command} refused: {said}{advice}")
        return ran.stdout

    def _end(self, ticket: Ticket) -> JobDone | None:
        """How the job ended, where node.py has told."""
        told = file_if_any(dict[str, Any], self._of(ticket) / node.END) or {}
        end: base.End
        match told.get("type"):
            case None:
                return None
            case _ if ticket.id in self._cancelled:
                end = base.Cancelled()
            case "overdue":
                end = base.Overdue()
            case "failed":
                end = base.Exited(code=127)
            case _:
                end = base.Exited(code=int(told["code"]))
        return JobDone(end=end, has_result=self._has_result(ticket))


def _without_end(seen: _Seen, has_begun: bool) -> State:
    """The end of a job that left no word of its own, by Slurm's last state."""
    match seen.state:
        case "CANCELLED" if seen.nodes and not has_begun:  # by Slurm itself, where slurmd's disk is full
            return Lost(why=f"Slurm could not start job {seen.number} on {seen.nodes}; `sinfo -R` may say why")
        case "CANCELLED":
            return JobDone(end=base.Exited(code=-signal.SIGTERM), has_result=False)
        case "TIMEOUT":
            return JobDone(end=base.Overdue(), has_result=False)
        case "FAILED" if seen.code == node.NO_ROOM and not has_begun:
            return Lost(why=f"the folder of job {seen.number} has no space left, as {seen.nodes} sees it; free some")
        case "FAILED" if seen.code > 0:  # node.py could not start
            return JobDone(end=base.Exited(code=seen.code), has_result=False)
    return Lost(why=f"Slurm's job {seen.number} ended as {seen.state} on {seen.nodes or 'no node'} and left no result")
