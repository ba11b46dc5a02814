"""An evaluation played from a report: the same loop, the same report, and nothing that runs."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from factories import FAILURES, GEMM_BENCHMARKS, TIMES, failed_benchmark, failed_test, report, results
from recorded import gpu, run
from replaying import replay_of

from harness.core.checkout import Checkout
from harness.core.errors import HarnessError
from harness.core.records import EvalReport, NotRun, OpTime, Passed, Profile, RankProfile
from harness.evaluation.evaluate import evaluate
from harness.kinds.kind import Order, Progress, Setting
from harness.kinds.registry import KINDS
from harness.problems.shape_file import find

GEMM_RS = find("gemm_rs", Checkout.here())


@pytest.fixture(autouse=True)
def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is started."""

    def refused(*arguments: Any, **named: Any) -> None:
        raise AssertionError(f"a process was started: {arguments}")

    monkeypatch.setattr(subprocess, "Popen", refused)
    monkeypatch.setattr("os.fork", refused)


def profiled() -> EvalReport:
    top = (OpTime(name="aten::mm", calls=2, self_us=12.5, share=0.5),)
    profile = Profile(ranks=(RankProfile(rank=0, call_us=25.0, of="host", top=top),), trace_json="{}")
    (found,) = results([], [Passed()])
    return report((replace(found, case=replace(found.case, kind="profile"), profile=profile),), mode="profile")


REPORTS: dict[str, Callable[[], EvalReport]] = {
    "passed": report,
    "three clocks": lambda: run(3),
    "tests only": lambda: report(results([Passed()] * 3, []), mode="test"),
    "benchmarks only": lambda: report(results([], map(gpu, TIMES)), mode="benchmark"),
    "by the last shape": lambda: report(ranking_by="last"),
    "profiled": profiled,
}


def known(found: EvalReport) -> EvalReport:
    """What every evaluation has of its own is left out."""
    return replace(found, run_id="", started_at="")


@pytest.mark.parametrize("name", REPORTS)
def test_a_replay_finds_what_the_report_says(name: str) -> None:
    """Every case, outcome, bound and verdict, and the figures that are computed from them once more."""
    made = REPORTS[name]()
    found = evaluate(replay_of(made, GEMM_RS), Progress())
    assert found.results == made.results
    assert found.figures == made.figures
    assert (found.figures is None) == (name in ("tests only", "profiled"))
    assert known(replace(found, warnings=())) == known(made)
    assert found.run_id != made.run_id


@pytest.mark.parametrize("outcome", FAILURES, ids=lambda outcome: outcome.type)
@pytest.mark.parametrize("failed", [failed_test, failed_benchmark], ids=lambda failed: failed.__name__)
def test_a_replay_of_a_failure_ends_where_the_evaluation_did(failed: Callable[..., EvalReport], outcome: Any) -> None:
    made = failed(outcome)
    found = evaluate(replay_of(made, GEMM_RS), Progress())
    assert found.results == made.results
    assert found.figures is None


def test_a_report_that_leaves_a_case_open_is_said_to() -> None:
    made = report(results([Passed(), NotRun()], []), mode="test")
    with pytest.raises(HarnessError, match="does not say what became of test"):
        evaluate(replay_of(made, GEMM_RS), Progress())


def test_the_replay_tells_its_progress_as_any_session_does() -> None:
    told: list[object] = []

    class Telling(Progress):
        def phase(self, name: str) -> None:
            told.append(name)

        def case(self, label: str, index: int, count: int) -> None:
            told.append((index, count))

    evaluate(replay_of(report(), GEMM_RS), Telling())
    assert told == ["test", (0, 3), (1, 3), (2, 3), "benchmark", (0, 3), (1, 3), (2, 3)]


def test_no_folder_is_a_replay_and_none_can_be_ordered() -> None:
    kind = KINDS["replay"]
    assert not kind.claims(Checkout.here().reference / "a2a")
    setting = Setting(problem=GEMM_RS, suite=GEMM_RS.suite("cpu"), device="cpu", world_size=8)
    with pytest.raises(HarnessError, match="replay_of"):
        kind.plan(Order(setting=setting, submission=report().submission, mode="test", author="ada"))


def test_the_cases_of_a_replay_are_the_reports_own_and_not_the_problems() -> None:
    plan = replay_of(report(), GEMM_RS)
    assert [case.params for case in plan.suite.benchmarks] == list(GEMM_BENCHMARKS)
    assert plan.suite.name == "cpu"
