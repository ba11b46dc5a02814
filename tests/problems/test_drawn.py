"""Shapes that a run draws near published ones: which they are, how a plan has them, and that they do not rank."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from conftest import submission_of
from factories import case, measured, ordered, report
from hypothesis import given
from hypothesis import strategies as st

from harness.board import report_json
from harness.board.judgements import entry_cases, problem_version
from harness.core.checkout import Checkout
from harness.core.errors import BadFileError
from harness.core.records import Case, CaseResult, EvalReport, Outcome, Wrong
from harness.judging import verdict
from harness.judging.figures import figured
from harness.kinds.op.plan import make_plan
from harness.problems import shape_file
from harness.problems.drawn import LEAST, choices, drawn_cases
from harness.problems.problem import Problem
from harness.report.summary import drawn_text

OPS = ("a2a", "ag_gemm", "attention", "cross_entropy", "gemm", "gemm_rs", "moe", "rms_norm", "swiglu")
SUITES = pytest.mark.parametrize("suite", ["official", "cpu"])
PROBLEMS = pytest.mark.parametrize("name", OPS)


@cache
def problem(name: str) -> Problem:
    return shape_file.find(name, Checkout.here())


# ---- what is drawn -----------------------------------------------------------------------------------------------


@given(st.integers(1, 1 << 20), st.integers(1, 16))
def test_a_size_is_near_the_published_one_and_never_larger(size: int, ranks: int) -> None:
    for one in choices(size * ranks, ranks):
        assert LEAST * size * ranks <= one <= size * ranks
        assert one % ranks == 0


@given(st.integers(2, 1 << 13))
def test_a_size_of_whole_tiles_stays_one(tiles: int) -> None:
    assert all(one % 64 == 0 for one in choices(64 * tiles)) or tiles < 8
    assert len(choices(64 * tiles)) > 1 or tiles < 4


@PROBLEMS
@SUITES
@pytest.mark.parametrize("secret", ["a", "b", "c"])
def test_every_drawn_case_can_be_and_is_published_nowhere(name: str, suite: str, secret: str) -> None:
    found = problem(name).suite(suite)
    assert found.drawn == 2
    cases = drawn_cases(problem(name), found, secret)
    assert cases == drawn_cases(problem(name), found, secret)
    assert len(cases) == 2
    for one in cases:
        base = found.benchmarks[one.near or 0]
        assert (one.kind, one.world_size, list(one.params)) == ("drawn", base.world_size, list(base.params))
        assert one.params not in [each.params for each in found.benchmarks]
        for key, value in one.params.items():
            published = base.params[key]
            assert value == published or LEAST * published <= value < published, key
        assert problem(name).cost(one).flops <= problem(name).cost(base).flops


@PROBLEMS
def test_another_secret_draws_other_shapes(name: str) -> None:
    suite = problem(name).suite("official")
    drawn = [[case.params for case in drawn_cases(problem(name), suite, str(secret))] for secret in range(8)]
    assert len({str(one) for one in drawn}) > 4


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_shapes_are_drawn_for_the_ranks_that_run(ranks: int) -> None:
    for name in ("a2a", "moe", "ag_gemm", "gemm_rs"):
        suite = problem(name).with_world_size(problem(name).suite("cpu"), ranks)
        assert [case.world_size for case in drawn_cases(problem(name), suite, "a")] == [ranks, ranks]


def test_a_suite_whose_shapes_cannot_be_drawn_is_refused(tmp_path: Any) -> None:
    (tmp_path / "reference").symlink_to(Checkout.here().root / "reference")
    shapes = tmp_path / "shapes"
    shapes.mkdir()
    text = (Checkout.here().root / "shapes" / "iopddl.yaml").read_text()
    (shapes / "iopddl.yaml").write_text("drawn: 1\n" + text)
    with pytest.raises(BadFileError, match=r"\$\.drawn: needs near\(\) in reference/iopddl/params\.py"):
        shape_file.read_problem("iopddl", tmp_path)
    (shapes / "iopddl.yaml").write_text("drawn: -1\n" + text)
    with pytest.raises(BadFileError, match=r"\$\.drawn: expected 0 or more shapes"):
        shape_file.read_problem("iopddl", tmp_path)


# ---- in a plan ---------------------------------------------------------------------------------------------------


def planned(mode: Any, opponent: bool = False, suite: str = "cpu") -> list[Case]:
    source = submission_of("from reference import ref_kernel as custom_kernel")
    found = problem("gemm")
    other = source if opponent else None
    plan = make_plan(ordered(found, found.suite(suite), source, mode, "cpu", 1, opponent=other, launches=4))
    return [case for phase in plan.phases for case in phase.cases]


@pytest.mark.parametrize("mode", ["benchmark", "leaderboard"])
def test_a_plan_that_times_has_drawn_cases_behind_its_benchmarks(mode: str) -> None:
    assert [case.kind for case in planned(mode)][-6:] == ["benchmark"] * 4 + ["drawn"] * 2
    assert planned(mode) != planned(mode)


def test_other_plans_have_none() -> None:
    plans = [planned("test"), planned("profile"), planned("leaderboard", opponent=True)]
    plans.append(planned("benchmark", suite="quick"))
    assert "drawn" not in {case.kind for plan in plans for case in plan}


def test_the_count_is_part_of_the_problem_version() -> None:
    found = problem("gemm")
    fewer = replace(found.suite("cpu"), drawn=1)
    assert problem_version(found, found.suite("cpu"), "cpu") != problem_version(found, fewer, "cpu")


# ---- in a report -------------------------------------------------------------------------------------------------


def with_drawn(outcome: Outcome) -> EvalReport:
    """A report of a benchmark that reads 2x, another that reads 1x, and a drawn case near the first."""
    found = [
        CaseResult(case=case({"m": 8}), outcome=measured([100.0] * 8, [200.0] * 8)),
        CaseResult(case=case({"m": 9}), outcome=measured([100.0] * 8, [100.0] * 8)),
        CaseResult(case=replace(case({"m": 7}), kind="drawn", near=0), outcome=outcome),
    ]
    return figured(report(tuple(found)))


def test_a_drawn_shape_is_shown_beside_the_one_near_it_and_does_not_rank() -> None:
    found = with_drawn(measured([400.0] * 8, [200.0] * 8))
    assert found.figures is not None
    assert found.figures.ratio is not None
    assert found.figures.ratio.value == pytest.approx(2**0.5)  # of 2 and 1
    assert (found.figures.near_drawn, found.figures.drawn) == pytest.approx((2.0, 0.5))
    assert drawn_text(found) == "published shapes 2.00x, drawn shapes 0.50x: 0.50x at m 7"
    assert [one.params for one in entry_cases(found)] == [{"m": 8}, {"m": 9}]
    assert report_json.from_json(report_json.to_json(found)).results[-1].case == found.results[-1].case


def test_who_is_wrong_on_a_drawn_shape_is_wrong() -> None:
    found = with_drawn(Wrong(message="zeros"))
    assert (verdict.status(found), found.figures) == ("fail", None)
