"""Runs what the queue holds, one evaluation at a time: each is a job of an engine.

Knows which submission's turn it is, how its evaluation is submitted, watched and given up, and what becomes of it in
the store; nothing of HTTP and of processes, which are the engine's, and of a result only the file that holds it. The
evaluations of one machine share its devices, so there is one worker. After the server died, the worker takes up the
evaluations that were running: it uses a result that was written, and otherwise runs the evaluation once more
(store.recover).
"""

import json
import os
import re
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.core import files
from harness.core.events import CaseBegan, Event, PhaseBegan, event_of
from harness.core.words import clean, clean_line
from harness.engine import registry
from harness.engine.base import (
    ERR,
    EVENTS,
    FOLDER,
    OUT,
    RESULT,
    Cancelled,
    Done,
    Engine,
    Exited,
    Job,
    Lost,
    Overdue,
    Running,
    Ticket,
    Waiting,
)
from harness.serve.guard import ORGANISER_VARIABLE, TOKEN_VARIABLE
from harness.serve.results import ended
from harness.serve.store import Ended, Row, Store

IDLE_S = 5.0  # at most, between two looks at the queue
POLL_S = 0.05
WANTED_S = 0.25  # between two looks whether the running submission was deleted
STOP_S = 30.0  # for the engine to end an evaluation when the server stops
TAIL_CHARS = 2000
FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, kw_only=True)
class Files:
    """The files of an evaluation, as its command names them: the submission, the report as JSON, and the events."""

    source: Path
    report: Path = Path(FOLDER, RESULT)
    events: Path = Path(FOLDER, EVENTS)


Command = Callable[[Row, Files], Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """How far the running evaluation is, for those who wait: its phase and case."""

    id: int
    phase: str = "start"
    case: str = ""

    def after(self, event: Event) -> "Stage":
        """The stage that begins with the event."""
        match event:
            case PhaseBegan():
                return replace(self, phase=_one_line(event.name), case="")
            case CaseBegan():
                case = f"{event.index + 1}/{event.count} {clean_line(event.label)}"
                return replace(self, case=_one_line(case))

    @property
    def text(self) -> str:
        """Phase and case in one line."""
        return f"{self.phase} {self.case}".strip()


def engine_of(name: str, folder: Path, root: Path) -> Engine:
    """The engine of that name for the queue in `folder`: evaluations run in the checkout at `root`, without the
    server's tokens."""
    secret = (TOKEN_VARIABLE, ORGANISER_VARIABLE)
    environ = {name: value for name, value in os.environ.items() if name not in secret}
    return registry.make(name, folder / "work", root, environ | {"NO_COLOR": "1", "COLUMNS": "100"}, root, "serve")


class Worker(threading.Thread):
    """Moves submissions between the store and the engine. `folder` is the queue's, for the submissions' files;
    `deadline_s` is how long an evaluation may take in all; `settled` is called when submissions are done."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        folder: Path,
        command: Command,
        deadline_s: Callable[[Row], float],
        settled: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name="evaluations", daemon=True)
        self._store, self._engine, self._folder = store, engine, folder
        self._command, self._deadline_s, self._settled = command, deadline_s, settled
        self._wake, self._ending = threading.Event(), threading.Event()
        self.progress: Stage | None = None

    def wake(self) -> None:
        """There may be something to do."""
        self._wake.set()

    def stop(self) -> None:
        """Ends the thread, and a running evaluation, which keeps its place in the queue."""
        self._ending.set()
        self._wake.set()
        if self.is_alive():
            self.join(STOP_S)

    def run(self) -> None:
        """The thread."""
        recovered = False
        while not self._ending.is_set():
            try:
                if not recovered:
                    recovered = self._recover()
                    continue
                self._wake.clear()
                if not self._next():
                    self._wake.wait(IDLE_S)
            except Exception as error:  # a full disk, for one, must not end the queue
                recovered = False  # one may still be marked as running
                print(f"the queue pauses for {IDLE_S:g} s: {type(error).__name__}: {error}", file=sys.stderr)
                self._ending.wait(IDLE_S)

    def _next(self) -> bool:
        """Evaluates the next submission; False if none waits."""
        row = self._store.claim()
        if row is None:
            return False
        ticket = _ticket(row)
        try:
            self._evaluate(row, ticket)
        except sqlite3.Error:  # what became of it cannot be written now: it is taken up again
            raise
        except Exception as error:  # a full disk, or a result of another form
            why = f"the server could not run it: {type(error).__name__}: {error}"
            print(f"submission {row.id}: {why}", file=sys.stderr)
            self._engine.cancel(ticket)
            self._store.finish(row.id, row.attempt, Ended(state="failed", error=why))
        finally:
            self.progress = None
        self._tidy(row, ticket)
        self._settled()
        return True

    # ---- one evaluation

    def _evaluate(self, row: Row, ticket: Ticket) -> None:
        self.progress = Stage(id=row.id)
        source = self.source(row)
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(self._store.code(row.id), encoding="utf-8", newline="")
        command = tuple(self._command(row, Files(source=source)))
        self._engine.submit(Job(id=ticket.id, command=command, deadline_s=self._deadline_s(row)))
        state = self._watched(row, ticket)
        match state:
            case Lost():
                self._store.recover(row.id, row.attempt)
            case Done(has_result=True):  # also where it was ended after it had written that
                self._store.finish(row.id, row.attempt, self._result(row, ticket))
            case Done(end=Cancelled()) if self._ending.is_set():
                self._store.release(row.id, row.attempt)
            case Done(end=Cancelled()):  # it was deleted: there is nothing to write
                pass
            case Done():
                self._store.finish(row.id, row.attempt, self._without_result(row, ticket, state))

    def _watched(self, row: Row, ticket: Ticket) -> Done | Lost:
        """How the job ended: by itself, or because it was cancelled when it was not wanted any more."""
        seen, looked_s = 0, time.monotonic()
        while True:
            state = self._engine.poll(ticket)
            if isinstance(state, Done | Lost):
                return state
            if isinstance(state, Running):
                self._follow(state.events[seen:])
                seen = len(state.events)
            is_wanted = True
            if time.monotonic() - looked_s > WANTED_S:
                looked_s, is_wanted = time.monotonic(), self._store.runs_on(row.id, row.attempt)
            if self._ending.wait(POLL_S) or not is_wanted:
                self._engine.cancel(ticket)

    def _follow(self, lines: Sequence[str]) -> None:
        for event in map(event_of, lines):
            if event is not None and self.progress is not None:
                self.progress = self.progress.after(event)

    def _result(self, row: Row, ticket: Ticket) -> Ended:
        """What the evaluation's own result comes to. Raises whatever a result of another form causes."""
        folder = self._fetched(ticket)
        out = folder / OUT
        printed = files.read_bytes(out).decode(errors="replace") if out.exists() else ""
        command = f"python -m harness eval {row.problem} --mode {row.mode}"
        return ended(row, json.loads(files.read_text(folder / RESULT)), printed, command)

    def _without_result(self, row: Row, ticket: Ticket, state: Done) -> Ended:
        if isinstance(state.end, Overdue):
            stage = self.progress.text if self.progress is not None else "start"
            return Ended(state="timed_out", error=f"timed out after {self._deadline_s(row):.0f} s, at {stage}")
        code = f"with exit code {state.end.code} " if isinstance(state.end, Exited) else ""
        tail = clean(files.read_bytes(self._fetched(ticket) / ERR).decode(errors="replace"))[-TAIL_CHARS:]
        last = tail.strip().splitlines()[-1:] or ["it printed no error"]
        return Ended(state="failed", error=f"the evaluation ended {code}and without a result: {last[0]}")

    def _tidy(self, row: Row, ticket: Ticket) -> None:
        self._engine.discard(ticket)
        self.source(row).unlink(missing_ok=True)

    def _fetched(self, ticket: Ticket) -> Path:
        return self._engine.fetch(ticket, self._folder / "fetched" / ticket.id)

    # ---- after a server that died

    def _recover(self) -> bool:
        """Settles what was running when the server, or this thread's last round, ended; False if it is to end now."""
        rows = {_ticket(row): row for row in self._store.running()}
        for ticket in self._engine.tickets():
            if ticket not in rows:  # deleted meanwhile
                self._engine.discard(ticket)
        for ticket, row in rows.items():
            deadline_s = time.monotonic() + self._deadline_s(row)
            while isinstance(state := self._engine.poll(ticket), Waiting | Running):
                if self._ending.wait(POLL_S):
                    return False
                if time.monotonic() > deadline_s:  # it ends with the server that started it, unless it resists
                    self._engine.cancel(ticket)
            result = self._recovered_result(row, ticket) if isinstance(state, Done) and state.has_result else None
            if result is not None:
                self._store.finish(row.id, row.attempt, result)
            else:
                self._store.recover(row.id, row.attempt)
            self._tidy(row, ticket)
        self._settled()
        return True

    def _recovered_result(self, row: Row, ticket: Ticket) -> Ended | None:
        """None if the result has another form: an interrupted evaluation may have left anything."""
        try:
            return self._result(row, ticket)
        except Exception:
            return None

    def source(self, row: Row) -> Path:
        """Where the submission lies while it is evaluated. The leaderboard knows an entry by author and file, so that
        the same user's file of the same name always has the same place."""
        name = FILE_NAME.sub("_", row.file_name).lstrip(".")[-64:]
        name = name if name.endswith(".py") and len(name) > 3 else "submission.py"
        return self._folder / "sources" / (row.team or row.user) / name


def _ticket(row: Row) -> Ticket:
    """The ticket of a submission's attempt, which is the same after a restart."""
    return Ticket(id=f"{row.id}-{row.attempt}")


def _one_line(text: str) -> str:
    return " ".join(clean_line(text).split())
