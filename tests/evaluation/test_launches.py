"""Evaluations in several launches: fresh processes that measure again, and what their samples become."""

import contextlib
import gc
import json
import os
import signal
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import submission_of
from factories import timed

from harness.board import leaderboard, report_json
from harness.core.checkout import ROOT, Checkout
from harness.core.errors import HarnessError
from harness.core.machine_records import BlockState
from harness.core.records import EvalReport, Measured, Raised
from harness.evaluation.launches import joined
from harness.evaluation.recorded import evaluated as evaluated_and_recorded
from harness.judging.figures import figured, usual_of
from harness.kinds.kind import Order, Progress
from harness.kinds.op.kind import OpSession
from harness.kinds.registry import kind_of, read_submission
from harness.kinds.settings import Asked, setting
from harness.ranks.launch import Ranks

CHECKOUT = Checkout(ROOT)
Evaluate = Callable[..., EvalReport]
HONEST = "from reference import ref_kernel\n\ndef custom_kernel(data):\n    return ref_kernel(data)\n"
SEEN = """
import os
from reference import ref_kernel

calls = []

def custom_kernel(data):
    calls.append(data)
    if len(calls) == 1:
        print("launch", os.getpid(), os.getcwd(), flush=True)
    return ref_kernel(data)
"""
LATER = """
import os
from reference import ref_kernel

def custom_kernel(data):
    if os.getcwd().split("/")[-3].isdigit():
        raise RuntimeError("not the first launch")
    return ref_kernel(data)
"""


def outcomes(report: EvalReport) -> list[Any]:
    return [one.outcome for one in report.results if one.case.kind == "benchmark"]


def test_every_launch_measures_every_benchmark_in_fresh_processes(
    evaluated: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[set[int], list[int], list[str]]] = []
    folders: list[Path] = []
    real = Ranks._start

    def start(self: Ranks) -> None:
        real(self)
        zygotes = [process.pid for process in self.zygotes.processes]
        seen.append((set(self.by_pid), zygotes, [rank.role for rank in self.by_pid.values()]))
        folders.append(self.launch.workdir("candidate", 0))
        assert [one for one in folders if one.exists()] == folders[-1:], "what filled the disk is gone"

    monkeypatch.setattr(Ranks, "_start", start)
    report = evaluated(SEEN, mode="leaderboard", launches=3)
    assert len(seen) == 3
    assert not seen[0][0] & seen[1][0] | seen[1][0] & seen[2][0], "ranks are new"
    assert seen[0][1] == seen[1][1] == seen[2][1], "zygotes are not"
    for outcome in outcomes(report):
        assert isinstance(outcome, Measured)
        assert len(outcome.ranked.launches) == 3
        assert sum(outcome.ranked.launches) == len(outcome.ranked.own) == len(outcome.ranked.baseline)
    assert report.figures is not None
    assert report.figures.ratio is not None
    assert report.figures.ratio.launches == 3
    assert report.logs["candidate rank 0"].count("launch") == 3


def test_the_reference_is_also_timed_beside_itself(evaluated: Evaluate, monkeypatch: pytest.MonkeyPatch) -> None:
    stood_in: list[bool] = []
    real = OpSession.again

    def again(self: OpSession, is_control: bool = False) -> Any:
        stood_in.append(is_control)
        return real(self, is_control)

    monkeypatch.setattr(OpSession, "again", again)
    report = evaluated(HONEST, mode="leaderboard", controls=True, benchmarks=1)
    assert stood_in[0]
    assert all(isinstance(one, Measured) for one in outcomes(report)), report.results


def test_what_fails_in_a_later_launch_fails(evaluated: Evaluate) -> None:
    report = evaluated(LATER, mode="leaderboard", launches=2, benchmarks=1)
    first = outcomes(report)[0]
    assert isinstance(first, Raised)
    assert "not the first launch" in first.message
    assert report.figures is None


def test_one_launch_is_what_modes_that_rank_nothing_have(evaluated: Evaluate) -> None:
    for outcome in outcomes(evaluated(HONEST, mode="benchmark", launches=3, benchmarks=1)):
        assert outcome.ranked.launches == ()


def test_zygotes_that_do_not_answer_between_two_launches_end_the_evaluation(
    evaluated: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = OpSession.again
    monkeypatch.setattr("harness.ranks.zygotes.GOODBYE_S", 0.5)

    def again(self: OpSession, is_control: bool = False) -> Any:
        os.kill(self.ranks.zygotes.processes[0].pid, signal.SIGSTOP)
        return real(self, is_control)

    monkeypatch.setattr(OpSession, "again", again)
    with pytest.raises(HarnessError, match="did not answer"):
        evaluated(HONEST, mode="leaderboard", launches=2, benchmarks=1)


def test_the_samples_of_launches_lie_one_behind_the_other() -> None:
    launches = [
        replace(timed(samples=count, block=4), blocks=(BlockState(own=(), baseline=(), pairs=count),))
        for count in (8, 12)
    ]
    assert [block.pairs for block in joined(launches).blocks] == [8, 12]
    found = joined(launches).ranked
    assert found.launches == (8, 12)
    assert found.own == launches[0].ranked.own + launches[1].ranked.own
    assert found.baseline == launches[0].ranked.baseline + launches[1].ranked.baseline


@pytest.mark.parametrize(("problem", "launches"), [("a2a", 4), ("llama", 1), ("llama_pretrain", 1)])
def test_what_is_no_time_of_a_call_is_measured_in_one_launch(problem: str, launches: int) -> None:
    """And without the reference beside itself."""
    asked = Asked(problem=problem, suite="cpu", device="cpu", ranks=2 if problem == "a2a" else None, launches=4)
    made = setting(asked, CHECKOUT)
    submission = read_submission(made.problem, None, CHECKOUT)
    plan = kind_of(made).plan(Order(setting=made, submission=submission, mode="leaderboard", author="tester"))
    assert (plan.launches, plan.has_controls) == (launches, problem == "a2a")


def test_what_launches_differ_by_is_known_to_the_next_evaluation_of_the_board(tmp_path: Path) -> None:
    made = setting(Asked(problem="rms_norm", suite="quick", device="cpu", launches=2, seconds=0.1), CHECKOUT)
    suite = replace(made.suite, tests=made.suite.tests[:1], benchmarks=made.suite.benchmarks[:1], drawn=0)
    order = Order(
        setting=replace(made, suite=suite), submission=submission_of(HONEST), mode="leaderboard", author="ada"
    )
    first, second = (
        evaluated_and_recorded(order, Checkout(tmp_path), record=True, progress=Progress()).report for _ in range(2)
    )
    [entry] = leaderboard.load(tmp_path / "leaderboard.yaml").entries
    [earlier] = entry.history
    assert (first.usual_sd, earlier.launch_sd is None, entry.launch_sd is None) == (None, False, False)
    assert second.usual_sd == statistics.median([earlier.launch_sd or 0.0, usual_of("cpu").sd])
    told = json.loads((tmp_path / "runs" / second.run_id / "report.json").read_text())
    assert figured(report_json.from_json(told)).figures == second.figures, (
        "who reads the report finds the same interval"
    )


def opened() -> list[str]:
    """What this process has open, without what other tests' threads may open and close."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return sorted(one for one in found if "memfd" in one)


def test_no_file_stays_open_behind_launches(evaluated: Evaluate) -> None:
    """Inputs and outputs are files."""
    gc.collect()  # what other tests left open
    before = opened()
    evaluated(HONEST, mode="leaderboard", launches=2, benchmarks=1)
    assert opened() == before
