"""The queue's SQLite file: opened, brought to today's version, and written in transactions."""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from harness.core.errors import BadFileError, HarnessError
from harness.core.words import clean_line
from harness.serve.tables import SCRIPTS, VERSION

FILE = "queue.sqlite3"  # in the service's folder
# Of SQLite, where it is the machine that fails, and nothing is wrong with the file.
NOT_NOW = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOMEM,
}  # of an extended code, its lowest byte


class UnwrittenError(HarnessError):
    """The queue cannot be written now."""


class QueueFile:
    """One connection for all threads; users of `db` hold `lock`. BadFileError for a file that is none of ours,
    HarnessError where the disk is full, say."""

    def __init__(self, path: Path) -> None:
        self.lock = threading.RLock()
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # it holds everybody's sources
        try:
            self.db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
            self.db.row_factory = sqlite3.Row
            self.db.execute("PRAGMA journal_mode = WAL")
            self.db.execute("PRAGMA synchronous = FULL")  # what was accepted survives a power cut
            self.db.execute("PRAGMA foreign_keys = ON")
            if (found := self.db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise sqlite3.DatabaseError(clean_line(found))
            version = int(self.db.execute("PRAGMA user_version").fetchone()[0])
            if version in SCRIPTS:
                self.db.executescript(f"BEGIN; {SCRIPTS[version]} PRAGMA user_version = {VERSION}; COMMIT;")
        except sqlite3.DatabaseError as error:
            if _is_machines(error):
                raise HarnessError(
                    f"{path}: cannot be opened now ({error}); the queue is left as it is: free disk space, check its "
                    "rights or end what else uses it, and try again"
                ) from None
            raise BadFileError(
                f"{path}: cannot be read as a queue ({error}); move the file away to begin a new one"
            ) from None
        if version not in (*SCRIPTS, VERSION):
            raise BadFileError(
                f"{path}: a queue of version {version}, expected {VERSION}; move the file away to begin a new one"
            )

    def close(self) -> None:
        """Closes the file; no other method may be called afterwards."""
        with self.lock:
            self.db.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is written within is written together, or not at all. Raises UnwrittenError where the machine is the
        reason."""
        with self.lock:
            try:
                self.db.execute("BEGIN IMMEDIATE")
                yield
                self.db.execute("COMMIT")
            except BaseException as error:
                if self.db.in_transaction:  # SQLite may have ended it by itself
                    self.db.execute("ROLLBACK")
                if _is_machines(error):
                    raise UnwrittenError(f"the queue cannot be written now ({error}); try again later") from None
                raise


def _is_machines(error: BaseException) -> bool:
    """Whether the machine is the reason, and the file is as it was."""
    return isinstance(error, sqlite3.DatabaseError) and getattr(error, "sqlite_errorcode", 0) & 0xFF in NOT_NOW


def now() -> str:
    """The current time, ISO 8601, UTC: fine enough that no two submissions begin at the same, since turns go by it."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
