"""What a server has had to do, under the names of GPU MODE's admin statistics. A pure function over the queue's rows.

After gpu-mode/kernelbot src/libkernelbot/leaderboard_db.py (read 2026-11). Times are in seconds.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from harness.serve.store import Row

MOST = 10  # users who are named


def of_queue(rows: Sequence[Row]) -> dict[str, float]:
    found: dict[str, float] = {
        "num_submissions": len(rows),
        "sub_waiting": sum(not row.done for row in rows),
        "num_users": len({row.user_id for row in rows}),
    }
    by_runner: dict[str, list[tuple[Row, dict[str, Any]]]] = defaultdict(list)
    for row in rows:
        for run in row.runs:
            by_runner[run["runner"]].append((row, run))
    for runner, ran in by_runner.items():
        delays = [_seconds(row.submitted_at, run["start_time"]) for row, run in ran if run["start_time"]]
        found |= {
            f"num_run.{runner}": len(ran),
            f"runs_passed.{runner}": sum(bool(run["passed"]) for _, run in ran),
            f"runs_scored.{runner}": sum(run["score"] is not None for _, run in ran),
            f"runs_secret.{runner}": sum(bool(run["secret"]) for _, run in ran),
            f"max_delay.{runner}": max(delays, default=0.0),
            f"avg_delay.{runner}": sum(delays) / len(delays) if delays else 0.0,
            f"total_runtime.{runner}": sum(_took_s(row.runs) for row in {row.id: row for row, _ in ran}.values()),
        }
    return found


def longest(rows: Iterable[Row]) -> dict[str, float]:
    totals: dict[str, float] = defaultdict(float)
    for row in rows:
        totals[row.user] += _took_s(row.runs)
    return {f"total.{user}": totals[user] for user in sorted(totals, key=totals.__getitem__, reverse=True)[:MOST]}


def _took_s(runs: Iterable[dict[str, Any]]) -> float:
    """How long they took; runs that are one evaluation under several names count once."""
    return sum(_seconds(*times) for times in {(run["start_time"], run["end_time"]) for run in runs} if all(times))


def _seconds(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
