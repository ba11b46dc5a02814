"""Whether an evaluation passed, and which exit code says so."""

from typing import get_args, get_type_hints

import pytest
from factories import (
    CRASHED,
    FAILURES,
    HELD,
    RAISED,
    TIMED_OUT,
    TIMES,
    WRONG_OUTCOME,
    failed_benchmark,
    failed_test,
    report,
    results,
)

from harness.core import records
from harness.core.errors import Exit
from harness.core.records import Failure, NotRun, Outcome, Passed
from harness.core.stats import geomean, ratio
from harness.judging import verdict


def test_a_run_passes_when_every_test_passed_and_every_benchmark_is_timed() -> None:
    assert verdict.status(report()) == "pass"
    assert verdict.exit_code(report()) == Exit.OK
    assert verdict.first_failure(report()) is None


@pytest.mark.parametrize("outcome", FAILURES, ids=lambda outcome: outcome.type)
def test_a_failure_decides_and_what_was_not_run_after_it_does_not_matter(outcome: Failure) -> None:
    for found in (failed_test(outcome), failed_benchmark(outcome)):
        assert verdict.status(found) == "fail"
        assert found.figures is None
        assert (failed := verdict.first_failure(found)) is not None
        assert failed.outcome == outcome


@pytest.mark.parametrize(
    ("outcome", "code"), [(WRONG_OUTCOME, 112), (RAISED, 112), (CRASHED, 112), (HELD, 112), (TIMED_OUT, 114)]
)
def test_each_failure_has_its_exit_code(outcome: Outcome, code: int) -> None:
    assert verdict.exit_code(failed_test(outcome)) == code


def test_every_kind_of_failure_has_an_exit_code() -> None:
    """And every outcome is in the table of what is said of them."""
    assert verdict.OUTCOMES.keys() == {get_args(get_type_hints(kind)["type"])[0] for kind in get_args(Outcome)}
    assert {name for name, said in verdict.OUTCOMES.items() if said.exit} == {one.type for one in FAILURES}
    assert verdict.OUTCOMES["crashed"].exit == Exit.INVALID


def test_of_several_failures_the_first_decides() -> None:
    assert verdict.exit_code(report(results([WRONG_OUTCOME, TIMED_OUT, Passed()], []))) == Exit.INVALID
    assert verdict.exit_code(report(results([TIMED_OUT, WRONG_OUTCOME, Passed()], []))) == Exit.TIMED_OUT


def test_a_run_that_ended_early_without_a_failure_is_an_error_and_never_a_pass() -> None:
    for found in (
        report(()),
        report(results([Passed(), NotRun()], [])),
        report(results([Passed()] * 3, [TIMES[0], NotRun()])),
        report(results([Passed()] * 3, [TIMES[0], Passed()])),  # checked, but the mode asks for times
    ):
        assert verdict.status(found) == "error"
        assert verdict.exit_code(found) == Exit.ERROR
        assert found.figures is None


def test_a_run_of_the_tests_alone_passes_without_figures() -> None:
    tests = report(results([Passed()] * 3, []), mode="test")
    assert verdict.status(tests) == "pass"
    assert tests.figures is None


def test_the_figures_are_those_of_all_timed_cases() -> None:
    figures = report().figures
    assert figures is not None
    assert figures.ratio is not None
    assert figures.ratio.value == pytest.approx(geomean([ratio(one.ranked) for one in TIMES]))
    assert figures.fraction is not None
    assert 0 < figures.fraction.value < 1
    unbounded = tuple(records.CaseResult(case=one.case, outcome=one.outcome) for one in report().results)
    assert (without := report(unbounded).figures) is not None
    assert without.fraction is None
    assert without.score == figures.score
