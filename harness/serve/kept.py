"""What the service keeps of submissions: which runs its boards need, and which sources and results can go.

A submission that is done, and is not its user's best on a board, keeps its place in the user's list, with state and
score; its source and its result go. Reads the queue's file beside a server that may be running.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from harness.core.errors import BadFileError
from harness.serve.store import DONE

FILE = "queue.sqlite3"
WAIT_S = 10.0  # for a server's transaction
# Each user's best passed submission on each board; of equal ones the first, as Store.ranked has it.
BEST = """SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY user_id, leaderboard, gpu ORDER BY score_s, id) AS
place FROM submissions WHERE passed AND score_s IS NOT NULL) WHERE place = 1"""
BYTES = "length(CAST(code AS BLOB)) + coalesce(length(CAST(result AS BLOB)), 0)"


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A submission whose source and result can go."""

    id: int
    nbytes: int
    why: str


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The runs that boards of the service need, what can go, and what all sources and results take."""

    run_ids: frozenset[str] = frozenset()
    stored: tuple[Stored, ...] = ()
    taken: int = 0


def kept(folder: Path, age_s: float, most: int, most_bytes: int, now: float) -> Kept:
    """Of the queue in the folder; nothing where there is none. Submissions that are done go by their age, beyond the
    `most` newest, or beyond `most_bytes` in all. Raises BadFileError for a file that is no queue."""
    with _opened(folder) as db:
        if db is None:
            return Kept()
        best = {row[0] for row in db.execute(BEST)}
        run_ids = [row[0] for row in db.execute(f"SELECT run_id FROM submissions WHERE id IN ({BEST})")]
        rows = db.execute(f"SELECT id, state, ended_at, {BYTES} FROM submissions ORDER BY id DESC").fetchall()
    found, taken, count, size = [], 0, 0, 0
    for id_, state, ended_at, nbytes in rows:
        taken += nbytes
        why = ""
        if state in DONE and id_ not in best and nbytes:
            if now - _time(ended_at) > age_s:
                why = "age"
            elif count >= most:
                why = "number"
            elif size + nbytes > most_bytes:
                why = "size"
        if why:
            found.append(Stored(id=id_, nbytes=nbytes, why=why))
        else:
            count, size = count + 1, size + nbytes
    return Kept(run_ids=frozenset(filter(None, run_ids)), stored=tuple(found), taken=taken)


def forget(folder: Path, stored: tuple[Stored, ...]) -> None:
    """Removes their sources and results, but for those that are a user's best by now. Raises BadFileError."""
    with _opened(folder) as db:
        if db is None or not stored:
            return
        with db:
            db.executemany(
                f"UPDATE submissions SET code = '', result = NULL WHERE id = ? AND id NOT IN ({BEST})",
                [(one.id,) for one in stored],
            )
        with contextlib.suppress(sqlite3.Error):  # a server reads it: the room is used for what comes next
            db.execute("VACUUM")


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[sqlite3.Connection | None]:
    path = folder / FILE
    if not path.is_file():
        yield None
        return
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=WAIT_S)) as db:
            yield db
    except sqlite3.DatabaseError as error:
        raise BadFileError(f"{path}: cannot be read as a queue ({error}); nothing was deleted of it") from None


def _time(text: str | None) -> float:
    return datetime.fromisoformat(text).astimezone(UTC).timestamp() if text else 0.0
