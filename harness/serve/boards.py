"""What organisers have changed of the leaderboards: which they closed, and which they created from problem folders."""

from harness.serve.queue_file import QueueFile


class Boards:
    """The leaderboards of one queue that organisers changed: closed ones by the problems' names, since a problem has
    one leaderboard, and created ones by their own."""

    def __init__(self, file: QueueFile) -> None:
        self._file, self._db = file, file.db

    def closed(self) -> frozenset[str]:
        """The problems whose leaderboards are closed."""
        with self._file.lock:
            return frozenset(row["problem"] for row in self._db.execute("SELECT problem FROM closed"))

    def close(self, problem: str, is_closed: bool) -> None:
        change = "INSERT OR IGNORE INTO closed VALUES (?)" if is_closed else "DELETE FROM closed WHERE problem = ?"
        with self._file.transaction():
            self._db.execute(change, (problem,))

    def created(self) -> dict[str, str]:
        """The problem folders by the leaderboards' names, in the order in which they were created."""
        with self._file.lock:
            return {row["name"]: row["folder"] for row in self._db.execute("SELECT * FROM created ORDER BY rowid")}

    def create(self, name: str, folder: str) -> None:
        with self._file.transaction():
            self._db.execute("INSERT OR REPLACE INTO created VALUES (?, ?)", (name, folder))

    def remove(self, name: str) -> None:
        with self._file.transaction():
            self._db.execute("DELETE FROM created WHERE name = ?", (name,))
