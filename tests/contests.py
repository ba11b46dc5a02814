"""A contest for tests: its file, a clock that is set by hand, and submissions whose evaluation is played."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from factories import GEMM_BENCHMARKS, report, results, timed

from harness.board.entries import Entry
from harness.board.judgements import entry_of
from harness.contest import acts
from harness.contest.acts import Contest
from harness.contest.lifecycle import Ranked
from harness.contest.state import ContestEntry
from harness.core.records import EvalReport, Measured

FILE = """\
name: Kernel class 2027
description: Two problems, one winter.
deadline: 2027-01-29 18:00
opens: 2027-01-11 09:00
registration: {opens: 2027-01-04 09:00, closes: 2027-01-15 18:00}
freeze: 2027-01-28 18:00
teams: {members: 3}
quota: {per_day: 3}
organisers: [grace]
problems:
  - {directory: gemm_rs, name: gemm_rs, targets: [{shape: {m: 64}, speedup: 1.5}, {limit: 0.001}]}
  - {directory: ag_gemm, name: ag_gemm, opens: 2027-01-18 09:00, deadline: 2027-01-27 18:00}
awards:
  - {name: first, place: 1}
  - {name: sole, place: 1, shared: false, targets: false}
  - {name: second, place: 2, problem: gemm_rs}
"""
REGISTRATION = datetime(2027, 1, 4, 9, tzinfo=UTC)
OPEN = datetime(2027, 1, 11, 9, tzinfo=UTC)
END = datetime(2027, 1, 29, 18, tzinfo=UTC)
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def contest(folder: Path, text: str = FILE) -> Contest:
    """The contest of that text, in a folder."""
    file = folder / "class.yaml"
    file.write_text(text)
    return acts.opened(file)


def register(found: Contest, team: str, *members: str, now: datetime = REGISTRATION) -> dict[str, str]:
    return acts.register(found, team, members, now, members[0], lambda: "secret-of-this-test")


def submit(
    found: Contest, member: str, now: datetime = OPEN, problem: str = "gemm_rs", sha256: str = "5e" * 32
) -> ContestEntry:
    return acts.submit(found, member, problem, "mine.py", sha256, now)


def evaluation(number: int, speedup: float, samples: int = 12, **changes: Any) -> Entry:
    """A passed evaluation that was so much faster than the reference, in a run of its own."""
    judged = entry_of(fast(speedup, samples), "v1")
    assert judged is not None
    return replace(judged, run_id=f"20270111T090000-{number:06x}", **changes)


def fast(speedup: float, samples: int = 12) -> EvalReport:
    """The report of one."""
    times: Sequence[Measured] = [timed(1640.0 * 5**n / speedup, 1640.0 * 5**n, samples) for n in range(3)]
    return report(results([], times, GEMM_BENCHMARKS))


def ranked(
    found: Contest, member: str, speedup: float, now: datetime = OPEN, sha256: str = "", **more: Any
) -> ContestEntry:
    """A submission that passed."""
    sha256 = sha256 or hashlib.sha256(f"{member} {speedup}".encode()).hexdigest()
    one = submit(found, member, now, sha256=sha256, **more)
    evaluated = evaluation(one.number, speedup, author=one.team, sha256=sha256)
    return acts.settle(found, Ranked(entry=one.number, evaluation=acts.slim(evaluated)), now + MINUTE, "harness")
