"""The leaderboards that organisers have created from problem folders of this machine."""

from harness.serve.queue_file import QueueFile


class Created:
    """The created leaderboards of one queue: their names, with the folders of their problems."""

    def __init__(self, file: QueueFile) -> None:
        self._file, self._db = file, file.db

    def all(self) -> dict[str, str]:
        """The folders by the leaderboards' names, in the order in which they were created."""
        with self._file.lock:
            return {row["name"]: row["folder"] for row in self._db.execute("SELECT * FROM created ORDER BY rowid")}

    def add(self, name: str, folder: str) -> None:
        """Keeps the leaderboard, as the last one."""
        with self._file.transaction():
            self._db.execute("INSERT OR REPLACE INTO created VALUES (?, ?)", (name, folder))

    def remove(self, name: str) -> None:
        """Forgets the leaderboard."""
        with self._file.transaction():
            self._db.execute("DELETE FROM created WHERE name = ?", (name,))
