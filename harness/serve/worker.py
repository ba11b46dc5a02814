"""Runs what the queue holds: each evaluation is a job of an engine, which says how many it takes at a time.

Knows which submission's turn it is, how its evaluation is submitted, watched and given up, and what becomes of it in
the store; nothing of HTTP and of processes, which are the engine's, and of a result only the file that holds it. One
thread looks after all jobs. After the server died, the worker takes up the evaluations that were running: it watches
those that still run, uses a result that was written, and otherwise runs the evaluation once more (store.recover).
"""

import os
import re
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from harness.core.events import RunningStage, event_of
from harness.engine import base, registry
from harness.engine.base import Engine, Job, JobDone, Lost, Running, Ticket
from harness.problems.submission import SUFFIXES
from harness.serve import results
from harness.serve.guard import ORGANISER_VARIABLE, TOKEN_VARIABLE
from harness.serve.store import AttemptEnded, Row, Store

IDLE_S = 5.0  # at most, between two looks at the queue
POLL_S = 0.05  # between two looks at a job, for each job that there is: files on a network are not read at will
WANTED_S = 0.25  # between two looks whether a running submission was deleted
STOP_S = 30.0  # for the engine to end an evaluation when the server stops
ALL_SUFFIXES = tuple(suffix for suffixes in SUFFIXES.values() for suffix in suffixes)
WAITS = "waits for a node"
FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, kw_only=True)
class Files:
    """The files of an evaluation, as its command names them: the submission, the report as JSON, and the events."""

    source: Path
    report: Path = Path(base.FOLDER, base.RESULT)
    events: Path = Path(base.FOLDER, base.EVENTS)


Command = Callable[[Row, Files], Sequence[str]]


def engine_of(name: str, folder: Path, root: Path) -> Engine:
    """The engine of that name for the queue in `folder`, without the server's tokens in its environment."""
    secret = (TOKEN_VARIABLE, ORGANISER_VARIABLE)
    environ = {name: value for name, value in os.environ.items() if name not in secret}
    return registry.make(name, folder / "work", root, environ | {"NO_COLOR": "1", "COLUMNS": "100"}, root, "serve")


@dataclass(kw_only=True)
class _Evaluation:
    """A job that is watched. `is_cut_off`: the server that submitted it has ended, and may have ended the job. `seen`
    counts the events that `stage` knows of. `began_s` is when it was first seen to run, `looked_s` when its submission
    was last seen to be wanted."""

    row: Row
    looked_s: float
    is_cut_off: bool = False
    stage: RunningStage = field(default_factory=RunningStage)
    seen: int = 0
    began_s: float | None = None
    is_given_up: bool = False

    @property
    def ticket(self) -> Ticket:
        """The ticket of the submission's attempt, which is the same after a restart."""
        return Ticket(id=f"{self.row.id}-{self.row.attempt}")

    def follow(self, lines: Sequence[str]) -> None:
        for event in map(event_of, lines[self.seen :]):
            if event is not None:
                self.stage = self.stage.after(event)
        self.seen = len(lines)


class QueueWorker(threading.Thread):
    """Moves submissions between the store and the engine. `folder` is the queue's, for the submissions' files; an
    evaluation may take `deadline_s` in all; `settled` is called when submissions are done; `clock` is in seconds."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        folder: Path,
        command: Command,
        deadline_s: Callable[[Row], float],
        settled: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name="evaluations", daemon=True)
        self._store, self._engine, self._folder = store, engine, folder
        self._command, self._deadline_s, self._settled, self._clock = command, deadline_s, settled, clock
        self._wake, self._ending = threading.Event(), threading.Event()
        self._running: dict[int, _Evaluation] = {}  # by the submissions' numbers
        self._fill_s = 0.0  # when the queue is to be looked at again, unless something happens before

    @property
    def at_once(self) -> int:
        return self._engine.at_once

    def progress(self, id_: int) -> str:
        """How far that submission's evaluation is; empty unless it runs. May be called from any thread."""
        found = self._running.get(id_)
        return found.stage.text if found is not None else ""

    def wake(self) -> None:
        self._fill_s = 0.0
        self._wake.set()

    def stop(self) -> None:
        """Ends the thread. Where jobs outlive the engine, running evaluations go on for the next server; otherwise they
        are ended, and keep their places in the queue."""
        self._ending.set()
        self._wake.set()
        if self.is_alive():
            self.join(STOP_S)

    def run(self) -> None:
        recovered = False
        while not self._ending.is_set():
            try:
                if not recovered:
                    self.recover()
                recovered = True
                self._wake.clear()
                self.look()
                self._wake.wait(POLL_S * len(self._running) or IDLE_S)
            except Exception as error:  # a full disk, for one, must not end the queue
                recovered = False  # one may be marked as running that has no job
                print(f"the queue pauses for {IDLE_S:g} s: {type(error).__name__}: {error}", file=sys.stderr)
                self._ending.wait(IDLE_S)
        if not self._engine.outlived:
            self._end()

    def recover(self) -> None:
        """Takes up what was running when the server, or this thread's last round, ended."""
        before = self._running
        self._running = {}
        for row in self._store.running():
            one = before.get(row.id)
            if one is None or one.row.attempt != row.attempt:
                one = _Evaluation(row=row, looked_s=0.0, is_cut_off=not self._engine.outlived)
            self._running[row.id] = one
        known = {one.ticket for one in self._running.values()}
        for ticket in self._engine.tickets():
            if ticket not in known:  # deleted meanwhile
                self._engine.discard(ticket)
        self._fill_s = 0.0

    def look(self) -> bool:
        """Looks at every job once, and submits as many as there is room for; False if none runs then. Raises the first
        error of a job's after all were looked at, and that of an engine that takes none."""
        errors = []
        for one in tuple(self._running.values()):
            try:
                self._look_at(one)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
        if self._clock() >= self._fill_s:
            self._fill_s = self._clock() + IDLE_S
            self._fill()
        return bool(self._running)

    # ---- one evaluation

    def _fill(self) -> None:
        while len(self._running) < self._engine.at_once:
            row = self._store.claim(self._may_run)
            if row is None:
                break
            self._begin(row)

    def _may_run(self, row: Row) -> bool:
        """A user's files of one name follow each other: they lie in the same place, and replace each other's entry."""
        place = self.source(row)
        return all(self.source(one.row) != place for one in self._running.values())

    def _begin(self, row: Row) -> None:
        one = _Evaluation(row=row, looked_s=self._clock())
        try:
            source = self.source(row)
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_text(self._store.code(row.id), encoding="utf-8", newline="")
            command = tuple(self._command(row, Files(source=source)))
            self._engine.submit(Job(id=one.ticket.id, command=command, deadline_s=self._deadline_s(row)))
        except sqlite3.Error:  # what became of it cannot be written now: it is taken up again
            raise
        except base.UnavailableError:
            self._store.release(row.id, row.attempt)
            raise
        except Exception as error:  # a full disk, say
            self._settle(one, results.not_run(row, error))
        else:
            self._running[row.id] = one

    def _look_at(self, one: _Evaluation) -> None:
        state, now_s = self._engine.poll(one.ticket), self._clock()
        if isinstance(state, JobDone | Lost):
            outcome = self._outcome(one, state)
            self._settle(one, outcome, is_released=self._ending.is_set() and isinstance(state, JobDone))
            return
        if isinstance(state, Running):
            one.began_s = now_s if one.began_s is None else one.began_s
            one.follow(state.events)
        else:
            one.stage = RunningStage(phase=WAITS)
        is_wanted = not self._is_overdue(one, now_s)
        if now_s - one.looked_s > WANTED_S:
            one.looked_s = now_s
            is_wanted = is_wanted and self._store.runs_on(one.row.id, one.row.attempt)
        if not is_wanted and not one.is_given_up:
            self._engine.cancel(one.ticket)
            one.is_given_up = True

    def _is_overdue(self, one: _Evaluation, now_s: float) -> bool:
        """Whether a job from before resists its end: it ends with the server that started it, or at its deadline."""
        return one.is_cut_off and one.began_s is not None and now_s - one.began_s > self._deadline_s(one.row)

    def _outcome(self, one: _Evaluation, state: JobDone | Lost) -> AttemptEnded | None:
        """What its end comes to; None where it is to run once more, if it is still wanted. What is cut off may
        leave anything, so that this does not count against the submission."""
        is_over = one.is_cut_off or (isinstance(state, JobDone) and isinstance(state.end, base.Cancelled))
        if isinstance(state, Lost) or (is_over and not state.has_result):
            return None  # a result counts also where the job was ended after it had written that
        fetched = partial(self._engine.fetch, one.ticket, self._folder / "fetched" / one.ticket.id)
        try:
            return results.of_job(one.row, state, fetched, self._deadline_s, one.stage.text)
        except Exception as error:
            return None if one.is_cut_off else results.not_run(one.row, error)

    def _settle(self, one: _Evaluation, outcome: AttemptEnded | None, is_released: bool = False) -> None:
        """Writes what became of it, and removes what was kept of it. `is_released`: without an outcome it is as if it
        had not been started. Nothing is written of a submission that was deleted."""
        row = one.row
        # First, so that whoever reads that it has ended finds no file of it; one that runs again writes its own anew.
        self.source(row).unlink(missing_ok=True)
        if outcome is not None:
            self._store.finish(row.id, row.attempt, outcome)
        elif is_released:
            self._store.release(row.id, row.attempt)
        else:
            self._store.recover(row.id, row.attempt)
        self._engine.discard(one.ticket)
        self._running.pop(row.id, None)
        self._fill_s = 0.0
        self._settled()

    def _end(self) -> None:
        """Ends what runs. Errors are told: what is still marked as running is taken up by the next server."""
        for one in tuple(self._running.values()):
            try:
                self._engine.cancel(one.ticket)
                self._look_at(one)
            except Exception as error:
                print(f"submission {one.row.id}: {type(error).__name__}: {error}", file=sys.stderr)

    def source(self, row: Row) -> Path:
        """Where the submission lies while it is evaluated. The leaderboard knows an entry by author and file, so that
        the same user's file of the same name always has the same place."""
        return self._folder / "sources" / (row.team or row.user) / _file_name(row)


def _file_name(row: Row) -> str:
    """The submission's own, as far as it leads nowhere; its suffix says which language it is in."""
    suffix = next((one for one in ALL_SUFFIXES if row.file_name.endswith(one)), ".py")
    name = FILE_NAME.sub("_", row.file_name).lstrip(".")[-64:]
    return name if name.endswith(suffix) and len(name) > len(suffix) else f"submission{suffix}"
