"""Groups of ranks that are kept between evaluations: every candidate ends as it does alone, and harms no other."""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator

import pytest
from conftest import RANKS, Silent, submission_of
from test_hostile import ended, ends_as_told, tried_on

from harness.core.checkout import Checkout
from harness.core.records import EvalReport, Mode
from harness.evaluation.evaluate import evaluate
from harness.kinds.op_pool import OpPool
from harness.kinds.plan import make_plan
from harness.kinds.registry import find
from harness.machine.host import descendants

GROUPS = 2
RIGHT = "from reference import ref_kernel\n\n\ndef custom_kernel(data):\n    return ref_kernel(data)\n"
WRONG = "import torch\n\n\ndef custom_kernel(data):\n    return torch.zeros_like(data[1].x)\n"
RAISES = "def custom_kernel(data):\n    raise ValueError('not today')\n"
# What a submission does to others: to its judges, to processes, files, memory and the cache.
FAMILIES = (
    "break",
    "burn",
    "edit",
    "fill",
    "forged",
    "hog",
    "kill",
    "leave",
    "persist",
    "slow",
    "stop",
    "take",
    "wake",
)
TRIED = [one for one in tried_on("cpu") if one.problem == "a2a" and one.name.partition("_")[0] in FAMILIES]


@pytest.fixture
def pooled(nothing_left: None) -> Iterator[Callable[..., EvalReport]]:
    """pooled(source, mode=..., timeout_s=...) evaluates in one pool."""
    found = find("a2a", Checkout.here())

    with OpPool() as pool:

        def run(source: str, mode: Mode = "test", timeout_s: float = 15.0) -> EvalReport:
            cases = dataclasses.replace(found.suite("quick"), benchmarks=found.suite("quick").benchmarks[:1])
            cases = dataclasses.replace(
                found.with_world_size(cases, RANKS), test_timeout_s=timeout_s, ranked_timeout_s=timeout_s,
                benchmark_timeout_s=timeout_s, benchmark_s=0.05,
            )  # fmt: skip
            plan = make_plan(found, cases, submission_of(source), mode, "cpu", RANKS, "tester")
            return evaluate(plan, Silent(), pool)

        yield run


def test_a_pool_starts_candidates_alone_and_ends_everything(pooled: Callable[..., EvalReport]) -> None:
    """After a pass or a wrong result only the candidate's group is another; nobody sees a process of the one before."""
    first = pooled(RIGHT, mode="leaderboard")
    zygotes = set(descendants(os.getpid()))
    again, wrong, last = pooled(RIGHT, mode="leaderboard"), pooled(WRONG), pooled(RIGHT)
    assert [ended(one)[0] for one in (first, again, wrong, last)] == ["right", "right", "wrong", "right"]
    assert "reference" in first.phases_s
    assert "reference" not in again.phases_s
    assert len({one.secret_seed for one in (first, again, wrong, last)}) == 4
    assert again.empty_call_samples_us == first.empty_call_samples_us
    kept = zygotes & set(descendants(os.getpid()))
    assert len(zygotes - kept) <= len(kept)  # the first candidate's are gone, the others stayed


def test_what_raises_costs_the_groups_that_it_may_have_harmed(pooled: Callable[..., EvalReport]) -> None:
    """All of them are new in the next evaluation, which ends as it should."""
    assert ended(pooled(RAISES))[0] == "raised"
    after = pooled(RIGHT)
    assert ended(after)[0] == "right"
    assert "reference" in after.phases_s


def test_memory_and_files_stay_flat(pooled: Callable[..., EvalReport]) -> None:
    pooled(RIGHT)
    before = len(os.listdir("/proc/self/fd"))
    for source in (RIGHT, WRONG, RAISES, RIGHT, WRONG):
        pooled(source)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("part", range(GROUPS))
def test_hostile_candidates_end_in_a_pool_as_they_do_alone(
    part: int, pooled: Callable[..., EvalReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other in the same pool, as their docstrings say; the last one is right, and is measured."""
    monkeypatch.setenv("A_TOKEN", "to be found")
    monkeypatch.setenv("NVIDIA_API_KEY", "to be found")
    for hostile in TRIED[part::GROUPS]:
        ends_as_told(hostile, functools.partial(pooled, hostile.source, mode=hostile.mode))
    assert ended(pooled(RIGHT, mode="leaderboard"))[0] == "right"
