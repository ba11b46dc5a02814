"""Recorded runs for tests of what shows several of them: a checkout with a board and reports, from the factories."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from factories import GEMM_BENCHMARKS, TIMES, entry, report, results

from harness.board import judgements, report_json
from harness.board.entries import Board, Earlier, Entry, MeasuredNoise
from harness.core.checkout import ROOT
from harness.core.metrics import CLOCKS, TOKENS, TTFT
from harness.core.records import EvalReport, Measured, Metric, Passed, Series

SCRIPT = "<script>alert(1)</script>"
HOSTILE_FILE = 'submissions/gemm_rs/"><img src=x onerror=alert(2)>.py'


def run_id(number: int) -> str:
    return f"202605{number:02d}T120000-00000{number:x}"


def slower(one: Measured, times: float) -> Measured:
    series = tuple(replace(each, own=tuple(times * sample for sample in each.own)) for each in one.series)
    return replace(one, series=series)


def gpu(one: Measured, ranks: int = 8) -> Measured:
    """The case on three clocks, with ranks that end one after the other."""
    wall = one.ranked
    others = tuple(
        replace(
            wall,
            metric=CLOCKS[clock],  # type: ignore[index]
            own=tuple(part * sample for sample in wall.own),
            baseline=tuple(part * sample for sample in wall.baseline),
        )
        for clock, part in (("device", 0.8), ("gpumode", 1.3))
    )
    ends = tuple(wall.own[0] * (0.9 + 0.02 * (3 * rank % ranks)) for rank in range(ranks))
    return Measured(series=(wall, *others), bounded="device", rank_ends_us=ends)


def run(number: int, times: float = 1.0, ranks: int = 8, **changes: Any) -> EvalReport:
    """A passed run whose calls take `times` as long as the example's."""
    cases = results([Passed()] * 3, [gpu(slower(one, times), ranks) for one in TIMES], GEMM_BENCHMARKS)
    values: dict[str, Any] = {
        "run_id": run_id(number),
        "started_at": f"2026-05-{number:02d}T12:00:00+00:00",
        "empty_call_samples_us": {"wall": (20.0, 19.0, 21.0), "device": (2.0, 2.1), "gpumode": (40.0, 42.0)},
    }
    return report(cases, **(values | changes))


def of_points(number: int, tokens: Sequence[float] = (2.0, 1.5), **changes: Any) -> EvalReport:
    """A passed run of a model, whose prompts have so many times the reference's tokens a second, ten times as early."""

    def series(metric: Metric, own: float, baseline: float) -> Series:
        return Series(metric=metric, own=(own,) * 8, baseline=(baseline,) * 8, block=4)

    cases = [
        Measured(
            series=(series(TOKENS, 100 * one, 100), series(TTFT, 500, 5000)), bounded=TOKENS.name, own_kernels=0.85
        )
        for one in tokens
    ]
    shapes = [{"model": "llama31_8b", "batch": 1, "prompt": 1024 * n, "new": 128} for n in range(1, 1 + len(cases))]
    of: dict[str, Any] = {"problem": "llama", "suite": "official", "world_size": 1, "ranking_by": "product"}
    return run(number, results=results([Passed()] * 3, cases, shapes), **(of | changes))


def entry_for(found: EvalReport, history: tuple[Earlier, ...] = ()) -> Entry:
    """The entry that the leaderboard would have."""
    made = judgements.entry_of(found)
    assert made is not None
    return replace(made, history=history)


def earlier(number: int, score_s: float) -> Earlier:
    date = f"2026-05-{number:02d}T12:00:00+00:00"
    return Earlier(date=date, run_id=run_id(number), sha256="7" * 64, score=score_s, ratio=1.1)


def store(root: Path, found: EvalReport) -> Path:
    """Writes runs/<run id>/report.json and the source, as archive does."""
    folder = root / "runs" / found.run_id
    folder.mkdir(parents=True)
    (folder / "submission.py").write_text(found.submission.source)
    path = folder / "report.json"
    path.write_text(json.dumps(report_json.to_json(found)))
    return path


def checkout(root: Path) -> Board:
    """A board of two problems below `root`: alice leads bob, who leads a name that is HTML; all with reports, on a
    machine whose launches hardly differ. What else there is has none. Some of it failed."""
    for part in ("reference", "shapes"):
        (root / part).symlink_to(ROOT / part)
    alice, bob = run(3, 1.0), run(4, 1.25, author="bob", submission=renamed("submissions/gemm_rs/ring.py"))
    evil = run(5, 1.9, author=SCRIPT, submission=renamed(HOSTILE_FILE))
    for one in (run(1, 1.5), alice, bob, evil):
        store(root, one)
    store(root, run(6, author="carol", mode="test", results=results([Passed()] * 3, [])))
    old = entry_for(alice, (earlier(2, 0.009), earlier(1, 0.0105)))
    alone = entry(problem="a2a", author="dave", file="submissions/a2a/submission.py", run_id=run_id(9))
    retired = entry(problem="retired", suite="official", author="erin", fraction=None, run_id=run_id(10))
    quiet = MeasuredNoise(
        problem="gemm_rs",
        machine_class=old.machine_class,
        machine=None,
        date="2026-05-02",
        launches=20,
        sd=0.005,
        levels=(0.0,) * 40,
    )
    return Board(entries=(old, entry_for(bob), entry_for(evil), alone, retired), launch_noise=(quiet,))


def renamed(name: str) -> Any:
    return replace(report().submission, name=name, sha256=hashlib.sha256(name.encode()).hexdigest())
