"""What the plans of most kinds have in common: what was asked for, each mode's phases, and notes before the run."""

import contextlib
from dataclasses import replace
from typing import Any, Literal, TypeVar

from harness.core.errors import BadSubmissionError
from harness.core.records import Mode, Submission, Warning
from harness.gpumode.folder import TaskProblem
from harness.kinds.kind import Order, Phase, Plan, Setting
from harness.problems.problem import Suite
from harness.problems.submission import directives

P = TypeVar("P", bound=Plan)
PHASES: dict[Mode, tuple[Literal["test", "benchmark", "profile"], ...]] = {
    "test": ("test",),
    "benchmark": ("benchmark",),
    "leaderboard": ("test", "benchmark"),
    "profile": ("profile",),
}


def phases(suite: Suite, mode: Mode) -> tuple[Phase, ...]:
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


def conditions(setting: Setting, submission: Submission) -> tuple[bool, tuple[Warning, ...]]:
    """Whether the CPU stands in for "cuda" where this submission is evaluated by our ranks, or by a folder's own
    evaluator, and what the report has to say of it all."""
    problem, notes = setting.problem, setting.notes
    if not isinstance(problem, TaskProblem):  # whose names at GPU MODE are not in their folders
        with contextlib.suppress(BadSubmissionError):  # lines that nobody follows hurt nobody
            named = directives(submission.source, submission.name).leaderboard
            if named is not None and not problem.is_named(named):
                notes += (Warning(code="other_problem", values={"named": named, "problem": problem.name}),)
        return False, notes
    if not setting.is_cpu_asked:
        return False, notes
    is_cuda = problem.mentions("cuda", submission.source)
    return is_cuda, (*notes, Warning(code="cuda_is_cpu")) if is_cuda else notes
