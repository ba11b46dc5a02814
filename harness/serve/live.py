"""The live page: the boards as `make page` shows them, with what runs and waits, and nothing that is somebody's own.

Knows the page's data and the queue. Of a submission it tells who, what and how far; its source, its report and what it
printed stay between its owner and the checkout's.
"""

import hashlib
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from harness.board import leaderboard, reports
from harness.board.entries import Board, Judged
from harness.core.checkout import Checkout
from harness.core.decode import part
from harness.core.words import clean_line
from harness.report import page
from harness.report.page_data import Page, page_of
from harness.serve.contests import Contests
from harness.serve.queue_file import now
from harness.serve.store import Row, Store
from harness.serve.worker import QueueWorker

WAITING = 20  # that are shown, of those that wait
LATEST = 5


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The public part of a submission. `since` is when its state began; `progress` is empty unless it runs."""

    id: int
    user: str
    problem: str
    mode: str
    file: str
    state: str
    since: str
    passed: bool | None
    score_s: float | None
    score_unit: str
    progress: str


@dataclass(frozen=True, kw_only=True)
class QueueState:
    """The submissions that run, wait and were done last. `version` changes whenever the boards do."""

    version: str
    now: str
    running: tuple[Shown, ...]
    waiting: tuple[Shown, ...]
    waiting_count: int
    latest: tuple[Shown, ...]


class Live:
    """The page's data, built again when a board or a run has changed. Its methods may be called from any thread.
    `unit` gives that of a problem's scores. What is closed is not on it."""

    def __init__(
        self, store: Store, worker: QueueWorker, checkout: Checkout, contests: Contests, unit: Callable[[str], str]
    ) -> None:
        self._store, self._worker, self._checkout, self._contests = store, worker, checkout, contests
        self._unit = unit
        self._lock = threading.Lock()
        self._made: tuple[str, Page] | None = None

    def version(self) -> str:
        """A text that changes whenever a board, a run or what the public may see changes."""
        parts: list[object] = [row.id for row in self._store.latest(1)]
        parts += [self._contests.veiled_since(), sorted(self._contests.veil(self._store).later)]
        parts += [sorted(self._store.boards.closed())]
        for path in (self._checkout.leaderboard, self._checkout.runs):
            try:
                found = path.stat()
                parts += [found.st_mtime_ns, found.st_size, found.st_ino]
            except FileNotFoundError:
                parts.append(None)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def page(self) -> tuple[str, Page]:
        with self._lock:
            version = self.version()
            if self._made is None or self._made[0] != version:
                recorded, unreadable = reports.load_all(self._checkout.root)
                made_at = datetime.now(UTC).isoformat(timespec="seconds")
                veil, closed = self._contests.veil(self._store), self._store.boards.closed()
                found, seen = _open(veil.board(self.board()), closed), veil.reports(recorded)
                made = page_of(found, seen, unreadable, self._checkout.root, self._checkout.root, made_at)
                self._made = (version, _unlinked(made))
            return self._made

    def board(self) -> Board:
        return leaderboard.load(self._checkout.leaderboard)

    def html(self) -> str:
        version, made = self.page()
        links = [(f"/contests/{one.key}", one.rules.name) for one in self._contests.all]
        return page.html(made, live=version, contests=links)

    def boards(self) -> dict[str, Any]:
        version, made = self.page()
        return {"version": version, "page": page.data(made)}

    def queue(self) -> QueueState:
        waiting, count = self._store.waiting(WAITING)
        return QueueState(
            version=self.version(),
            now=now(),
            running=self._all_shown(self._store.running()),
            waiting=self._all_shown(waiting),
            waiting_count=count,
            latest=self._all_shown(self._store.latest(LATEST)),
        )

    def _all_shown(self, rows: Iterable[Row]) -> tuple[Shown, ...]:
        closed = self._store.boards.closed()
        return tuple(self._shown(row) for row in rows if row.problem not in closed)

    def _shown(self, row: Row) -> Shown:
        is_veiled = not self._contests.seen([row])
        veiled = {"passed": None, "score_s": None} if is_veiled else {}
        return part(
            row,
            Shown,
            user=row.team or row.user,
            file="" if is_veiled else clean_line(row.file_name),
            state="done" if is_veiled and row.done else row.state,
            since=row.ended_at or row.started_at or row.submitted_at,
            score_unit=self._unit(row.problem),
            progress=self._worker.progress(row.id),
            **veiled,
        )


def _open(found: Board, closed: frozenset[str]) -> Board:
    """The board without problems whose leaderboards are closed."""

    def is_open(one: Judged) -> bool:
        return one.problem not in closed

    entries, held = tuple(filter(is_open, found.entries)), tuple(filter(is_open, found.held))
    return replace(found, entries=entries, held=held)


def _unlinked(made: Page) -> Page:
    """The page without links to files and failed runs, which are private."""
    boards = tuple(
        replace(
            board,
            entries=tuple(replace(one, run=replace(one.run, links=None) if one.run else None) for one in board.entries),
        )
        for board in made.boards
    )
    return replace(made, boards=boards, failed=())
