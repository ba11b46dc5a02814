"""The reference beside itself: when an evaluation is held because the reference was slower beside the submission."""

import contextlib
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from factories import GEMM_BENCHMARKS, case, timed

from harness.core.checkout import Checkout
from harness.core.errors import HarnessError
from harness.core.records import Case, CaseResult, EvalReport, Failure, Held, Measured, Raised, Submission, TimedOut
from harness.evaluation.controls import CASES, FEWEST, LOST, PAIRS, REUSED, Controls, controlled
from harness.evaluation.evaluate import evaluate
from harness.judging import verdict
from harness.kinds.kind import Order, Phase, Plan, Progress, SubmissionFailed
from harness.kinds.registry import plan_of
from harness.kinds.settings import Asked, setting

RAISED = Raised(rank=0, message="no", traceback="")


class Played:
    """A session whose launches find these factors of the reference's time, beside itself (`alone`) and beside the
    submission."""

    def __init__(self, alone: Sequence[float | Failure], beside: Sequence[float | Failure] = ()) -> None:
        self.plan: Any = None
        self.progress = Progress()
        self.left = {True: list(alone), False: list(beside)}
        self.launches: list[bool] = []
        self.now: float | Failure = 1.0

    def again(self, is_control: bool = False) -> None:
        self.launches.append(is_control)
        self.now = self.left[is_control].pop(0)

    @contextlib.contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        yield

    def measure_again(self, case: Case) -> Measured:
        if isinstance(self.now, float):
            return timed(ref_us=2000.0 * self.now)
        raise SubmissionFailed(self.now)


def judged(
    session: Played, beside: float, controls: Controls | None = None, times: int = 1, secret: int = 7
) -> list[CaseResult]:
    """What becomes of three cases (so many times) whose reference took `beside` times as long as it should."""
    cases = tuple(case(params) for params in GEMM_BENCHMARKS * times)
    phase = Phase(name="benchmark", cases=cases, limit_s=1.0, then="measure")
    session.plan = SimpleNamespace(phases=(phase,), secret=secret, launches=1)
    results = [CaseResult(case=one, outcome=timed(ref_us=2000.0 * beside)) for one in cases]
    return controlled(session, results, controls)  # type: ignore[arg-type]


@pytest.mark.parametrize("beside", [0.5, 1.0, 1.04])
def test_a_reference_that_is_as_fast_takes_one_launch(beside: float) -> None:
    session = Played([1.0])
    assert all(isinstance(one.outcome, Measured) for one in judged(session, beside))
    assert session.launches == [True]


def test_a_reference_that_is_slower_every_time_holds() -> None:
    session = Played([1.0] * PAIRS, [1.4] * (PAIRS - 1))
    [first, *others] = judged(session, 1.5)
    assert isinstance(first.outcome, Held)
    assert first.outcome.check == "reference"
    assert first.outcome.evidence.startswith(f"the reference took 1.50{' 1.40' * (PAIRS - 1)} times as long")
    assert all(isinstance(one.outcome, Measured) for one in others)
    assert session.launches == [True] + [False, True] * (PAIRS - 1)


@pytest.mark.parametrize("at", range(1, PAIRS))
def test_what_other_work_does_comes_and_goes(at: int) -> None:
    beside = [1.4] * (PAIRS - 1)
    beside[at - 1] = 1.0
    session = Played([1.0] * PAIRS, beside)
    found = judged(session, 1.5, times=2)
    assert len(session.launches) == 1 + 2 * at
    assert [one.outcome.ranked.baseline for one in found if isinstance(one.outcome, Measured)] == [  # of that launch
        timed(ref_us=2000.0).ranked.baseline
    ] * len(found)


def test_what_fails_when_it_is_launched_again_fails() -> None:
    found = judged(Played([1.0], [RAISED]), 1.5)
    assert found[0].outcome == RAISED


def test_a_launch_in_which_the_reference_fails_beside_itself_counts_for_no_pair() -> None:
    session = Played([1.0, RAISED, RAISED, *[1.0] * (PAIRS - 1)], [1.4] * (PAIRS + 1))
    [first, *_] = judged(session, 1.5)
    assert isinstance(first.outcome, Held)
    assert first.outcome.check == "reference"
    session = Played([RAISED, 1.0], [1.0])
    assert all(isinstance(one.outcome, Measured) for one in judged(session, 1.5))
    assert session.launches == [True, False, True]


def test_nothing_is_ranked_unseen_where_the_reference_fails_beside_itself() -> None:
    for alone in ([RAISED] * LOST, [1.0, *[RAISED] * LOST]):
        with pytest.raises(HarnessError, match="the reference fails beside itself, 3 times"):
            judged(Played(alone, [1.4] * LOST), 1.5)


class Over(Played):
    """A session whose first drawn shape does not end, so that its ranks are gone."""

    @contextlib.contextmanager
    def session(self, plan: Plan, progress: Progress) -> Iterator["Over"]:
        self.plan, self.progress = plan, progress
        yield self

    def prepare(self) -> None: ...

    close = prepare

    def check(self, case: Case) -> None:
        if case.kind == "drawn":
            raise SubmissionFailed(TimedOut(message="rank 0 timed out", stacks=()))

    def measure(self, case: Case) -> Measured:
        return timed()

    def logs_of(self, case: Case) -> tuple[str, ...]:
        return ()

    def bound(self, case: Case) -> None:
        return None

    def completed(self, report: EvalReport) -> EvalReport:
        return report


@pytest.mark.parametrize("launches", [1, 2])
def test_nothing_is_launched_again_once_a_case_has_failed(launches: int) -> None:
    made = setting(Asked(problem="rms_norm", suite="cpu", ranks=1, device="cpu", launches=launches), Checkout.here())
    submission = Submission(path="a.py", name="a.py", source="", sha256="")
    plan = plan_of(Order(setting=made, submission=submission, mode="leaderboard", author=""))
    assert plan.has_controls
    assert plan.launches == launches
    session: Any = Over([])
    report = evaluate(plan, Progress(), session)
    failed = verdict.first_failure(report)
    assert failed is not None
    assert failed.case.kind == "drawn"
    assert session.launches == []


def test_nobody_knows_which_cases_are_looked_at() -> None:
    class Counting(Played):
        def measure_again(self, case: Case) -> Measured:
            seen.append(case.label)
            return super().measure_again(case)

    drawn = set()
    for secret in range(20):
        seen: list[str] = []
        judged(Counting([1.0]), 1.0, times=2, secret=secret)
        assert len(seen) == CASES
        drawn.add(tuple(seen))
    assert len(drawn) > 5
    seen = []
    judged(Counting([1.0]), 1.0, Controls(), times=2)
    assert len(seen) == 2 * len(GEMM_BENCHMARKS), "others of the pool rest on them"


def test_a_pools_fastest_controls_stand_for_others() -> None:
    """Where the reference is as fast beside the submission as it ever was beside itself; every so often one is made."""
    controls, launches = Controls(), []
    for alone in (1.0, 1.2, 1.3):
        judged(session := Played([alone]), 1.0, controls)
        launches.append(len(session.launches))
    assert launches == [1] * FEWEST
    for _ in range(REUSED):
        judged(session := Played([]), 1.04, controls)
        assert session.launches == []
    judged(session := Played([1.0]), 1.0, controls)
    assert session.launches == [True]


def test_a_submission_that_slows_the_reference_down_is_held_among_many() -> None:
    """Slower than beside itself at its fastest, though not than it sometimes was, it is launched as if alone."""
    controls = Controls()
    for alone in (1.0, 1.5, 1.5):
        judged(Played([alone]), 1.0, controls)
    session = Played([1.0] * PAIRS, [1.4] * (PAIRS - 1))
    assert isinstance(judged(session, 1.4, controls)[0].outcome, Held)
    assert len(session.launches) == 2 * PAIRS - 1
