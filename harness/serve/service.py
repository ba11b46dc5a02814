"""What the server is made of: its problems, its queue, and the parts that answer for them."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from harness.core.errors import UsageError
from harness.core.words import count_text
from harness.serve.contests import Contests
from harness.serve.live import Live
from harness.serve.store import QueueLimits, Row, Store
from harness.serve.worker import QueueWorker


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """A problem as clients see it. `task` is its task.yml, `deadline_s` what one evaluation of it may take. After
    `closes`, ISO 8601, entries are late; None if there is no such moment. `score_unit` and `more_is_better` are of its
    scores, which clients take for seconds whatever they are. `lang` is that of a submission; `unprofiled` says why no
    Nsight Compute profile can be taken, empty where it can."""

    id: int
    name: str
    problem: str
    description: str
    gpus: tuple[str, ...]
    task: dict[str, Any]
    deadline_s: float
    closes: str | None = None
    score_unit: str = "s"
    more_is_better: bool = False
    lang: Literal["py", "cu"] = "py"
    unprofiled: str = ""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The changes by reading the problems again, by leaderboards' names; `leaderboards` are those of now. `errors` say
    which problems cannot be offered, and why."""

    leaderboards: tuple[Leaderboard, ...]
    created: tuple[str, ...]
    updated: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: tuple[str, ...]
    errors: tuple[str, ...]


@dataclass(kw_only=True)
class Service:
    """The parts that the routes use. `find` gives a leaderboard by any of its names; `refresh` reads the problems'
    files again; `create` offers a further folder until `remove`; `stopping` is true once the server is shutting down.
    Without `accepts_jobs` no submission is taken."""

    store: Store
    worker: QueueWorker
    live: Live
    contests: Contests
    leaderboards: tuple[Leaderboard, ...]
    find: Callable[[str], Leaderboard | None]
    refresh: Callable[[], Changes]
    create: Callable[[Path], tuple[str, Changes]]
    remove: Callable[[str], Changes]
    login: str
    limits: QueueLimits
    accepts_jobs: bool = True
    stopping: Callable[[], bool] = lambda: False
    streams: Counter[str] = field(default_factory=Counter)  # open ones, in all and by who opened them
    changing: threading.Lock = field(default_factory=threading.Lock)  # held by whoever changes what is offered

    def delete(self, row: Row) -> bool:
        """Deletes a submission and ends its evaluation; False if it was deleted meanwhile. An entry of a contest that
        has no result yet is withdrawn."""
        self.contests.deleted(row)
        return self.store.delete(row.id)

    def update(self) -> Changes:
        """Reads the problems' files again, and offers what they say now. Where this raises UsageError or BadFileError,
        nothing changes."""
        with self.changing:
            changes = self.refresh()
            self.leaderboards = changes.leaderboards
            return changes

    def create_leaderboard(self, directory: str, is_closed: bool) -> str:
        """Offers the problem folder, which is relative to where the server was started; the leaderboard's name. Raises
        UsageError and BadFileError if it cannot be offered."""
        try:
            folder = Path(directory).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise UsageError(f"{directory!r} is no folder's name: {error}") from None
        with self.changing:
            name, changes = self.create(folder)
            self.leaderboards = changes.leaderboards
            leaderboard = self.find(name)
            assert leaderboard is not None, "it has just been created"
            self.store.closed.set(leaderboard.problem, is_closed)
            return name

    def delete_leaderboard(self, name: str, force: bool) -> None:
        """Offers a created leaderboard no more. Its submissions are deleted with `force`; without it, having any raises
        UsageError, as does a leaderboard that was not created."""
        with self.changing:
            rows = self.store.listed(None, name)
            if rows and not force:
                raise UsageError(f"{name} has {count_text(len(rows), 'submission')}; force=true deletes them too")
            leaderboard = self.find(name)
            self.leaderboards = self.remove(name).leaderboards
            if leaderboard:
                self.store.closed.set(leaderboard.problem, False)
            for row in rows:
                self.delete(row)
