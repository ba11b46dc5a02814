"""Launches that are played, for tests of what is decided by them: a checkout with an entry whose source is stored."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import ENVIRONMENT
from recorded import entry_for, run, run_id

from harness.board import leaderboard, runs
from harness.board.entries import Board, Entry
from harness.core.checkout import ROOT
from harness.core.records import EvalReport, Submission
from harness.evaluation import verify
from harness.kinds.kind import Order
from harness.machine import host
from harness.problems.submission import digest

HERE = replace(ENVIRONMENT, machine_class=host.environment("", 8).machine_class)
NAME = "submissions/gemm_rs/mine.py"
SOURCE = "def custom_kernel(data):\n    return data\n"
MINE = Submission(path=NAME, name=NAME, source=SOURCE, sha256=digest(SOURCE, ()))
ENTRY_RUN = run_id(1)

TINY = """
  tiny:
    description: One of each.
    test_timeout: 20
    benchmark_timeout: 20
    ranked_timeout: 20
    tests:
      - {{world_size: 2, {}, seed: 41}}
    benchmarks:
      - {{world_size: 2, {}, seed: 31}}
"""
TINY_SHAPES = {  # of the test, of the benchmark
    "a2a": (
        "num_experts: 8, experts_per_token: 2, hidden_dim: 64, max_num_tokens: 4",
        "num_experts: 8, experts_per_token: 2, hidden_dim: 96, max_num_tokens: 8",
    ),
    "gemm_rs": ("m: 8, n: 72, k: 72, has_bias: true", "m: 16, n: 112, k: 288, has_bias: false"),
}
FEW = ("--seconds", "0.05")


def add_tiny(checkout: Path, problem: str = "gemm_rs") -> None:
    """Adds a suite of one test and one benchmark of 2 ranks to the problem there, for real launches."""
    with (checkout / "shapes" / f"{problem}.yaml").open("a") as shapes:
        shapes.write(TINY.format(*TINY_SHAPES[problem]))


def launch(number: int, times: float = 1.0, **changes: Any) -> EvalReport:
    """A passed run of the entry's source here, whose calls take `times` as long as the entry's."""
    return run(number, times, **{"environment": HERE, "submission": MINE} | changes)


class Launches:
    """Plays evaluations: each call is the next of `script`, a report or an error; `during` is called in each."""

    def __init__(self) -> None:
        self.script: list[Any] = []
        self.during: Callable[[], object] = lambda: None
        self.ran: list[Submission] = []
        self.settings: list[Any] = []

    def __call__(self, order: Order, progress: object) -> EvalReport:
        assert order.mode == "leaderboard"
        self.ran.append(order.submission)
        self.settings.append(order.setting)
        self.during()
        found = self.script[len(self.ran) - 1]
        if isinstance(found, BaseException):
            raise found
        assert isinstance(found, EvalReport)
        return found


def played(monkeypatch: pytest.MonkeyPatch) -> Launches:
    """In the place of all evaluations."""
    launches = Launches()
    monkeypatch.setattr(verify, "plan_of", lambda order: order)
    monkeypatch.setattr(verify, "evaluate", launches)
    monkeypatch.setattr(verify, "reference_passes", lambda *order: False)  # errors are the machine's
    return launches


def prepared(root: Path) -> Path:
    """`root` as a checkout with one entry by alice, its source stored, and one by bob, who is a little slower."""
    for part in ("reference", "shapes"):
        (root / part).symlink_to(ROOT / part)
    runs.store(launch(1), root)
    leaderboard.record(root / "leaderboard.yaml", entry_for(launch(1)))
    leaderboard.record(root / "leaderboard.yaml", entry_for(launch(2, 1.1, author="bob")))
    return root


def loaded(root: Path) -> Board:
    return leaderboard.load(root / "leaderboard.yaml")


def alice(found: Board) -> Entry:
    return next(one for one in found.entries if one.author == "alice")
