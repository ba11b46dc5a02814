"""What the plans of most kinds have in common: what was asked for, and the phases of each mode."""

from dataclasses import replace
from typing import Any, Literal, TypeVar

from harness.core.records import Mode
from harness.kinds.kind import Order, Phase, Plan
from harness.problems.problem import Suite

P = TypeVar("P", bound=Plan)
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


def planned(plan_type: type[P], order: Order, **more: Any) -> P:
    """A plan of that type for the order; `more` are the fields that the kind adds or decides otherwise."""
    setting, problem = order.setting, order.setting.problem
    decided: dict[str, Any] = {
        "kind": problem.kind,
        "phases": phases(more.get("suite", setting.suite), order.mode),
        "ranking_by": problem.ranking_by,
        "checker": problem.checker,
        "launches": 1,
    }
    asked = {name: value for name, value in vars(order).items() if name != "setting"}
    return plan_type(**(vars(setting) | asked | decided | more))
