"""The problems whose leaderboards an organiser has closed."""

from harness.serve.queue_file import QueueFile


class Closed:
    """The closed leaderboards of one queue, by the problems' names: a problem has one leaderboard."""

    def __init__(self, file: QueueFile) -> None:
        self._file, self._db = file, file.db

    def all(self) -> frozenset[str]:
        """The names of all closed leaderboards."""
        with self._file.lock:
            return frozenset(row["problem"] for row in self._db.execute("SELECT problem FROM closed"))

    def set(self, problem: str, is_closed: bool) -> None:
        """Closes the problem's leaderboard, or opens it."""
        change = "INSERT OR IGNORE INTO closed VALUES (?)" if is_closed else "DELETE FROM closed WHERE problem = ?"
        with self._file.transaction():
            self._db.execute(change, (problem,))
