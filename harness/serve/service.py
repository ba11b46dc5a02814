"""What the server is made of: its problems, its queue, and the parts that answer for them."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.errors import UsageError
from harness.core.words import count_text
from harness.serve.catalogue import Catalogue, Changes
from harness.serve.contests import Contests
from harness.serve.live import Live
from harness.serve.store import QueueLimits, Row, Store
from harness.serve.worker import QueueWorker


@dataclass(kw_only=True)
class Service:
    """The parts that the routes use. `stopping` is true once the server is shutting down."""

    store: Store
    worker: QueueWorker
    live: Live
    contests: Contests
    catalogue: Catalogue
    login: str
    limits: QueueLimits
    accepts_jobs: bool = True
    stopping: Callable[[], bool] = lambda: False
    streams: Counter[str] = field(default_factory=Counter)  # open ones, in all and by who opened them
    changing: threading.Lock = field(default_factory=threading.Lock)  # held by whoever changes what is offered

    def delete(self, row: Row) -> bool:
        """Deletes a submission, its evaluation and its entry in a contest; False if it was deleted meanwhile."""
        self.contests.deleted(row)
        return self.store.delete(row.id)

    def update(self) -> Changes:
        """Reads the problems' files again. Where this raises UsageError or BadFileError, nothing changes."""
        with self.changing:
            return self.catalogue.refresh()

    def create_leaderboard(self, directory: str, is_closed: bool) -> str:
        """Offers the problem folder, which is relative to where the server was started; the leaderboard's name. Raises
        UsageError and BadFileError if it cannot be offered."""
        try:
            folder = Path(directory).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise UsageError(f"{directory!r} is no folder's name: {error}") from None
        with self.changing:
            leaderboard = self.catalogue.create(folder)
            self.store.boards.close(leaderboard.problem, is_closed)
            return leaderboard.name

    def delete_leaderboard(self, name: str, force: bool) -> None:
        """Offers a created leaderboard no more. Its submissions are deleted with `force`; without it, having any raises
        UsageError, as does a leaderboard that was not created."""
        with self.changing:
            rows = self.store.listed(None, name)
            if rows and not force:
                raise UsageError(f"{name} has {count_text(len(rows), 'submission')}; force=true deletes them too")
            leaderboard = self.catalogue.find(name)
            self.catalogue.remove(name)
            if leaderboard:
                self.store.boards.close(leaderboard.problem, False)
            for row in rows:
                self.delete(row)
