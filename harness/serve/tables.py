"""The tables of the queue's file, and the order in which what waits there is evaluated."""

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence

# Of the tables, in the file's user_version. 1: first. 2: of a submission the contest, team and entry. 3: of one that is
# to be profiled by a vendor's tool, the tool, and the only benchmark where not all are meant. 4: of that one how many
# launches of a call, where that was said. 5: when a user was banned, and which problems are closed. 6: the
# leaderboards that were created over HTTP.
VERSION = 6
TABLES = """
CREATE TABLE users (
  id INTEGER PRIMARY KEY,
  secret_sha256 TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL UNIQUE COLLATE NOCASE,
  created_at TEXT NOT NULL,
  banned_at TEXT
);
CREATE TABLE closed (problem TEXT PRIMARY KEY);
CREATE TABLE created (name TEXT PRIMARY KEY, folder TEXT NOT NULL);
CREATE TABLE submissions (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  user_id INTEGER NOT NULL REFERENCES users(id),
  problem TEXT NOT NULL,
  leaderboard TEXT NOT NULL,
  gpu TEXT NOT NULL,
  mode TEXT NOT NULL,
  file_name TEXT NOT NULL,
  code TEXT NOT NULL,
  submitted_at TEXT NOT NULL,
  state TEXT NOT NULL DEFAULT 'pending',
  attempt INTEGER NOT NULL DEFAULT 0,
  started_at TEXT,
  ended_at TEXT,
  passed INTEGER,
  score_s REAL,
  run_id TEXT,
  error TEXT,
  runs TEXT NOT NULL DEFAULT '[]',
  result TEXT,
  contest TEXT,
  team TEXT,
  entry INTEGER,
  tool TEXT,
  benchmark INTEGER,
  launch_count INTEGER
);
CREATE INDEX submissions_by_state ON submissions(state, id);
CREATE INDEX submissions_by_user ON submissions(user_id, id);
CREATE INDEX submissions_by_team ON submissions(contest, team, started_at);
"""
TO_6 = """
CREATE TABLE created (name TEXT PRIMARY KEY, folder TEXT NOT NULL);
"""
TO_5 = """
ALTER TABLE users ADD COLUMN banned_at TEXT;
CREATE TABLE closed (problem TEXT PRIMARY KEY);
"""
TO_4 = """
ALTER TABLE submissions ADD COLUMN launch_count INTEGER;
"""
TO_3 = """
ALTER TABLE submissions ADD COLUMN tool TEXT;
ALTER TABLE submissions ADD COLUMN benchmark INTEGER;
"""
TO_2 = """
ALTER TABLE submissions ADD COLUMN contest TEXT;
ALTER TABLE submissions ADD COLUMN team TEXT;
ALTER TABLE submissions ADD COLUMN entry INTEGER;
CREATE INDEX submissions_by_team ON submissions(contest, team, started_at);
"""
# What brings a file of an earlier version to today's; 0: a new one.
STEPS = (TO_2, TO_3, TO_4, TO_5, TO_6)
SCRIPTS = {0: TABLES} | {version: "".join(STEPS[version - 1 :]) for version in range(1, VERSION)}


def turns(waiting: Sequence[tuple[int, str]], running: Mapping[str, int], last_served: Mapping[str, str]) -> list[int]:
    """The numbers in `waiting` in the order of their turns: whoever has work running waits behind all others, then
    whoever was served longest ago comes first, and each comes once a round. So a team that queues twenty submissions
    delays another's first by one evaluation, not by twenty. Each is a number with its owner, in the order in which they
    came; `running` counts an owner's running ones, `last_served` is when its last one was started (ISO 8601; an owner
    without one comes before all others)."""
    rounds = Counter(running)
    keys = []
    first: dict[str, int] = {}
    for number, owner in waiting:
        first.setdefault(owner, number)
        keys.append((rounds[owner], last_served.get(owner, ""), first[owner], number))
        rounds[owner] += 1
    return [key[-1] for key in sorted(keys)]


def waiting_turns(db: sqlite3.Connection) -> list[int]:
    """The waiting submissions' numbers in the order in which they came, or by turns of a contest's teams."""
    found = db.execute("SELECT id, contest, team, user_id FROM submissions WHERE state = 'pending' ORDER BY id")
    waiting = [tuple(row) for row in found]
    if all(team is None for _, _, team, _ in waiting):
        return [number for number, *_ in waiting]
    found = db.execute("SELECT contest, team, user_id FROM submissions WHERE state = 'running'")
    running = Counter(_owner(*row) for row in found)
    served: dict[str, str] = {}
    for name, (contest, team, user_id) in {_owner(*owner): owner for _, *owner in waiting}.items():
        where, values = ("user_id = ?", [user_id]) if team is None else ("contest = ? AND team = ?", [contest, team])
        served[name] = db.execute(f"SELECT max(started_at) FROM submissions WHERE {where}", values).fetchone()[0] or ""
    return turns([(number, _owner(*owner)) for number, *owner in waiting], running, served)


def _owner(contest: str | None, team: str | None, user_id: int) -> str:
    return f"team {contest}/{team}" if team is not None else f"user {user_id}"
