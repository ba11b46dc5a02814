"""Zygotes that are kept between evaluations: every candidate ends as it does alone, and harms no other."""

import dataclasses
import functools
import gc
import os
from collections.abc import Callable, Iterator

import pytest
from conftest import RANKS, submission_of
from factories import ordered
from test_hostile import ended, ends_as_told, tried_on
from waiting import until

from harness.core.checkout import Checkout
from harness.core.processes import descendants
from harness.core.records import EvalReport, Mode
from harness.evaluation.evaluate import evaluate
from harness.kinds.kind import Progress
from harness.kinds.op.plan import make_plan
from harness.kinds.op.pool import OpPool
from harness.kinds.registry import find

GROUPS = 2
RIGHT = "from reference import ref_kernel\n\n\ndef custom_kernel(data):\n    return ref_kernel(data)\n"
WRONG = "import torch\n\n\ndef custom_kernel(data):\n    return torch.zeros_like(data[1].x)\n"
RAISES = "def custom_kernel(data):\n    raise ValueError('not today')\n"
# What a submission does to others: to its judges, to processes, files, memory and the cache.
FAMILIES = ("break", "kill", "leave", "persist", "take")
TRIED = [one for one in tried_on("cpu") if one.problem == "a2a" and one.name.partition("_")[0] in FAMILIES]


@pytest.fixture
def pooled(nothing_left: None) -> Iterator[Callable[..., EvalReport]]:
    """pooled(source, mode=..., timeout_s=...) evaluates in one pool."""
    found = find("a2a", Checkout.here())

    with OpPool() as pool:

        def run(source: str, mode: Mode = "test", timeout_s: float = 30.0) -> EvalReport:
            cases = dataclasses.replace(found.suite("quick"), benchmarks=found.suite("quick").benchmarks[:1])
            cases = dataclasses.replace(
                found.with_world_size(cases, RANKS), test_timeout_s=timeout_s, ranked_timeout_s=timeout_s,
                benchmark_timeout_s=timeout_s, benchmark_s=0.05,
            )  # fmt: skip
            plan = make_plan(ordered(found, cases, submission_of(source), mode, "cpu", RANKS))
            return evaluate(plan, Progress(), pool)

        yield run


def test_a_pool_keeps_zygotes_and_nothing_below_them(pooled: Callable[..., EvalReport]) -> None:
    """Nobody sees a process of the candidate before, whatever became of it."""
    first = pooled(RIGHT, mode="leaderboard")
    zygotes = set(descendants(os.getpid()))
    others = [pooled(RIGHT, mode="leaderboard"), pooled(WRONG), pooled(RAISES), pooled(RIGHT)]
    assert [ended(one)[0] for one in (first, *others)] == ["right", "right", "wrong", "raised", "right"]
    until(lambda: set(descendants(os.getpid())) == zygotes)
    assert len({one.secret_seed for one in (first, *others)}) == 5


@pytest.mark.slow
def test_memory_and_files_stay_flat(pooled: Callable[..., EvalReport]) -> None:
    pooled(RIGHT)
    gc.collect()  # what other tests left open
    before = len(os.listdir("/proc/self/fd"))
    for source in (RIGHT, WRONG, RAISES, RIGHT, WRONG):
        pooled(source)
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, GROUPS))])
def test_hostile_candidates_end_in_a_pool_as_they_do_alone(
    part: int, pooled: Callable[..., EvalReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other in the same pool, as their docstrings say; the last one is right, and is measured."""
    monkeypatch.setenv("A_TOKEN", "to be found")
    monkeypatch.setenv("NVIDIA_API_KEY", "to be found")
    for hostile in TRIED[part::GROUPS]:
        ends_as_told(hostile, functools.partial(pooled, hostile.source, mode=hostile.mode))
    assert ended(pooled(RIGHT, mode="leaderboard"))[0] == "right"
