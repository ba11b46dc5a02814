"""The time left: a guess from the plan at first, then what steps really take; never a promise."""

import dataclasses

import pytest
from factories import ordered

from harness.core.checkout import Checkout
from harness.core.records import Mode, Submission
from harness.evaluation.controls import looked_at
from harness.evaluation.eta import Eta, eta_text
from harness.kinds.kind import Plan
from harness.kinds.op.plan import make_plan
from harness.kinds.phases import PHASES
from harness.problems.shape_file import find

SUBMISSION = Submission(path="x.py", name="x.py", source="", sha256="0" * 64)


def plan_of(tests: int = 4, benchmarks: int = 5, drawn: int = 0, launches: int = 1, controls: bool = False) -> Plan:
    """Every benchmark is measured for 3 s in a launch."""
    problem = find("a2a", Checkout.here())
    suite = problem.with_world_size(problem.suite("cpu"), 1)
    suite = dataclasses.replace(
        suite,
        tests=suite.tests[:tests],
        benchmarks=suite.benchmarks[:benchmarks],
        drawn=drawn,
        benchmark_s=3.0 * launches,
    )
    plan = make_plan(ordered(problem, suite, SUBMISSION, "leaderboard", "cpu", 1, launches=launches))
    return dataclasses.replace(plan, has_controls=controls, secret=7)


class Clock:
    """An evaluation of that plan, whose events come when a test says so."""

    def __init__(self, plan: Plan | None = None) -> None:
        self.now_s = 0.0
        self.eta = Eta(lambda: self.now_s)
        self.eta.expect(plan or plan_of())
        self.eta.phase("start")

    def passes(self, seconds: float) -> None:
        self.now_s += seconds

    def runs(self, phase: str, *took_s: float, begin: float = 0.0) -> None:
        """A phase whose cases take so long; after them the next phase, or a case, has to begin."""
        self.passes(begin)
        self.eta.phase(phase)
        for index, seconds in enumerate(took_s):
            self.eta.case("E 8", index, len(took_s))
            self.passes(seconds)

    def begins(self, phase: str, *took_s: float, count: int = 5) -> None:
        """A phase whose first cases take so long, and in which the next one begins."""
        self.runs(phase, *took_s)
        self.eta.case("E 8", len(took_s), count)

    @property
    def left_s(self) -> float | None:
        return self.eta.left_s


def test_before_the_first_case_everything_is_to_come() -> None:
    clock = Clock()
    whole = clock.left_s
    assert whole == pytest.approx(4.0 + 4 * 0.5 + 5 * 3.5 + 0.4)
    clock.passes(3.0)
    clock.eta.phase("clock")
    assert clock.left_s == pytest.approx(whole - 3)
    clock.passes(57.0)
    assert clock.left_s == pytest.approx(whole - 4), "a slow start takes nothing off the rest"


def test_a_benchmark_takes_its_time_and_as_long_again_as_some_tests() -> None:
    clock = Clock()
    clock.begins("test", 2.0)
    assert clock.left_s == pytest.approx(3 * 2 + 5 * (3 + 3 * 2) + 0.4)


def test_the_latest_cases_tell_what_those_to_come_take() -> None:
    clock = Clock()
    clock.runs("test", *[9.0] * 4)
    clock.begins("benchmark", 20.0, 3.2, 3.4)
    assert clock.left_s == pytest.approx(2 * 3.3 + 0.4), "the first one compiles"


def test_drawn_shapes_are_measured_for_less_time() -> None:
    clock = Clock(plan_of(benchmarks=3, drawn=2))
    clock.runs("test", *[0.1] * 4)
    clock.begins("benchmark", 3.5, 3.5, 3.5)
    assert clock.left_s == pytest.approx(2 * (3 / 4 + 0.5) + 0.4)


def test_time_spent_in_a_case_is_no_longer_to_come() -> None:
    clock = Clock()
    clock.runs("test", *[0.125] * 4)
    clock.begins("benchmark", *[3.5] * 4)
    clock.passes(2.0)
    assert clock.left_s == pytest.approx(1.5 + 0.4)
    clock.passes(3.0)
    assert clock.left_s == pytest.approx(0.4)


def test_a_case_that_takes_far_longer_than_expected_ends_the_estimate() -> None:
    clock = Clock()
    clock.begins("test")
    clock.passes(1.9)
    assert clock.left_s is not None
    clock.passes(0.2)
    assert clock.left_s is None
    assert clock.eta.text == "longer than expected"


def test_a_case_that_tells_what_is_left_of_it_is_believed_and_so_are_those_to_come() -> None:
    clock = Clock()
    clock.runs("test", *[0.1] * 4)
    clock.begins("benchmark", 5.0)
    clock.passes(50.0)
    assert clock.left_s is None
    clock.eta.case_left(33.0)
    assert clock.left_s == pytest.approx(33 + 3 * (5 + 83) / 2 + 0.4)
    clock.passes(10.0)
    assert clock.left_s == pytest.approx(23 + 3 * (5 + 83) / 2 + 0.4)
    clock.eta.case("E 8", 2, 5)
    assert clock.left_s == pytest.approx(3 * (5 + 60) / 2 + 0.4), "what it took counts, not what it told"


def test_further_launches_repeat_the_benchmarks_in_less_time() -> None:
    clock = Clock(plan_of(launches=3))
    assert clock.left_s == pytest.approx(23.9 + 2 * (0.6 + 5 * 0.9 * 3.5))
    clock.runs("test", *[0.1] * 4)
    clock.runs("benchmark", 4.0, 4.0, 4.0, 8.0, 8.0)
    clock.runs("launch 2 of 3")
    assert clock.left_s == pytest.approx(2 * (0.6 + 0.9 * 28) + 0.4)
    clock.passes(2.0)
    clock.begins("benchmark", 2.0)
    clock.passes(0.5)
    half_s = 2 + 2 + 4 + 4
    assert clock.left_s == pytest.approx(half_s - 0.5 + 2 + (2 + half_s) + 0.4), "as long to start, half as long a case"
    clock.passes(1.5)
    for index in range(2, 5):
        clock.eta.case("E 8", index, 5)
        clock.passes(2.0 if index < 3 else 4.0)
    clock.runs("launch 3 of 3")
    clock.passes(2.0)
    clock.begins("benchmark", 2.0, 2.0, 2.0, 4.0)
    assert clock.left_s == pytest.approx(4 + 0.4)


def test_the_reference_beside_itself_is_expected_and_so_is_a_repeated_pair() -> None:
    clock = Clock(plan_of(controls=True))
    took_s = [1.0, 2.0, 4.0, 8.0, 16.0]
    looked = [took_s[at] for at in looked_at(5, 7)]
    clock.runs("test", *[0.1] * 4)
    clock.runs("benchmark", *took_s)
    clock.runs("the reference beside itself")
    assert clock.left_s == pytest.approx(0.6 + 0.9 * sum(looked) + 0.4)
    clock.runs("benchmark", *looked, begin=0.6)
    assert clock.left_s == pytest.approx(0.4)
    clock.runs("the reference beside itself")
    assert clock.left_s == pytest.approx(0.6 + sum(took_s) + 0.6 + sum(looked) + 0.4)
    clock.runs("benchmark", *took_s, begin=0.6)
    clock.runs("the reference beside itself")
    clock.begins("benchmark", *looked[:2], count=3)
    assert clock.left_s == pytest.approx(looked[2] + 0.4)


def test_phases_and_cases_that_no_plan_has_do_no_harm() -> None:
    eta = Eta(lambda: 0.0)
    eta.phase("start")
    eta.case("E 8", 0, 1)
    assert eta.text == ""
    clock = Clock(plan_of(tests=1, benchmarks=1))
    clock.runs("test", 1.0)
    clock.runs("benchmark", 7.0)
    clock.runs("validation", 1.0, 1.0)
    assert clock.left_s == pytest.approx(0.4)


@pytest.mark.parametrize("mode", list(PHASES))
def test_a_plan_says_what_it_will_run(mode: Mode) -> None:
    problem = find("a2a", Checkout.here())
    suite = dataclasses.replace(problem.with_world_size(problem.suite("cpu"), 1), benchmark_s=2.5)
    eta = Eta()
    eta.expect(make_plan(ordered(problem, suite, SUBMISSION, mode, "cpu", 1)))
    count = len(suite.benchmarks)
    counts = {"test": len(suite.tests), "benchmark": count + suite.drawn, "profile": count}
    wanted = ["start", *(phase for phase in PHASES[mode] for _ in range(counts[phase]))]
    wanted += ["launch", *["again"] * 3] if mode == "leaderboard" else []
    assert [step.name for step in eta._steps] == wanted
    assert {step.timed_s for step in eta._steps if step.name == "benchmark"} <= {2.5, 2.5 / 4}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "about 1 s"), (7.4, "about 7 s"), (12.0, "about 10 s"), (23.0, "about 25 s"), (117.4, "about 115 s"),
     (118.0, "about 2 min"), (3000.0, "about 50 min")],
)  # fmt: skip
def test_it_is_told_in_few_digits(seconds: float, text: str) -> None:
    assert eta_text(seconds) == text
