"""What the service keeps of submissions: which runs its boards need, and which sources and results can go.

A submission that is done, and is not its user's best on a board, keeps its place in the user's list, with state and
score; its source and its result go. Reads the queue's file beside a server that may be running.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from harness.board.prune import YOUNG_S, Limits, StoredSubmission
from harness.core.errors import BadFileError
from harness.serve.queue_file import FILE
from harness.serve.store import DONE

WAIT_S = 10.0  # for a server's transaction
BYTES = "length(CAST(code AS BLOB)) + coalesce(length(CAST(result AS BLOB)), 0)"
RanksMost = Callable[[str], bool]  # whether the most is the best of a problem's scores, by its name


@dataclass(frozen=True, kw_only=True)
class Kept:
    run_ids: frozenset[str] = frozenset()
    stored: tuple[StoredSubmission, ...] = ()


def kept(folder: Path, limits: Limits, now: float, ranks_most: RanksMost = lambda problem: False) -> Kept:
    """The submissions of the queue in the folder that `prune` keeps, and those done that go by the limits, none of the
    last day; nothing where there is no queue. Raises BadFileError for a file that is no queue, and as `ranks_most`."""
    with _opened(folder) as db:
        if db is None:
            return Kept()
        best = _best(db, ranks_most)
        rows = db.execute(f"SELECT id, state, ended_at, run_id, {BYTES} FROM submissions ORDER BY id DESC").fetchall()
    found, count, size = [], 0, 0
    for id_, state, ended_at, _, nbytes in rows:
        age_s = now - _time(ended_at)
        can_go = state in DONE and id_ not in best and nbytes > 0 and age_s > YOUNG_S
        if can_go and (why := limits.beyond(age_s, count, size + nbytes)):
            found.append(StoredSubmission(id=id_, nbytes=nbytes, why=why))
        else:
            count, size = count + 1, size + nbytes
    run_ids = frozenset(run_id for id_, _, _, run_id, _ in rows if id_ in best and run_id)
    return Kept(run_ids=run_ids, stored=tuple(found))


def forget(folder: Path, stored: tuple[StoredSubmission, ...], ranks_most: RanksMost = lambda problem: False) -> None:
    """Removes their sources and results, but for those that are a user's best by now. Raises as `kept`."""
    with _opened(folder) as db:
        if db is None or not stored:
            return
        with db:
            db.execute("BEGIN IMMEDIATE")
            ids = {one.id for one in stored} - _best(db, ranks_most)
            db.executemany("UPDATE submissions SET code = '', result = NULL WHERE id = ?", [(id_,) for id_ in ids])
        with contextlib.suppress(sqlite3.Error):  # a server reads it: the room is used for what comes next
            db.execute("VACUUM")


def _best(db: sqlite3.Connection, ranks_most: RanksMost) -> set[int]:
    """Each user's best passed submission on each board; of equal ones the first, as Store.ranked has it."""
    rows = db.execute("SELECT id, user_id, leaderboard, gpu, problem, score_s FROM submissions WHERE passed").fetchall()
    most = {problem: ranks_most(problem) for problem in {row[4] for row in rows}}
    best: dict[tuple[int, str, str], tuple[float, int]] = {}
    for id_, user_id, leaderboard, gpu, problem, score in rows:
        if score is not None:
            board, rank = (user_id, leaderboard, gpu), (-score if most[problem] else score, id_)
            best[board] = min(best.get(board, rank), rank)
    return {id_ for _, id_ in best.values()}


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
