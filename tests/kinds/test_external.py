"""A problem folder's own eval.py, run as KernelBot's runner runs it: what it is given, what is made of its word."""

import base64
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from conftest import submission_of
from hypothesis import given
from hypothesis import strategies as st
from places import FOLDERS, SINGLE
from rich.console import Console
from waiting import in_time

from harness.board import leaderboard, report_json, reports
from harness.board.entries import Board
from harness.core.checkout import Checkout
from harness.core.errors import BadFileError, Exit, UsageError
from harness.core.records import (
    Crashed,
    EvalReport,
    Failure,
    Measured,
    Metric,
    Mode,
    NotRun,
    Passed,
    Submission,
    TimedOut,
    Warning,
    Wrong,
)
from harness.core.summary import Summary
from harness.core.words import SHOWN_CHARS
from harness.evaluation import recorded
from harness.evaluation.evaluate import evaluate
from harness.gpumode import result_lines
from harness.gpumode.folder import read
from harness.judging import verdict
from harness.kinds.external import evaluator_run, session
from harness.kinds.kind import Order, Progress, Setting
from harness.kinds.registry import kind_of
from harness.machine import host
from harness.report import board_view, export
from harness.report.evaluation import document_of
from harness.report.render import terminal

FACTS = FOLDERS / "facts"
ROWSUM, SCALE = FOLDERS / "multi" / "rowsum", SINGLE / "scale"
# An evaluator's beginning: `said(key, value)` writes a line, `mode` and `count` are what it was called with.
BEGIN = """\
import os, sys, time
lines = os.fdopen(int(os.environ["POPCORN_FD"]), "w")
mode, count = sys.argv[1], len(open(sys.argv[2]).read().splitlines())
def said(key, value):
    print(f"{key}: {value}", file=lines, flush=True)
def passed():
    for index in range(count):
        if mode == "test":
            said(f"test.{index}.status", "pass")
        else:
            said(f"benchmark.{index}.mean", 1000.0 * (index + 1))
    said("check", "pass")
"""
# What is wrong is the submission's: with the reference in its place the folder's evaluator passes.
PASSES_CONTROL = f"if open('submission.py').read() == {session.REFERENCE.source!r}: sys.exit(passed())\n"
Evaluate = Callable[..., EvalReport]


@pytest.fixture
def told(tmp_path: Path, nothing_left: None) -> Evaluate:  # in this order: pytest's folder is not what is left
    """told(eval_py, mode=...) evaluates a copy of rowsum, which has two tests and one benchmark, with that eval.py."""

    def run(
        text: str = "",
        mode: Mode = "leaderboard",
        folder: Path = ROWSUM,
        seconds: float = 30.0,
        seed: int | None = None,
        cuda_is_cpu: bool = False,
        submission: Submission | None = None,
        control: str = PASSES_CONTROL,
        missing: tuple[str, ...] = (),
    ) -> EvalReport:
        if text:
            copy = tmp_path / f"{len(list(tmp_path.iterdir()))}" / "rowsum"
            shutil.copytree(ROWSUM, copy)
            (copy.parent.parent / "single").unlink(missing_ok=True)
            (copy.parent.parent / "single").symlink_to(SINGLE)
            (copy / "eval.py").write_text(BEGIN + control + text)
            folder = copy
        problem = dataclasses.replace(read(folder, Checkout.here()), root=tmp_path, missing=missing)
        suite = dataclasses.replace(
            problem.suite("official"), test_timeout_s=seconds, benchmark_timeout_s=seconds, ranked_timeout_s=seconds
        )
        setting = Setting(
            problem=problem,
            suite=suite,
            device="cpu",
            world_size=suite.benchmarks[0].world_size,
            evaluator="theirs",
            evaluator_seed=seed,
        )
        submission = submission or submission_of(problem.default_submission().read_text())
        order = Order(setting=setting, submission=submission, mode=mode, author="tester")
        plan = kind_of(setting).plan(order)
        assert isinstance(plan, session.ExternalPlan)
        return evaluate(dataclasses.replace(plan, cuda_is_cpu=cuda_is_cpu), Progress())

    return run


def outcomes(report: EvalReport) -> list[type]:
    return [type(result.outcome) for result in report.results]


def shown(report: EvalReport) -> str:
    console = Console(file=StringIO(), width=100)
    terminal.show(document_of(report), console)
    return console.file.getvalue()


# ---- what passes -----------------------------------------------------------------------------------------------------


def test_a_ranked_evaluation_is_three_runs(told: Evaluate) -> None:
    """Test, benchmark, leaderboard; a secret from task.yml, a number of GPUs because the problem is of several."""
    report = told()
    assert verdict.status(report) == "pass"
    assert list(report.phases_s) == ["test", "benchmark", "leaderboard"]
    assert outcomes(report) == [Passed, Passed, Measured]
    found = report.results[2].outcome
    assert isinstance(found, Measured)
    assert found.ranked.metric == Metric(name="theirs", unit="us")
    assert found.ranked.summary == Summary(runs=3, mean=2.5, std=0.003, err=0.0017, best=2.4, worst=2.6)
    assert (found.ranked.own, found.ranked.baseline) == ((), ())
    gpus = host.gpus().count or 2
    for mode in report.phases_s:
        assert report.logs[f"{mode} stdout"] == f"{mode} POPCORN_SEED 7\n{mode} POPCORN_GPUS {gpus}\n"
    assert report.figures is not None
    assert (report.figures.ratio, report.figures.fraction) == (None, None)  # no reference was timed
    score = report.figures.score
    assert (score.value, score.unit, score.better) == (pytest.approx(2.5e-6), "s", "less")


def test_another_secret_can_be_asked_for(told: Evaluate) -> None:
    assert "POPCORN_SEED 99\n" in told(mode="test", seed=99).logs["test stdout"]


def test_an_evaluator_with_processes_of_its_own_runs_with_the_cpu_in_place_of_cuda(told: Evaluate) -> None:
    """As KernelBot's do: in a spawned process, which waits for CUDA. With a secret, which it makes its seeds of."""
    source = read(SCALE, Checkout.here()).default_submission().read_text() + (
        "import sys\nsys.stderr.write(f'cuda is {__import__(\"torch\").cuda.synchronize.__module__}\\n')\n"
    )
    report = told(mode="test", folder=SCALE, cuda_is_cpu=True, seed=5, submission=submission_of(source), seconds=100.0)
    assert outcomes(report) == [Passed, Passed], report.logs
    assert "cuda is _cuda_is_cpu" in report.logs["test stderr"]


def test_ranks_that_meet_over_nccl_meet_over_gloo_then(told: Evaluate) -> None:
    """On devices of their own, with barriers that name them, in processes that the evaluator spawned."""
    report = told(mode="test", folder=FOLDERS / "multi" / "wired", cuda_is_cpu=True, seconds=100.0)
    assert outcomes(report) == [Passed], report.logs


def test_only_the_last_shape_is_run_where_it_ranks(told: Evaluate, tmp_path: Path) -> None:
    task = (ROWSUM / "task.yml").read_text()
    more = "  - {world_size: 2, size: 8, weighted: true, seed: 9}\nseed: 7"
    for ranking, sizes in (("last", [8]), ("mean", [64, 8])):
        folder = tmp_path / ranking
        shutil.copytree(ROWSUM, folder)
        (folder / "task.yml").write_text(
            task.replace("seed: 7", more).replace("geom", ranking).replace("../../single", str(SINGLE))
        )
        report = told(mode="benchmark", folder=folder)
        assert [result.case.params["size"] for result in report.results] == sizes
        assert report.figures is not None
        assert report.figures.score.value == pytest.approx(2.5e-6)


def test_a_profile_is_kept(told: Evaluate) -> None:
    table = base64.b64encode(b"name  calls\nkernel  1\n", b"+*").decode()
    report = told(f"said('benchmark.0.report', '{table}')\nsaid('check', 'pass')", mode="profile")
    assert outcomes(report) == [Passed]
    assert report.results[0].profile is not None
    assert report.results[0].profile.text == "name  calls\nkernel  1\n"
    assert "kernel  1" in shown(report)
    back = report_json.from_json(report_json.to_json(report))
    assert back.results[0].profile == report.results[0].profile


@pytest.mark.parametrize(
    "says",
    ["said('benchmark.0.status', 'pass')", "said('benchmark.0.report', '')", "said('benchmark.0.spec', 'size: 64')"],
)
def test_a_profile_without_a_text_says_how_there_would_be_one(says: str, told: Evaluate) -> None:
    """Evaluators that are made for Nsight Compute say that the case is right, or nothing."""
    report = told(f"{says}; said('check', 'pass')", mode="profile")
    assert (outcomes(report), verdict.status(report)) == ([Passed], "pass")
    assert "its eval.py profiles only under ncu: --tool ncu" in shown(report)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("said('check', 'fail')", Wrong),
        ("said('benchmark.0.status', 'pass'); said('check', 'fail'); sys.exit(112)", Wrong),
        ("said('benchmark.0.status', 'fail'); said('benchmark.0.error', 'off'); said('check', 'pass')", Wrong),
        ("said('benchmark.0.status', 'pass')", Wrong),
        ("said('check', 'pass'); lines.close(); os._exit(1)", Crashed),
    ],
)
def test_a_profile_of_what_is_wrong_does_not_pass(text: str, found: type, told: Evaluate) -> None:
    assert outcomes(told(text, mode="profile")) == [found]


def test_each_shape_is_profiled_by_a_run_of_its_own(told: Evaluate) -> None:
    """As KernelBot's runner does: some evaluators profile the first of their cases alone."""
    report = told(mode="profile", folder=FACTS / "lockdown")
    assert outcomes(report) == [Passed, Passed]
    assert [one.profile.text for one in report.results if one.profile] == [
        "calls of size: 16; seed: 12\n", "calls of size: 32; seed: 13\n",
    ]  # fmt: skip
    assert list(report.phases_s) == ["profile"]


# ---- what evaluators of GPU MODE's do ------------------------------------------------------------------------------


def test_an_evaluator_with_ranges_for_nsight_compute_profiles_every_shape(told: Evaluate) -> None:
    report = told(mode="profile", folder=FACTS / "ranges", cuda_is_cpu=True, seconds=100.0)
    assert outcomes(report) == [Passed, Passed], report.logs
    assert {one.profile.text for one in report.results if one.profile} == {evaluator_run.UNDER_NCU}


def test_an_evaluator_that_may_not_lock_the_clocks_is_not_the_submissions_fault(told: Evaluate, tmp_path: Path) -> None:
    """One line, the reason first; the traceback is kept."""
    with pytest.raises(UsageError) as caught:
        told(mode="benchmark", folder=FACTS / "lockdown")
    log = tmp_path / "runs" / "failed.log"
    assert str(caught.value) == (
        "subprocess.CalledProcessError: Command '['sh', '-c', 'exit 1']' returned non-zero exit status 1: "
        "facts/lockdown does not run here; eval.py fails so with the folder's own reference as the submission; its "
        f"traceback is in {log}"
    )
    assert "in lock_clocks" in log.read_text()
    assert outcomes(told(mode="test", folder=FACTS / "lockdown")) == [Passed]


def test_a_ranked_run_that_is_wrong_may_end_with_exit_code_0(told: Evaluate, tmp_path: Path) -> None:
    folder = tmp_path / "lockdown"
    shutil.copytree(FACTS / "lockdown", folder)
    (folder / "utils.py").write_text("def lock_clocks(): ...\n")
    assert outcomes(told(folder=folder)) == [Passed, Measured, Measured]
    wrong = submission_of("import sys\ndef custom_kernel(data):\n    return sum(data) + ('leaderboard' in sys.argv)\n")
    report = told(folder=folder, submission=wrong)
    assert list(report.phases_s) == ["test", "benchmark", "leaderboard"]
    assert outcomes(report) == [Passed, Wrong, NotRun]
    assert (verdict.status(report), verdict.exit_code(report)) == ("fail", 112)


def test_a_reference_that_fails_is_not_the_submissions_fault(told: Evaluate, tmp_path: Path) -> None:
    """Whoever calls it: the control run fails as well."""
    folder = tmp_path / "lockdown"
    shutil.copytree(FACTS / "lockdown", folder)
    with (folder / "reference.py").open("a") as file:
        file.write("\n\ndef ref_kernel(data):\n    raise RuntimeError('not for this GPU')\n")
    calls = submission_of("from reference import ref_kernel\ndef custom_kernel(data):\n    return ref_kernel(data)\n")
    for submission in (None, calls):
        with pytest.raises(
            UsageError, match=r"^RuntimeError: not for this GPU: \S+ does not run here; eval.py fails so"
        ):
            told(mode="test", folder=folder, submission=submission)


@pytest.mark.parametrize("mode", ["test", "benchmark"])
def test_values_inputs_and_results_of_any_make_are_its_own_matter(mode: Mode, told: Evaluate) -> None:
    """Lists that become tuples, a dataclass with tensors on the host and on the GPU, a named tuple."""
    report = told(mode=mode, folder=FACTS / "records", cuda_is_cpu=True, seconds=100.0)
    assert outcomes(report) == [Passed if mode == "test" else Measured], report.logs


def test_a_submission_stays_what_it_is_staged_as_in_each_run(told: Evaluate) -> None:
    """Files are staged anew for each run; what runs write stays, as in KernelBot's folder."""
    report = told("open('submission.py', 'a').write('#' + mode)\nprint(open('submission.py').read()[-9:])\npassed()")
    assert verdict.status(report) == "pass"
    assert "#test" in report.logs["test stdout"]
    assert "#test" not in report.logs["benchmark stdout"]


@pytest.mark.parametrize(
    "leaves", ["os.mkfifo('submission.py')", "os.mkdir('submission.py')", "os.symlink('/dev/full', 'submission.py')"]
)
def test_whatever_a_run_leaves_in_a_files_place_the_next_has_the_file(leaves: str, told: Evaluate) -> None:
    report = told(f"os.unlink('submission.py')\n{leaves}\npassed()")
    assert verdict.status(report) == "pass"


def test_any_amount_of_text_comes_through(told: Evaluate) -> None:
    """More than a pipe holds, on each of them; what is printed is cut as KernelBot cuts it."""
    report = told(
        "for n in range(3000): said(f'noise.{n}', 'x' * 100)\n"
        "print('o' * 500_000)\nprint('e' * 500_000, file=sys.stderr)\npassed()",
        mode="test",
    )
    assert outcomes(report) == [Passed, Passed]
    assert report.logs["test stdout"].startswith("o" * SHOWN_CHARS + "\n[...]")
    assert len(report.logs["test stderr"]) < SHOWN_CHARS + 100


# ---- what does not -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found", "message", "code"),
    [
        ("said('test.0.status', 'pass'); said('test.1.status', 'fail'); said('test.1.error', 'off'); sys.exit(112)",
         [Passed, Wrong], "off", 112),
        ("said('test.0.status', 'pass'); said('check', 'pass')", [Passed, Wrong], "without a result of every", 112),
        ("passed(); said('check', 'fail')", [Passed, Wrong], "with the line `check: fail`", 112),
        ("passed(); said('test.0.status', 'fail')", [Wrong, Passed], "and not why", 112),
        ("passed(); lines.close(); os._exit(1)", [Passed, Crashed], "exited with code 1", 112),
        ("said('test.0.status', 'pass'); os.kill(os.getpid(), 11)", [Passed, Crashed], "killed by SIGSEGV", 112),
        ("sys.exit(110)", [Crashed, NotRun], "exited with code 110: a CUDA call failed", 112),
        ("sys.exit(112)", [Wrong, NotRun], "it says that the submission is wrong", 112),
        ("import submission; submission.custom_kernel(0)", [Crashed, NotRun], "exited with code 1: TypeError: ", 112),
        ("raise ValueError('CUDA error: no')", [Crashed, NotRun], "exited with code 1: ValueError: CUDA error", 112),
        ("lines.write('check: pass\\n\\x00:\\u2028::\\ntest.0.status pass\\n: \\ntest.x.status: pass')",
         [Wrong, NotRun], "without a result of every case", 112),
    ],
)  # fmt: skip
def test_a_run_that_does_not_pass_says_how(
    text: str, found: list[type], message: str, code: int, told: Evaluate
) -> None:
    """It ends the evaluation: nothing is timed behind it."""
    report = told(text)
    assert outcomes(report) == [*found, NotRun]
    failed = verdict.first_failure(report)
    assert failed is not None
    assert message in failed.outcome.message
    assert (verdict.status(report), verdict.exit_code(report)) == ("fail", code)
    assert list(report.phases_s) == ["test"]
    assert report.figures is None
    assert message.split("`")[0][:20] in " ".join(shown(report).split())


def test_the_first_run_that_fails_is_the_last(told: Evaluate) -> None:
    report = told("passed() if mode != 'benchmark' else said('benchmark.0.status', 'fail')")
    assert list(report.phases_s) == ["test", "benchmark"]
    assert outcomes(report) == [Passed, Passed, Wrong]


@pytest.mark.parametrize(
    ("mean", "found"), [("nan", Wrong), ("-5", Wrong), ("0", Wrong), ("inf", Wrong), ("fast", Wrong), ("5", Measured)]
)
def test_a_time_is_a_number_above_0(mean: str, found: type, told: Evaluate) -> None:
    report = told(f"said('benchmark.0.mean', '{mean}'); said('check', 'pass')", mode="benchmark")
    assert outcomes(report) == [found]


def test_a_timeout_ends_all_its_processes(told: Evaluate) -> None:
    """Also those in sessions of their own."""

    def check(limit_s: float) -> None:
        began = time.monotonic()
        report = told(
            "import subprocess\n"
            "said('test.0.status', 'pass')\n"
            "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
            "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
            "time.sleep(600)",
            seconds=limit_s,
        )
        assert time.monotonic() - began < 60
        assert outcomes(report) == [Passed, TimedOut, NotRun]
        assert verdict.exit_code(report) == Exit.TIMED_OUT

    in_time(check, 1.0, 10.0)
    # `nothing_left` finds what is still there


def test_a_process_that_is_left_behind_holds_nothing_up(told: Evaluate) -> None:
    report = told(
        "import subprocess\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
        " pass_fds=[lines.fileno()])\npassed()",
        mode="test",
    )
    assert outcomes(report) == [Passed, Passed]


def test_bad_cases_and_unknown_modes_are_not_the_submissions_fault(told: Evaluate) -> None:
    with pytest.raises(BadFileError, match=r"does not take its cases \(exit 113\): line 1"):
        told("print('line 1', file=sys.stderr); sys.exit(113)", control="")
    with pytest.raises(UsageError, match="does not know the mode profile"):
        told("sys.exit(2)", mode="profile", control="")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise AssertionError('Torch not compiled with CUDA enabled')", "AssertionError: Torch not compiled"),
        ("said('check', 'fail'); said('error', 'no GPU'); sys.exit(112)", "eval.py: no GPU: "),
        ("said('test.0.status', 'fail'); said('test.0.error', 'off'); said('check', 'fail')", "off: "),
        (
            "raise ModuleNotFoundError(\"No module named 'nowhere'\")",
            "ModuleNotFoundError: No module named 'nowhere': ",
        ),
        ("os.kill(os.getpid(), 9)", "eval.py was killed by SIGKILL: "),
    ],
)
def test_an_evaluator_that_fails_the_reference_too_is_refused_in_a_line(text: str, reason: str, told: Evaluate) -> None:
    """Whatever it says: the reason comes first, and no word of it decides."""
    with pytest.raises(UsageError) as caught:
        told(text, control="")
    said = str(caught.value)
    assert said.startswith(reason)
    assert "rowsum does not run here; eval.py fails so with the folder's own reference" in said
    assert "\n" not in said


def test_without_a_reference_what_fails_before_it_comes_to_the_submission_is_refused(told: Evaluate) -> None:
    no_gpu = "said('check', 'fail'); said('error', 'no GPU'); sys.exit(112)"
    with pytest.raises(UsageError, match=r"^eval.py: no GPU: .* fails so with a submission that has nothing"):
        told(no_gpu, control="", missing=("ref_kernel",))


@pytest.mark.parametrize("source", ["", "def custom_kernel(data):\n    raise ValueError('odd')\n", "import nowhere\n"])
def test_without_a_reference_what_the_submission_does_is_its_own(source: str, told: Evaluate) -> None:
    text = "from submission import custom_kernel; custom_kernel(1); passed()"
    report = told(text, control="", missing=("ref_kernel",), submission=submission_of(source))
    assert isinstance(report.results[0].outcome, Crashed)


def test_what_it_says_of_the_whole_run_is_the_message(told: Evaluate) -> None:
    report = told("said('check', 'fail'); said('error', 'no function f'); sys.exit(112)")
    assert report.results[0].outcome == Wrong(message="eval.py: no function f")


def test_a_package_that_only_the_submission_lacks_is_its_own_matter(told: Evaluate) -> None:
    report = told("import submission", submission=submission_of("import nowhere\n"))
    assert isinstance(report.results[0].outcome, Crashed)
    assert "No module named 'nowhere'" in report.results[0].outcome.log_tail


def test_what_a_submission_has_no_business_to_know_is_not_in_its_environment(
    told: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", "secret")
    assert "secret" not in told("print(os.environ)\npassed()", mode="test").logs["test stdout"]


# ---- the lines -----------------------------------------------------------------------------------------------------


def test_the_last_line_of_a_key_counts_and_others_are_let_be() -> None:
    found = result_lines.parse(b"check: fail\nwhatever\n\ncheck: pass\nnew.key:  a: b \n\xff\xfe: x\n")
    assert (found["check"], found["new.key"], found["whatever"]) == ("pass", "a: b", "")


@given(st.binary(max_size=300), st.sampled_from([0, 1, 112, -9, None]), st.integers(1, 3))
def test_no_text_breaks_it_and_none_passes_without_a_result_of_every_case(
    data: bytes, code: int | None, count: int
) -> None:
    """Forged or garbled lines cost their own run at most."""
    told = result_lines.parse(data)
    found = evaluator_run.EvaluatorRun(
        mode="test", count=count, limit_s=1.0, code=code, told=told, stdout="", stderr=""
    ).outcomes
    assert len(found) == count
    assert all(isinstance(one, Passed) for one in found) or any(isinstance(one, Failure) for one in found)


# ---- beside ours on the board --------------------------------------------------------------------------------------


def test_its_word_is_an_entry_of_its_own_that_is_ranked_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a speedup, under the suite `theirs`; and the report can be read back."""
    problem = read(ROWSUM, Checkout.here())
    suite = problem.suite("official")
    note = Warning(code="other_gpus", values={"gpus": "an L4", "here": "no GPU"})
    setting = Setting(
        problem=problem, suite=suite, device="cpu", world_size=2, evaluator="theirs", notes=(note,)
    )  # fmt: skip
    submission = submission_of(problem.default_submission().read_text())
    ran, again = (
        recorded.evaluated(
            Order(setting=setting, submission=submission, mode="leaderboard", author=author),
            Checkout(tmp_path),
            record=True,
            progress=Progress(),
        )
        for author in ("ada", "bob")
    )
    assert (ran.unrecorded, again.unrecorded) == (None, None)
    assert again.place is not None
    assert again.place.of == 2
    entries = leaderboard.load(tmp_path / "leaderboard.yaml").entries
    assert {(one.problem, one.suite, one.ratio, one.author) for one in entries} == {
        ("multi/rowsum", "theirs", None, author) for author in ("ada", "bob")
    }
    told = json.loads((tmp_path / "runs" / ran.report.run_id / "report.json").read_text())
    assert (told["checker"], told["figures"]["ratio"], told["figures"]["fraction"]) == ("theirs", None, None)
    assert told["figures"]["score"]["value"] == pytest.approx(2.5e-6)
    (series,) = told["cases"][2]["outcome"]["series"]
    assert (series["metric"]["name"], series["summary"]["runs"], series["own"]) == ("theirs", 3, [])
    back = reports.find(ran.report.run_id, tmp_path)
    assert (back.results, back.figures) == (ran.report.results, ran.report.figures)
    (*_, row) = export.rows(Board(), [back], tmp_path)
    assert (row["case_time_us"], row["case_samples"], row["run_passed"]) == (2.5, 3, True)
    assert row["run_result"]["benchmark.0.mean"] == "2500.0"
    text = " ".join(shown(ran.report).split())
    assert "its word is taken, and such runs are ranked apart" in text
    assert "speedup none: of the reference nothing was measured" in text
    assert "the submission is for an L4; this machine has no GPU" in text
    console = Console(file=StringIO(), width=100)
    terminal.show(board_view.document_of(leaderboard.load(tmp_path / "leaderboard.yaml")), console)
    assert "suite theirs" in console.file.getvalue()


def test_only_a_folder_has_an_evaluator_of_its_own() -> None:
    command = [sys.executable, "-m", "harness", "eval", "a2a", "--eval", "theirs", "--no-record"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert found.returncode == 2
    assert "--eval theirs: a2a is no problem folder" in found.stderr
