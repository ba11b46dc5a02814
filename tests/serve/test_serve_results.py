"""What an evaluation said in GPU MODE's shapes: nothing that failed passes, nothing is lost, nothing is too long."""

import base64
import io
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import (
    CRASHED,
    FAILURES,
    HELD,
    HOSTILE,
    RAISED,
    TIMED_OUT,
    TIMES,
    WRONG_OUTCOME,
    failed_benchmark,
    failed_test,
    report,
    results,
)

from harness.board import report_json
from harness.board.entries import Board
from harness.core.errors import Exit
from harness.core.events import CaseBegan, PhaseBegan, RunningStage
from harness.core.records import (
    Case,
    Measured,
    Metric,
    Mode,
    NotRun,
    OpTime,
    Outcome,
    Passed,
    Profile,
    RankProfile,
    Series,
)
from harness.core.summary import Summary
from harness.core.words import SHOWN_CHARS
from harness.gpumode import result_lines
from harness.report import export
from harness.serve.results import ended
from harness.serve.store import AttemptEnded, Row


def row(mode: Mode = "leaderboard") -> Row:
    return Row(
        id=7, user="ada", user_id=1, problem="gemm_rs", leaderboard="amd-gemm-rs", gpu="CPU", mode=mode,
        file_name="a.py", submitted_at="2026-05-01T12:00:00+00:00", state="running", attempt=1,
        started_at="2026-05-01T12:00:00+00:00", ended_at=None, passed=None, score_s=None, run_id=None, error=None,
        runs=[],
    )  # fmt: skip


def of(found: object, mode: Mode = "leaderboard") -> AttemptEnded:
    return ended(row(mode), report_json.to_json(found), "the report\n```\n", "the command")  # type: ignore[arg-type]


def full(made: AttemptEnded) -> dict[str, dict[str, Any]]:
    assert made.result is not None
    (one,) = made.result["results"]
    assert one["success"]
    return dict(one["runs"])


def test_a_passed_leaderboard_run_has_tests_and_a_score_public_and_secret() -> None:
    made = of(report())
    assert (made.state, made.passed, made.error) == ("succeeded", True, None)
    assert made.score_s == pytest.approx(report_json.to_json(report())["figures"]["score"]["value"])
    runs = [(run["mode"], run["secret"], run["passed"], run["score"]) for run in made.runs]
    assert runs == [
        ("test", False, True, None),
        ("benchmark", False, True, None),
        ("leaderboard", False, True, made.score_s),
        ("leaderboard", True, True, made.score_s),
    ]
    timed = full(made)["leaderboard"]["run"]["result"]
    own = TIMES[1].ranked.own
    mean = sum(own) / len(own)
    assert float(timed["benchmark.1.mean"]) == pytest.approx(1000 * mean)
    assert made.result is not None
    (text,) = made.result["reports"]
    assert text.startswith("**CPU on 2 cores of Example CPU @ 2.00GHz**\n> passed\n\n```\nthe report")
    assert text.count("```") == 2, "what is printed cannot end the block that it is in"


@pytest.mark.parametrize("outcome", FAILURES, ids=lambda one: one.type)
def test_a_failed_test_ends_there_and_is_told(outcome: Outcome) -> None:
    made = of(failed_test(outcome))
    assert (made.state, made.passed, made.score_s) == ("failed", False, None)
    assert [(run["mode"], run["passed"]) for run in made.runs] == [("test", False)]
    run = full(made)["test"]["run"]
    assert run["exit_code"] == (Exit.TIMED_OUT if outcome is TIMED_OUT else Exit.INVALID)
    assert run["success"] is (outcome is not TIMED_OUT)
    result = run["result"]
    assert [result[f"test.{index}.status"] for index in range(3)] == ["pass", "fail", "fail"]
    assert result["check"] == "fail"
    assert all("\n" not in value for value in result.values())
    assert made.error is not None
    assert made.error.startswith("test 2 of 3 failed: ")


@pytest.mark.parametrize("outcome", FAILURES, ids=lambda one: one.type)
def test_a_failed_benchmark_has_no_score(outcome: Outcome) -> None:
    made = of(failed_benchmark(outcome))
    assert (made.state, made.passed, made.score_s) == ("failed", False, None)
    passed = [(run["mode"], run["secret"], run["passed"], run["score"]) for run in made.runs]
    assert passed == [("test", False, True, None), ("benchmark", False, False, None)], "nothing is ranked after that"
    assert made.error is not None
    assert made.error.startswith("benchmark 2 of 3 failed: ")


def test_what_a_rank_had_to_say_is_passed_on_clean_and_cut() -> None:
    told = of(failed_test(RAISED)).runs[0]["diagnostics"]["stderr"]
    assert "IndexError: index 7 is out of bounds" in told
    assert 'File "submission.py", line 12' in told
    crashed = of(failed_test(CRASHED)).runs[0]["diagnostics"]["stderr"]
    assert "about to touch what is not mine" in crashed
    assert not any(char in crashed for char in "\x1b\x00\x07\u202e")
    stacks = of(failed_test(TIMED_OUT)).runs[0]["diagnostics"]["stderr"]
    assert stacks.count("most recent call first") == 8
    logs = {"candidate rank 0": HOSTILE + "x" * 100_000, "trusted rank 0": "not the submission's"}
    printed = of(replace(failed_test(HELD), logs=logs)).runs[0]["diagnostics"]["stdout"]
    assert len(printed) <= SHOWN_CHARS + 50
    assert "characters omitted" in printed
    assert "not the submission's" not in printed


@pytest.mark.parametrize(
    ("code", "state", "runs"),
    [(Exit.INVALID, "failed", 1), (Exit.USAGE, "failed", 0), (Exit.BAD_FILE, "failed", 0), (Exit.ERROR, "failed", 0)]
)  # fmt: skip
def test_an_evaluation_without_a_report_is_the_submissions_fault_or_not(code: Exit, state: str, runs: int) -> None:
    made = ended(row("test"), report_json.error_json("a.py:1: invalid syntax", code), "", "the command")
    assert (made.state, made.passed, made.error) == (state, False, "a.py:1: invalid syntax")
    assert [(run["mode"], run["passed"], run["diagnostics"]["stderr"]) for run in made.runs] == [
        ("test", False, "a.py:1: invalid syntax")
    ] * runs
    assert all(run["start_time"].startswith("2026-05-01T12:00:00") for run in made.runs), "when it was taken up"


def shown_by_kernelbot(run: dict[str, Any], profile: dict[str, Any] | None) -> str:
    """What KernelBot's report makes of a profile's run that exited with 0 or 112: it decodes the report of every case
    that the count names, and a file is called after the spec. As read from its report.py, in 2026-11."""
    assert run["success"]
    assert profile is not None
    assert isinstance(profile["trace"], str)
    assert run["result"]["benchmark.0.spec"].replace(": ", "=")
    reports = [run["result"][f"benchmark.{index}.report"] for index in range(int(run["result"]["benchmark-count"]))]
    return "\n".join(base64.b64decode(text.encode(), b"+*").decode() for text in reports)


@pytest.mark.parametrize("outcome", [WRONG_OUTCOME, RAISED, CRASHED, HELD, NotRun()], ids=lambda one: one.type)
def test_a_profile_that_failed_has_a_report_that_says_so(outcome: Outcome) -> None:
    cases = [replace(one, case=replace(one.case, kind="profile")) for one in results([], [WRONG_OUTCOME, outcome])]
    made = of(report(tuple(cases), mode="profile"), "profile")
    assert made.state == "failed"
    runs = full(made)
    for one in runs.values():
        assert shown_by_kernelbot(one["run"], one["profile"])
    assert "40 times the budget" in shown_by_kernelbot(runs["profile.0"]["run"], runs["profile.0"]["profile"])


def test_a_profile_of_what_is_no_python_has_a_report_that_says_so() -> None:
    made = ended(row("profile"), report_json.error_json("a.py:1: invalid syntax", Exit.INVALID), "", "the command")
    (one,) = full(made).values()
    assert shown_by_kernelbot(one["run"], one["profile"]) == "a.py:1: invalid syntax"
    assert [run["mode"] for run in made.runs] == ["profile"]


def test_a_profile_has_a_run_a_shape_with_its_table_and_its_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace-0.json"
    trace.write_text('{"traceEvents": []}')
    op = OpTime(name="aten::mm", calls=3, self_us=120.0, share=0.6)
    ranks = tuple(RankProfile(rank=rank, call_us=200.0 + rank, of="host", top=(op,)) for rank in range(2))
    profile = Profile(ranks=ranks, trace_json="", trace=str(trace))
    cases = [
        replace(one, case=replace(one.case, kind="profile"), profile=profile)
        for one in results([], [Passed(), Passed()])
    ]
    made = of(report(tuple(cases), mode="profile"), "profile")
    found = full(made)
    assert list(found) == ["profile.0", "profile.1"]
    table = base64.b64decode(found["profile.0"]["run"]["result"]["benchmark.0.report"], b"+*").decode()
    assert table.splitlines()[:2] == ["rank 0: 200.0 us under the profiler", "rank 1: 201.0 us under the profiler"]
    assert "aten::mm" in table
    archive = zipfile.ZipFile(io.BytesIO(base64.b64decode(found["profile.0"]["profile"]["trace"])))
    assert archive.read("trace-0.json") == b'{"traceEvents": []}'
    assert [run["mode"] for run in made.runs] == ["profile", "profile"]


THEIRS = Metric(name="theirs", unit="us")


@pytest.mark.parametrize("mode", ["benchmark", "leaderboard"])
def test_what_a_folders_own_evaluator_timed_has_its_figures(mode: Mode) -> None:
    """It tells no samples, only what they came to."""
    summary = Summary(runs=3, mean=2.5, std=0.003, err=0.0017, best=2.4, worst=2.6)
    timed = Measured(series=(Series(metric=THEIRS, own=(), summary=summary),))
    made = of(report(results([], [timed]), mode=mode, suite="theirs"), mode)
    found = full(made)[mode]["run"]["result"]
    told = {name: float(found[f"benchmark.0.{name}"]) for name in ("runs", "mean", "std", "err", "best", "worst")}
    assert told == pytest.approx({"runs": 3, "mean": 2500, "std": 3, "err": 1.7, "best": 2400, "worst": 2600})
    assert found["check"] == "pass"


def test_what_a_folders_own_evaluator_profiled_has_its_text() -> None:
    (case,) = results([], [Passed()])
    profile = Profile(ranks=(), trace_json="", text="name  calls\nkernel  1\n")
    profiled = replace(case, case=replace(case.case, kind="profile"), profile=profile)
    made = of(report((profiled,), mode="profile", suite="theirs"), "profile")
    assert (made.state, made.passed) == ("succeeded", True)
    one = full(made)["profile.0"]
    assert shown_by_kernelbot(one["run"], one["profile"]) == profile.text


@pytest.mark.parametrize("outcome", [*FAILURES, NotRun(), Passed()], ids=lambda one: one.type)
def test_a_cases_lines_are_the_same_wherever_they_are_written(outcome: Outcome, tmp_path: Path) -> None:
    """By the server, by the evaluator in KernelBot's place, and in an export. Only specs and counts are each its
    own's."""
    cases = results([], [TIMES[0], outcome, WRONG_OUTCOME])
    found = report(cases, mode="benchmark")
    served = full(of(found, "benchmark"))["benchmark"]["run"]["result"]
    evaluators = result_lines.values_of(result_lines.report_pairs(["a", "b", "c"], cases, False))
    rows = [row["run_result"] for row in export.rows(Board(), [found], tmp_path)]
    exported = {key: value for row in rows for key, value in row.items()}
    assert without_specs(served) == without_specs(evaluators) == without_specs(exported)
    assert served["benchmark.2.error"].startswith("rank 2: tile")


def without_specs(lines: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in lines.items() if not key.endswith(".spec")}


def test_the_stage_is_the_phase_and_case_that_began_last() -> None:
    stage = RunningStage()
    assert stage.text == "start"
    stage = stage.after(PhaseBegan(at_s=0.1, name="test")).after(
        CaseBegan(at_s=0.2, label="m 64  bias true\n\x1b[1m", index=0, count=3)
    )
    assert stage.text == "test 1/3 m 64 bias true"
    assert stage.after(PhaseBegan(at_s=3.0, name="benchmark")).text == "benchmark"


def test_a_case_of_one_rank_does_not_say_how_many() -> None:
    one = Case(kind="benchmark", params={"n": 3}, seed=7, world_size=1)
    assert result_lines.spec_of(result_lines.case_values(one)) == "n: 3; seed: 7"
    several = replace(one, world_size=8)
    assert result_lines.spec_of(result_lines.case_values(several)) == "world_size: 8; n: 3; seed: 7"
