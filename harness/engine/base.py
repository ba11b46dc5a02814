"""The seam between a queue and the place where its jobs run: the records of a job, and the protocol of an engine.

A job is a command that leaves a JSON object in RESULT and may write a line to EVENTS whenever there is news. It gets a
folder of its own, which is wherever the engine puts it; FOLDER stands for it in the command. What else the command
names must be readable where the engine runs it.

An engine does not decide what runs when: it says how many jobs it takes at a time; which is next is the queue's to say.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.core.errors import Exit, HarnessError

FOLDER = "{job}"  # in a command: the job's folder
RESULT = "result.json"  # in the job's folder: what came of it, written by the job
EVENTS = "events.jsonl"  # lines that the job writes while it runs
OUT = "out.txt"  # what it prints on standard output
ERR = "err.txt"  # and on standard error
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # of a job


class EngineError(HarnessError):
    """The engine cannot do what it was asked to."""


class UnavailableError(EngineError):
    """The engine takes no job now: the cluster does not answer, or the disk is full. The job may be submitted later."""


class NotInstalledError(UnavailableError):
    """This machine lacks the engine's commands."""

    exit_code = Exit.USAGE


@dataclass(frozen=True, kw_only=True)
class Ticket:
    """A job's name in its engine. It can be made again from the job's name, after the queue was restarted."""

    id: str

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.id):
            raise ValueError(f"'{self.id}': expected up to 64 letters, digits, dots, dashes and underscores")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A command to run, under a name that the engine has not seen. `deadline_s` counts from the command's start."""

    id: str
    command: tuple[str, ...]
    deadline_s: float

    @property
    def ticket(self) -> Ticket:
        """The job's ticket. Raises ValueError if the name cannot be one."""
        return Ticket(id=self.id)


# ---- how a job ends --------------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Exited:
    """The command ended by itself, with this exit code; minus a signal's number if the signal killed it."""

    code: int


@dataclass(frozen=True)
class Overdue:
    """The engine ended it at its deadline."""


@dataclass(frozen=True)
class Cancelled:
    """The engine ended it because it was told to."""


@dataclass(frozen=True)
class Unwatched:
    """The job ended while no engine watched, so that its exit code is unknown; it left a result."""


End = Exited | Overdue | Cancelled | Unwatched


# ---- the states of a job ---------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Waiting:
    """The engine has the job and has not started it: it waits in a cluster's queue, say."""


@dataclass(frozen=True, kw_only=True)
class Running:
    """The command runs; `events` are the lines that it has written to EVENTS so far."""

    events: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class JobDone:
    """None of its processes is left. `has_result`: RESULT holds a whole JSON object, however the job was ended."""

    end: End
    has_result: bool


@dataclass(frozen=True, kw_only=True)
class Lost:
    """The job is gone and left no result, and nobody saw how it ended: the engine or the machine died under it, or
    the engine never had it. It can be submitted once more, under another name."""

    why: str


State = Waiting | Running | JobDone | Lost


class Engine(Protocol):
    """Where jobs run. All calls come from one thread, which must outlive the jobs that it submitted."""

    @property
    def at_once(self) -> int:
        """How many jobs may be submitted and not done at a time; 1 where they would share devices."""

    @property
    def outlived(self) -> bool:
        """Whether jobs run on when the engine's process ends, and a later engine finds them."""

    def submit(self, job: Job) -> Ticket:
        """Starts the job, or queues it. Raises ValueError for a name that cannot be one, EngineError for a name that
        is taken, UnavailableError if no job can be submitted now, and OSError if this one cannot be started."""

    def poll(self, ticket: Ticket) -> State:
        """How the job stands. Waits only for processes that it ends at a deadline. OSError if it is not known now."""

    def cancel(self, ticket: Ticket) -> None:
        """Ends the job with all its processes; `poll` tells when they are gone, which may be later. Nothing happens if
        it is not running. Raises EngineError if the engine cannot be told."""

    def fetch(self, ticket: Ticket, into: Path) -> Path:
        """The folder with the files of a job that is done: the job's own folder if this machine can read it, otherwise
        a copy in `into`. Raises EngineError if there is no such job or it still runs, OSError if copying fails."""

    def printed(self, ticket: Ticket, name: str, start: int) -> bytes:
        """The bytes that the job has written to OUT or ERR (`name`), from byte `start` on; none for an unknown job."""

    def discard(self, ticket: Ticket) -> None:
        """Removes what the engine keeps of the job, if it knows it, once it has cancelled it and waited for its end."""

    def tickets(self) -> Sequence[Ticket]:
        """All jobs that were not discarded, those from before a restart included: the queue decides about each."""
