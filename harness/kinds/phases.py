"""The phases of each mode, which most kinds have in common."""

from dataclasses import replace
from typing import Literal

from harness.core.records import Mode
from harness.kinds.kind import Phase
from harness.problems.problem import Suite

PHASES: dict[Mode, tuple[Literal["test", "benchmark", "profile"], ...]] = {
    "test": ("test",),
    "benchmark": ("benchmark",),
    "leaderboard": ("test", "benchmark"),
    "profile": ("profile",),
}


def phases(suite: Suite, mode: Mode) -> tuple[Phase, ...]:
    """The phases of a mode, on the cases of a suite."""
    profiled = tuple(replace(case, kind="profile") for case in suite.benchmarks)
    limit_s = suite.ranked_timeout_s if mode == "leaderboard" else suite.benchmark_timeout_s
    known = {
        "test": Phase(name="test", cases=suite.tests, limit_s=suite.test_timeout_s, then="check"),
        "benchmark": Phase(
            name="benchmark", cases=suite.benchmarks, limit_s=limit_s, then="measure", case_s=suite.benchmark_s
        ),
        "profile": Phase(name="profile", cases=profiled, limit_s=limit_s, then="profile"),
    }
    return tuple(known[name] for name in PHASES[mode])
