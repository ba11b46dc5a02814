"""The queue: submissions, their users and their outcomes, in one SQLite file that outlives the server.

Knows tables and states, nothing of HTTP or of evaluations. A submission is `pending`, then `running`, then one of
`succeeded` (it was evaluated and passed), `failed` (it was wrong, crashed or hung, or could not be evaluated) and
`timed_out` (the evaluation did not end in time). popcorn-cli shows the last two as errors. Results are written by
attempt, so that an evaluation that was given up can never write over a later one, nor be written twice.

One that was running when the server died is run once more; if that is interrupted too, it has failed.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, cast, get_args

from harness.core.errors import HarnessError
from harness.core.records import Mode
from harness.serve.boards import Boards
from harness.serve.queue_file import QueueFile, now
from harness.serve.tables import waiting_turns
from harness.serve.users import User, Users

ATTEMPTS = 2  # the first, and one more after the server died in the middle of it
INTERRUPTED = "the server was interrupted twice while it ran; submit it again"
State = Literal["pending", "running", "succeeded", "failed", "timed_out"]
DONE: tuple[State, ...] = ("succeeded", "failed", "timed_out")
OF_ATTEMPT = "WHERE id = ? AND attempt = ? AND state = 'running'"


class QueueFullError(HarnessError):
    """The queue accepts no further submission; `of_user`: because this user's share is used up."""

    def __init__(self, message: str, of_user: bool) -> None:
        super().__init__(message)
        self.of_user = of_user


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where in a contest a submission stands; `entry` is its number in leaderboard mode. None outside."""

    contest: str | None = None
    team: str | None = None
    entry: int | None = None


@dataclass(frozen=True, kw_only=True)
class Tooled:
    """A profile by a vendor's tool (None: by none), of one benchmark or, with None, of all. Of a call it has so many
    launches, or, with None, as many as the tool profiles by itself."""

    tool: str | None = None
    benchmark: int | None = None
    launch_count: int | None = None


@dataclass(frozen=True, kw_only=True)
class Asking(Placement, Tooled):
    problem: str
    leaderboard: str
    gpu: str
    mode: Mode
    file_name: str


@dataclass(frozen=True, kw_only=True)
class NewSubmission(Asking):
    """A submission that is to be queued. Its fields are columns of the queue's table."""

    code: str


@dataclass(frozen=True, kw_only=True)
class Row(Asking):
    """A submission in its current state. `runs` has GPU MODE's run items; times are ISO 8601, UTC."""

    id: int
    user: str
    user_id: int
    submitted_at: str
    state: State
    attempt: int
    started_at: str | None
    ended_at: str | None
    passed: bool | None
    score_s: float | None
    run_id: str | None
    error: str | None
    runs: list[dict[str, Any]]

    @property
    def done(self) -> bool:
        return self.state in DONE


# Without the two texts that can be megabytes.
COLUMNS = ", ".join("u.name AS user" if field.name == "user" else f"s.{field.name}" for field in fields(Row))


@dataclass(frozen=True, kw_only=True)
class AttemptEnded:
    """The outcome of an attempt. `result` is sent to the client: GPU MODE's results and reports."""

    state: State
    passed: bool = False
    score_s: float | None = None
    run_id: str | None = None
    error: str | None = None
    runs: tuple[dict[str, Any], ...] = ()
    result: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class QueueLimits:
    """How many submissions may wait or run, of one user and in all."""

    of_user: int = 20
    in_all: int = 1000


class Store:
    """The queue's file. Every method is one transaction, from any thread. `now` is ISO 8601, UTC."""

    def __init__(self, path: Path, now: Callable[[], str] = now) -> None:
        self._file, self._now = QueueFile(path), now
        self._db, self._lock = self._file.db, self._file.lock
        self.users, self.boards = Users(self._file), Boards(self._file)

    def close(self) -> None:
        self._file.close()

    # ---- the queue

    def add(self, user: User, asked: NewSubmission, limits: QueueLimits) -> Row:
        """Queues a submission. Raises QueueFullError."""
        with self._file.transaction():
            waiting = "SELECT count(*) FROM submissions WHERE state IN ('pending', 'running')"
            if self._db.execute(f"{waiting} AND user_id = ?", (user.id,)).fetchone()[0] >= limits.of_user:
                raise QueueFullError(f"{limits.of_user} of your submissions wait or run; wait for them", of_user=True)
            if self._db.execute(waiting).fetchone()[0] >= limits.in_all:
                raise QueueFullError(f"{limits.in_all} submissions wait or run; try again later", of_user=False)
            values = {"user_id": user.id, "submitted_at": self._now(), **vars(asked)}
            made = self._db.execute(
                f"INSERT INTO submissions ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})",
                tuple(values.values()),
            )
            row = self._one("s.id = ?", made.lastrowid)
            assert row is not None
            return row

    def claim(self, may_run: Callable[[Row], bool] = lambda row: True) -> Row | None:
        """Marks the next submission in turn that may run now as running and returns it; None where none waits."""
        with self._file.transaction():
            in_turn = (self._one("s.id = ?", number) for number in waiting_turns(self._db))
            first = next((row for row in in_turn if row is not None and may_run(row)), None)
            if first is None:
                return None
            self._db.execute(
                "UPDATE submissions SET state = 'running', attempt = attempt + 1, started_at = ? WHERE id = ?",
                (self._now(), first.id),
            )
            return self._one("s.id = ?", first.id)

    def finish(self, id_: int, attempt: int, ended: AttemptEnded) -> bool:
        """Writes the attempt's outcome; False, and nothing written, if it was abandoned or deleted meanwhile."""
        result = None if ended.result is None else json.dumps(ended.result)
        texts = {"ended_at": self._now(), "runs": json.dumps(ended.runs), "result": result}
        return self._change(id_, attempt, vars(ended) | texts)

    def release(self, id_: int, attempt: int) -> None:
        """Puts a running submission back in its place in the queue, as if it had not been started."""
        self._change(id_, attempt, {"state": "pending", "attempt": attempt - 1, "started_at": None})

    def running(self) -> list[Row]:
        return self._rows("s.state = 'running' ORDER BY s.id")

    def recover(self, id_: int, attempt: int) -> None:
        """Queues a submission that ran when the server died once more, or marks it as failed."""
        if attempt >= ATTEMPTS:
            self.finish(id_, attempt, AttemptEnded(state="failed", error=INTERRUPTED))
        else:
            self._change(id_, attempt, {"state": "pending", "started_at": None})

    def runs_on(self, id_: int, attempt: int) -> bool:
        with self._lock:
            found = self._db.execute(f"SELECT 1 FROM submissions {OF_ATTEMPT}", (id_, attempt))
            return found.fetchone() is not None

    # ---- what there is

    def get(self, id_: int) -> Row | None:
        return self._one("s.id = ?", id_)

    def code(self, id_: int) -> str:
        """Its source; empty where no submission has that number."""
        return str(self._text("code", id_) or "")

    def result(self, id_: int) -> dict[str, Any] | None:
        text = self._text("result", id_)
        return None if text is None else cast("dict[str, Any]", json.loads(text))

    def listed(self, user: User | None, leaderboard: str | None, limit: int = -1, offset: int = 0) -> list[Row]:
        """Submissions, newest first: a user's, or with None everybody's. -1 is no limit."""
        of = user.id if user else None
        where = "(? IS NULL OR s.user_id = ?) AND (? IS NULL OR s.leaderboard = ?) ORDER BY s.id DESC LIMIT ? OFFSET ?"
        return self._rows(where, of, of, leaderboard, leaderboard, limit, offset)

    def delete(self, id_: int) -> bool:
        """Deletes it, with its source; False where there is none."""
        with self._file.transaction():
            return self._db.execute("DELETE FROM submissions WHERE id = ?", (id_,)).rowcount == 1

    def ahead(self, row: Row) -> int:
        """How many submissions are evaluated before it, as far as that is known now."""
        with self._lock:
            found = self._db.execute("SELECT count(*) FROM submissions WHERE id != ? AND state = 'running'", (row.id,))
            waiting = waiting_turns(self._db)
            return int(found.fetchone()[0]) + (waiting.index(row.id) if row.id in waiting else 0)

    def waiting(self, limit: int) -> tuple[list[Row], int]:
        """At most `limit` of the submissions that wait, in turn, and how many there are in all."""
        with self._lock:
            waiting = waiting_turns(self._db)
            chosen = [self._one("s.id = ?", number) for number in waiting[:limit]]
            return [row for row in chosen if row is not None], len(waiting)

    def of_contest(self, contest: str) -> dict[int, Row]:
        """A contest's submissions by their entries' numbers."""
        rows = self._rows("s.contest = ? AND s.entry IS NOT NULL ORDER BY s.id", contest)
        return {row.entry: row for row in rows if row.entry is not None}

    def runs_of_contest(self, contest: str) -> dict[str, str]:
        """When the runs of a contest's submissions ended, tries too: ISO 8601 by their ids."""
        with self._lock:
            ended = "SELECT run_id, ended_at FROM submissions WHERE contest = ? AND run_id IS NOT NULL"
            return dict(map(tuple, self._db.execute(ended, (contest,))))

    def latest(self, limit: int) -> list[Row]:
        return self._rows(f"s.state IN {DONE} ORDER BY s.ended_at DESC, s.id DESC LIMIT ?", limit)

    def ranked(
        self,
        leaderboard: str,
        gpu: str,
        more_is_better: bool = False,
        seen: Callable[[list[Row]], list[Row]] = list,
    ) -> list[Row]:
        """Each user's best submission, best first, of those that `seen` leaves."""
        where = "s.leaderboard = ? AND s.gpu = ? AND s.score_s IS NOT NULL AND s.passed ORDER BY s.score_s"
        rows = self._rows(f"{where} {'DESC' if more_is_better else 'ASC'}, s.id", leaderboard, gpu)
        best: dict[int, Row] = {}
        for row in seen(rows):
            best.setdefault(row.user_id, row)
        return list(best.values())

    # ---- SQLite

    def _change(self, id_: int, attempt: int, values: dict[str, object]) -> bool:
        """Writes these columns of a running submission; False where the attempt is not running any more."""
        with self._file.transaction():
            columns = ", ".join(f"{name} = ?" for name in values)
            changed = self._db.execute(
                f"UPDATE submissions SET {columns} {OF_ATTEMPT}", (*values.values(), id_, attempt)
            )
            return changed.rowcount == 1

    def _text(self, column: Literal["code", "result"], id_: int) -> str | None:
        with self._lock:
            row = self._db.execute(f"SELECT {column} FROM submissions WHERE id = ?", (id_,)).fetchone()
            return row[0] if row else None

    def _one(self, where: str, *values: object) -> Row | None:
        rows = self._rows(where, *values)
        return rows[0] if rows else None

    def _rows(self, where: str, *values: object) -> list[Row]:
        with self._lock:
            query = f"SELECT {COLUMNS} FROM submissions s JOIN users u ON u.id = s.user_id WHERE {where}"
            return [_row(dict(row)) for row in self._db.execute(query, values)]


def _row(values: dict[str, Any]) -> Row:
    assert values["state"] in get_args(State)
    passed = None if values["passed"] is None else bool(values["passed"])
    return Row(**values | {"passed": passed, "runs": json.loads(values["runs"])})
