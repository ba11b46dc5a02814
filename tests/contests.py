"""A contest for tests: its file, a clock that is set by hand, and submissions whose evaluation is played."""

import contextlib
import functools
import hashlib
import io
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from factories import ENVIRONMENT, FAILURES, GEMM_BENCHMARKS, failed_benchmark, failed_test, report, results, timed
from replaying import replay_of

from harness.board.entries import Entry, Verification
from harness.board.judgements import entry_of
from harness.cli import main
from harness.cli.contest_verbs import World
from harness.contest import acts
from harness.contest.acts import Contest
from harness.contest.lifecycle import EvaluationRanked, Reproduced
from harness.contest.state import ContestEntry
from harness.core import stats
from harness.core.checkout import Checkout
from harness.core.errors import HarnessError
from harness.core.records import EvalReport, Measured
from harness.evaluation import recorded
from harness.kinds.kind import Order, Plan
from harness.machine import host

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
    return acts.submit(found, acts.NewEntry(member=member, problem=problem, file="mine.py", sha256=sha256), now)


def evaluation(number: int, speedup: float, samples: int = 12, **changes: Any) -> Entry:
    """A passed evaluation that was so much faster than the reference, in a run of its own."""
    judged = entry_of(fast(speedup, samples), "v1")
    assert judged is not None
    return replace(judged, run_id=f"20270111T090000-{number:06x}", **changes)


@functools.cache
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
    return acts.settle(
        found, EvaluationRanked(entry=one.number, evaluation=acts.slim(evaluated)), now + MINUTE, "harness"
    )


def reproduced(number: int, ratio: float = 2.0) -> Reproduced:
    """What `verify-top` wrote of an entry."""
    verified = Verification(
        date="2027-01-29T20:00:00+00:00",
        launches=5,
        run_ids=("a",),
        score=0.001,
        score_ci=(0.0009, 0.0011),
        ratio=ratio,
        ratio_ci=(ratio * 0.9, ratio * 1.1),
    )
    return Reproduced(entry=number, verified=verified)


# ---- evaluations that are played -------------------------------------------------------------------------------------
class PlayedKind:
    """A kind of problem whose evaluations replay a report that the submission's own text describes: `# speedup 2.5`,
    `# speedup 4 then 1.5` (later launches), `# wrong`, `# raised`, `# timed_out` or `# held`. Launches differ by 1 %.
    """

    def __init__(self) -> None:
        self.launches: dict[str, int] = {}

    def plan(self, order: Order) -> Plan:
        text, count = order.submission.source, self.launches.get(order.submission.sha256, 0)
        self.launches[order.submission.sha256] = count + 1
        failed = next((one for one in FAILURES if f"# {one.type}" in text), None)
        found = re.search(r"# speedup ([\d.]+)(?: then ([\d.]+))?", text)
        if failed is not None:
            made = failed_benchmark(failed) if failed.type == "held" else failed_test(failed)
        else:
            assert found is not None, text
            speedup = float(found[2] if found[2] and count else found[1])
            made = fast(speedup * (1, 1.01, 0.99)[count % 3])
        setting = order.setting
        made = replace(
            made,
            problem=setting.problem.name,
            submission=order.submission,
            author=order.author,
            mode=order.mode,
            device=setting.device,
            world_size=setting.world_size,
            suite=setting.suite.name,
            environment=ENVIRONMENT,
        )
        return replay_of(made, setting.problem)


def play(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations are played from now on, on the machine of the factories."""
    kind = PlayedKind()
    monkeypatch.setattr(recorded, "plan_of", kind.plan)
    monkeypatch.setattr(host, "environment", lambda *_: ENVIRONMENT)
    monkeypatch.setattr(stats, "_interval", functools.cache(stats._interval))  # the same samples come again and again


def no_cluster(engine: str, command: Sequence[str], checkout: Checkout) -> int:
    raise AssertionError(f"{command} was to run by {engine}")


@dataclass
class Stage:
    """A checkout in which contests' commands are carried out, at times and by people that the test chooses; by another
    engine they run as `elsewhere` says."""

    root: Path
    now: datetime = REGISTRATION
    login: str = "grace"
    elsewhere: Callable[[str, Sequence[str], Checkout], int] = no_cluster

    def run(self, line: str) -> tuple[int, str]:
        """The exit code of `python -m harness ...`, and what it prints, an error as the command line shows it."""
        words = shlex.split(line)
        assert words[:3] == ["python", "-m", "harness"], line
        world = World(
            now=lambda: self.now,
            new_secret=lambda: "kept-by-its-member",
            login=lambda: self.login,
            elsewhere=self.elsewhere,
        )
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()) as errors:
            try:
                command = main.parse(words[3:])
                code = int(command.run(command.order, Checkout(self.root), world))
            except HarnessError as error:
                code = int(error.exit_code)
                out.write(f"error: {error}\n")
            except SystemExit as end:
                code = int(str(end.code))
                out.write(errors.getvalue().splitlines()[-1] + "\n")
        return code, "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())
