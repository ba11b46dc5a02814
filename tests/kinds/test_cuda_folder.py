"""CUDA C++ problem folders: compiled by nvcc, run by the program that it makes. In all tests but the last the nvcc is a
stand-in, which prints what it was given and makes a script of Python that speaks the evaluator's protocol."""

import dataclasses
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from places import SINGLE

from harness.cli.main import main
from harness.core.checkout import Checkout
from harness.core.errors import BadFileError, Exit, UsageError
from harness.core.records import Crashed, EvalReport, Measured, NotRun, Passed, Wrong
from harness.evaluation.evaluate import evaluate
from harness.gpumode.folder import CudaConfig, read
from harness.judging import verdict
from harness.kinds import settings
from harness.kinds.external import programs
from harness.kinds.kind import Order, Progress
from harness.kinds.registry import kind_of
from harness.kinds.settings import Asked
from harness.machine.host import gpus
from harness.problems.submission import read_submission

FOLDER = SINGLE / "cuda"
COMPILES = """#!/bin/sh
echo "compiled $*"
while [ $# -gt 1 ]; do [ "$1" = -o ] && out=$2; shift; done
cp {program} "$out"
chmod +x "$out"
"""
PROGRAM = f"""#!{sys.executable}
import os, sys
with os.fdopen(int(os.environ["POPCORN_FD"]), "w") as lines:
    mode, cases = sys.argv[1], open(sys.argv[2]).read().splitlines()
    print(mode, cases, sorted(os.listdir(".")))
    for index, case in enumerate(cases):
        print(f"test.{{index}}.status: pass" if mode == "test" else f"benchmark.{{index}}.mean: 5000", file=lines)
    print("check: pass", file=lines)
"""
Evaluate = Callable[..., EvalReport]


@pytest.fixture
def nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """nvcc(script) puts that script in nvcc's place."""
    monkeypatch.setattr(programs, "NVCC_FOLDERS", ())
    monkeypatch.delenv("CUDA_HOME", raising=False)

    def put(script: str = "", program: str = PROGRAM) -> None:
        (tmp_path / "program").write_text(program)
        (tmp_path / "bin").mkdir()
        path = tmp_path / "bin" / "nvcc"
        path.write_text(script or COMPILES.format(program=tmp_path / "program"))
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")

    return put


@pytest.fixture
def ran(nvcc: Callable[..., None], nothing_left: None) -> Evaluate:
    """ran(script, folder=...) evaluates the folder's own submission, with that script as nvcc."""

    def run(script: str = "", folder: Path = FOLDER, program: str = PROGRAM) -> EvalReport:
        nvcc(script, program)
        setting = settings.setting(Asked(problem=str(folder)), Checkout.here())
        problem = setting.problem
        submission = read_submission(problem.default_submission(), Checkout.here().root, problem.lang)
        order = Order(setting=setting, submission=submission, mode="leaderboard", author="tester")
        return evaluate(kind_of(setting).plan(order), Progress())

    return run


def test_a_folder_is_compiled_once_and_run_in_three_modes(ran: Evaluate) -> None:
    report = ran()
    assert verdict.status(report) == "pass", report.results
    assert [type(result.outcome) for result in report.results] == [Passed, Passed, Measured]
    assert list(report.phases_s) == ["compile", "test", "benchmark", "leaderboard"]
    assert (report.suite, report.checker) == ("theirs", "theirs")
    assert [note.code for note in report.warnings] == ["theirs", "only_theirs"]
    log = report.logs["compile"]
    assert " -lineinfo -DSCALE=2 -DCHECKED eval.cu -lcublas -arch=native -o eval.out" in log
    assert "--std=c++20" in log
    assert report.logs["test stdout"] == "test ['size: 16; seed: 1', 'size: 32; seed: 2'] ['eval.out']\n"


def test_an_error_of_the_compiler_is_the_submissions(ran: Evaluate) -> None:
    script = (
        "#!/bin/sh\n(echo ptxas info; echo 'submission.cuh(3): error: identifier SKALE is undefined') >&2\nexit 2\n"
    )
    report = ran(script)
    assert [type(result.outcome) for result in report.results] == [Crashed, NotRun, NotRun]
    outcome = report.results[0].outcome
    assert isinstance(outcome, Crashed)
    assert outcome.message.startswith("does not compile: nvcc exited with code 2: submission.cuh(3): error: identifier")
    assert "ptxas info" in outcome.log_tail
    assert "ptxas info" in report.logs["compile"]
    assert verdict.exit_code(report) == Exit.INVALID


def test_an_nvcc_that_finds_no_gpu_blames_nobody(ran: Evaluate) -> None:
    with pytest.raises(UsageError, match=r"single/cuda: nvcc cannot compile here: no GPU for native"):
        ran("#!/bin/sh\necho 'nvcc fatal   : no GPU for native' >&2\nexit 1\n")


def test_a_program_that_fails_is_named(ran: Evaluate) -> None:
    report = ran(program=f"#!{sys.executable}\nimport sys\nsys.exit(112)\n")
    assert report.results[0].outcome == Wrong(message="eval.out exited with 112: it says that the submission is wrong")


def test_without_nvcc_a_line_says_where_it_was_looked_for(
    nvcc: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(programs, "search_path", lambda: str(tmp_path / "empty"))
    for more, told in (
        ([], "there is no nvcc here (looked in PATH, $CUDA_HOME/bin)"),
        (["--eval", "ours"], "single/cuda: it is a CUDA C++ problem, whose evaluator is a program of its own; --eval"),
        (["--device", "cpu"], "no CPU can stand in for its GPU; leave DEVICE=cpu out"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["eval", str(FOLDER), "--no-record", *more])
        shown = capsys.readouterr().err.strip()
        assert ended.value.code == Exit.USAGE
        assert told in shown
        assert "\n" not in shown


def test_its_submission_is_any_text_of_its_language(tmp_path: Path) -> None:
    found = read(FOLDER, Checkout.here())
    assert isinstance(found.task.config, CudaConfig)
    assert found.default_submission().name == "submission.cuh"
    assert list(found.staged_submission("int x;")) == ["submission.cuh"]
    source = tmp_path / "mine.cu"
    source.write_text("__global__ void f() {}\n")
    assert read_submission(source, tmp_path, "cu").source == "__global__ void f() {}\n"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("sources: [eval.cu]", "sources: [evil.cu]", r"\$.config.sources\[0\]: 'evil.cu' is not among the files"),
        ("sources: [eval.cu]", "sources: []", r"\$.config.sources: the list is empty"),
        ("[-lineinfo]", "[lineinfo]", r"\$.config.compile_flags\[0\]: expected a flag that begins with -"),
        ("{SCALE: 2", "{SCA LE: 2", r"\$.config.defines: expected names of macros, found 'SCA LE'"),
        ("  include_dirs: []", "  main: eval.py", r"\$.config.main: unknown key"),
        ("lang: cu", "lang: py", r"\$.config.sources: unknown key"),
    ],
)
def test_a_bad_config_is_refused_with_its_place(old: str, new: str, told: str, tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "cuda")
    task = tmp_path / "cuda" / "task.yml"
    assert old in task.read_text()
    task.write_text(task.read_text().replace(old, new))
    with pytest.raises(BadFileError, match=told):
        read(tmp_path / "cuda", Checkout.here())


def test_a_folder_that_our_ranks_cannot_run_is_left_to_its_eval_py(tmp_path: Path) -> None:
    """Unless our ranks were asked for."""
    shutil.copytree(FOLDER.parent, tmp_path / "single")
    folder = tmp_path / "single" / "scale"
    reference = folder / "reference.py"
    reference.write_text(reference.read_text().replace("def ref_kernel", "def slow_kernel"))
    asked = Asked(problem=str(folder))
    found = settings.setting(asked, Checkout.here())
    assert found.evaluator == "theirs"
    assert [note.code for note in found.notes] == ["only_theirs"]
    assert "defines no ref_kernel" in str(found.notes[0].values["why"])
    for evaluator in ("ours", "theirs"):
        found = settings.setting(dataclasses.replace(asked, evaluator=evaluator), Checkout.here())
        assert (found.evaluator, found.notes) == (evaluator, ())
    found = settings.setting(Asked(problem=str(FOLDER.parent / "scale")), Checkout.here())
    assert (found.evaluator, found.notes) == ("ours", ())


@pytest.mark.skipif(gpus().device != "cuda" or programs.nvcc() is None, reason="needs an NVIDIA GPU and nvcc")
def test_nvcc_itself_compiles_the_folder(tmp_path: Path) -> None:
    folder, out = tmp_path / "cuda", tmp_path / "report.json"
    shutil.copytree(FOLDER, folder)
    for wrong, ends in (("", Exit.OK), ("1 +", Exit.INVALID), ("no_such_name +", Exit.INVALID)):
        text = (FOLDER / "submission.cuh").read_text()
        (folder / "submission.cuh").write_text(text.replace("SCALE *", f"{wrong} SCALE *"))
        with pytest.raises(SystemExit) as ended:
            main(["eval", str(folder), "--json", str(out), "--no-record"])
        cases = json.loads(out.read_text())["cases"]
        assert ended.value.code == ends, cases
        if not wrong:
            assert {case["status"] for case in cases} == {"pass"}
        else:
            assert ("elements differ" if wrong == "1 +" else "no_such_name") in cases[0]["error"]
