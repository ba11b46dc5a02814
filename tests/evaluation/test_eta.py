"""The time left: a guess from the plan at first, then what cases really take; never a promise."""

import dataclasses

import pytest
from factories import ordered

from harness.core.checkout import Checkout
from harness.core.records import Mode, Submission
from harness.evaluation.eta import Eta, eta_of, eta_text
from harness.kinds.op.plan import make_plan
from harness.kinds.phases import PHASES
from harness.problems.shape_file import find

PLAN = Eta(
    cases={"test": 4, "benchmark": 5},
    timed_s={"test": 0.0, "benchmark": 3.0},
    device="cpu",
)
SUBMISSION = Submission(path="x.py", name="x.py", source="", sha256="0" * 64)


def left(phase: str, index: int = 0, phase_s: float = 0.0, case_s: float = 0.0, **took_s: list[float]) -> float | None:
    return PLAN.left_s(phase, index, phase_s, case_s, took_s)


def test_before_the_first_case_everything_is_to_come() -> None:
    whole = left("start")
    assert whole == pytest.approx(4.0 + 4 * 0.5 + 5 * 3.5 + 0.4)
    assert left("clock", phase_s=3.0) == pytest.approx(whole - 3)
    assert left("clock", phase_s=60.0) == pytest.approx(whole - 4), "a slow start takes nothing off the rest"


def test_what_cases_took_replaces_the_guess() -> None:
    assert left("test", 1, test=[2.0]) == pytest.approx(3 * 2 + 5 * (3 + 2) + 0.4)
    assert left("benchmark", 2, test=[9.0] * 4, benchmark=[3.2, 3.4]) == pytest.approx(3 * 3.3 + 0.4)


def test_time_spent_in_a_case_is_no_longer_to_come() -> None:
    assert left("benchmark", 4, case_s=2.0, test=[0.5]) == pytest.approx(1.5 + 0.4)
    assert left("benchmark", 4, case_s=5.0, test=[0.5]) == pytest.approx(0.4)


def test_a_case_that_takes_far_longer_than_expected_ends_the_estimate() -> None:
    assert left("test", 0, case_s=1.9) is not None
    assert left("test", 0, case_s=2.1) is None


@pytest.mark.parametrize("mode", list(PHASES))
def test_a_plan_says_what_it_will_run(mode: Mode) -> None:
    problem = find("a2a", Checkout.here())
    suite = dataclasses.replace(problem.with_world_size(problem.suite("cpu"), 1), benchmark_s=2.5)
    found = eta_of(make_plan(ordered(problem, suite, SUBMISSION, mode, "cpu", 1)))
    assert tuple(found.cases) == PHASES[mode]
    count = len(suite.benchmarks)
    counts = {"test": len(suite.tests), "benchmark": count + suite.drawn, "profile": count}
    assert found.once == (suite.drawn if "benchmark" in PHASES[mode] else 0)
    assert found.cases == {phase: counts[phase] for phase in PHASES[mode]}
    assert found.timed_s.get("benchmark", 2.5) == 2.5


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "about 1 s"), (7.4, "about 7 s"), (12.0, "about 10 s"), (23.0, "about 25 s"), (117.4, "about 115 s"),
     (118.0, "about 2 min"), (3000.0, "about 50 min")],
)  # fmt: skip
def test_it_is_told_in_few_digits(seconds: float, text: str) -> None:
    assert eta_text(seconds) == text


AGAIN = dataclasses.replace(PLAN, launches=3)  # what begins a launch takes 0.6 s


def test_further_launches_repeat_the_benchmarks_in_less_time() -> None:
    again_s = 5 * 0.6 * 3.5
    assert AGAIN.left_s("start", 0, 0.0, 0.0, {}) == pytest.approx(23.9 + 2 * (0.6 + again_s))
    took_s = {"benchmark": [4.0] * 5 + [2.0]}
    assert AGAIN.left_s("benchmark", 1, 0.0, 0.5, took_s) == pytest.approx(0.4 + 4 * 2.0 - 0.5 + 0.6 + 5 * 2.0)
    took_s["benchmark"] += [2.0] * 8
    assert AGAIN.left_s("benchmark", 4, 0.0, 0.5, took_s) == pytest.approx(0.4 + 2.0 - 0.5)
