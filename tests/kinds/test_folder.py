"""KernelBot problem folders as they are: read, staged, run by our ranks, judged by their own check.

The folders in tests/folders/ are written for these tests, in the format alone.
"""

import dataclasses
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import submission_of
from factories import ordered
from places import FOLDERS, ROOT, SINGLE
from waiting import in_time

from harness.cli.main import main
from harness.core.checkout import Checkout
from harness.core.errors import BadFileError, BadSubmissionError, UsageError
from harness.core.records import Case, Crashed, EvalReport, Measured, Mode, Passed, Raised, Submission, Wrong
from harness.evaluation.evaluate import evaluate
from harness.gpumode.folder import cases_text, read
from harness.judging import verdict
from harness.judging.warnings import TEXTS, text_of
from harness.kinds.folder import rank as folder_trusted
from harness.kinds.folder import rank_check as folder_check
from harness.kinds.folder.rank import FolderTrusted
from harness.kinds.kind import Progress
from harness.kinds.op import measure as op_measure
from harness.kinds.op.plan import make_plan
from harness.kinds.op.watch import MachineWatch
from harness.kinds.registry import find
from harness.machine.host import gpus
from harness.problems.submission import directives
from harness.process import compile_cache, cuda_shim_site
from harness.ranks import launch, output_bounds, payload
from harness.ranks.shared_buffer import FileBuffer, LoadedFile

SCALE = SINGLE / "scale"
Evaluate = Callable[..., EvalReport]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of `single`, of which `single/scale` is for a test to change."""
    shutil.copytree(SINGLE, tmp_path / "single")
    return tmp_path / "single" / "scale"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) >= 1, f"{old!r} is not in {path}"
    path.write_text(text.replace(old, new, 1))


@pytest.fixture
def ran(nothing_left: None) -> Evaluate:
    """ran(folder, source=...) evaluates one, by our ranks on CPU cores."""

    def run(
        folder: Path,
        source: str | Submission = "",
        mode: Mode = "test",
        seconds: float = 0.05,
        cuda_is_cpu: bool = False,
    ) -> EvalReport:
        problem = read(folder, Checkout.here())
        suite = dataclasses.replace(problem.suite("official"), benchmark_s=seconds)
        if not isinstance(source, Submission):
            source = submission_of(source or problem.default_submission().read_text())
        world_size = suite.benchmarks[0].world_size
        plan = make_plan(ordered(problem, suite, source, mode, "cpu", world_size), cuda_is_cpu=cuda_is_cpu)
        return evaluate(plan, Progress())

    return run


# ---- reading ------------------------------------------------------------------------------------------------------


def test_a_folder_is_a_problem() -> None:
    """Its name is its set's and its own; files come from where task.yml says, also from beside the folder."""
    found = read(SCALE, Checkout.here())
    assert (found.name, found.ranking_by, found.checker, found.missing) == ("single/scale", "last", "folder", ())
    assert list(found.suites) == ["official"]
    assert set(found.staged()) == {"task.py", "utils.py", "reference.py", "eval.py"}
    assert found.staged()["utils.py"] == (SINGLE / "utils.py").read_bytes()
    suite = found.suite("official")
    assert suite.tests[1] == Case(kind="test", params={"size": 64}, seed=12, world_size=1)
    assert (suite.test_timeout_s, suite.ranked_timeout_s) == (60, 60)
    assert found.default_submission() == SCALE / "template.py"


def test_parameters_may_be_texts_numbers_switches_and_lists() -> None:
    found = read(SINGLE / "words", Checkout.here()).suite("official").tests[1]
    params = {"shape": (4, 2), "how": "columns", "power": 3, "scale": 2.0, "double": True}
    assert found == Case(kind="test", params=params, seed=4, world_size=1)
    assert cases_text((params,)) == "shape: [4, 2]; how: columns; power: 3; scale: 2.0; double: True\n"


def test_a_problem_of_several_gpus_has_its_ranks_from_its_cases() -> None:
    found = read(FOLDERS / "multi" / "rowsum", Checkout.here()).suite("official")
    assert {case.world_size for case in (*found.tests, *found.benchmarks)} == {2}
    assert found.test_timeout_s == 180  # KernelBot's, where task.yml does not say


@pytest.mark.parametrize("name", [str(SCALE), str(SCALE / "task.yml"), "tests/folders/single/scale/"])
def test_a_path_is_taken_where_a_name_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert find(name, Checkout.here()).name == "single/scale"


def test_names_of_the_checkout_stay_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever lies in the working folder."""
    shutil.copytree(SCALE, tmp_path / "a2a")
    monkeypatch.chdir(tmp_path)
    assert find("a2a", Checkout.here()).name == find("amd-all2all", Checkout.here()).name == "a2a"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("tests/folders/single", "a folder without task.yml"),
        ("no/such", "no such file or folder"),
        ("a2b", "did you mean"),
        ("Makefile", "Makefile: a file, and no problem; name a problem that"),
        ("tests/folders/single/eval.py", "eval.py: a file, and no problem; name a problem that"),
        ("~nobody/single", "no such file or folder"),
        ("a" * 300, "no problem 'aaa"),
        ("a/" * 3000, "no problem 'a/a/"),
        ("a\0b", "no problem 'a"),
    ],
)
def test_what_is_no_problem_is_said_to_be_none(name: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(UsageError, match=told):
        find(name, Checkout.here())


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"../utils.py"', '"../util.py"', "$.files[2].source: there is no file ../util.py"),
        ('{"name": "task.py"', '{"name": "../task.py"', "$.files[1].name: expected a name inside"),
        ('{"name": "task.py"', '{"name": "utils.py"', "'utils.py' is staged twice"),
        ('"@SUBMISSION@"', '"task.py"', "no file has the source @SUBMISSION@"),
        ('main: "eval.py"', 'main: "run.py"', "$.config.main: 'run.py' is not among the files"),
        ('"seed": 12', '"seed": 18446744073709551616', "$.tests[1].seed: expected a whole number from -9223"),
        ('"seed": 12', '"seed": {}', "$.tests[1].seed: expected"),
        ("test_timeout: 60", "test_timeout: 0", "$.test_timeout: expected seconds above 0"),
        ('ranking_by: "last"', 'ranking_by: "best"', "$.ranking_by: expected one of 'last', 'mean', 'geom'"),
        ('lang: "py"', 'lang: "rs"', "$.lang: expected"),
        ("libraries: []", "library: []", "$.library: unknown key; did you mean 'libraries'"),
        ("libraries: []", "multi_gpu: true", "$.tests[0]: the key 'world_size' is missing"),
        ("benchmarks:\n", "benchmarks: []\nfoo:\n", "unknown key"),
        ('description: |', "description: [", "not YAML"),
    ],
)  # fmt: skip
def test_a_bad_task_is_told_its_place(old: str, new: str, told: str, folder: Path) -> None:
    edit(folder / "task.yml", old, new)
    with pytest.raises(BadFileError) as caught:
        read(folder, Checkout.here())
    assert told in str(caught.value)
    assert "task.yml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_kernelbot_passes_over_is_passed_over(folder: Path) -> None:
    """Keys of a file, an empty list of GPUs."""
    edit(folder / "task.yml", '"source": "task.py"}', '"source": "task.py", "note": 1}')
    edit(folder / "task.yml", "gpus:\n  - L4", "gpus:")
    assert read(folder, Checkout.here()).task.gpus == ()


def test_a_reference_that_cannot_be_run_by_us_is_left_to_its_own_evaluator(folder: Path) -> None:
    edit(folder / "reference.py", "def ref_kernel", "def slow_kernel")
    problem = read(folder, Checkout.here())
    with pytest.raises(UsageError, match=r"defines no ref_kernel.*--eval theirs"):
        problem.check_runnable()


@pytest.mark.parametrize(
    ("more", "missing", "checker"),
    [
        ("from utils import within as ref_kernel", (), "folder"),
        ("ref_kernel = generate_input", (), "folder"),
        ("if True:\n    def ref_kernel(data): ...", (), "folder"),
        ("def outer():\n    ref_kernel = 1", ("ref_kernel",), "folder"),
        ("from utils import *", (), "folder"),  # only running it would tell
        ("def harden(data, seed): ...\n\n\ndef exact_kernel(data): ...\n\n\nref_kernel = harden", (), "strict"),
    ],
)
def test_what_a_reference_defines_is_read_off_its_text(
    more: str, missing: tuple[str, ...], checker: str, folder: Path
) -> None:
    edit(folder / "reference.py", "def ref_kernel", "def slow_kernel")
    with (folder / "reference.py").open("a") as file:
        file.write(f"\n\n{more}\n")
    assert (read(folder, Checkout.here()).missing, read(folder, Checkout.here()).checker) == (missing, checker)


def test_without_a_submission_or_a_template_there_is_nothing_to_evaluate(folder: Path) -> None:
    edit(folder / "task.yml", "templates:\n", "# templates:\n#")
    with pytest.raises(UsageError, match=r"neither a submission.py nor a Python template.*SUBMISSION=path"):
        read(folder, Checkout.here()).default_submission()


def test_one_gpu_is_one_rank() -> None:
    problem = read(SCALE, Checkout.here())
    with pytest.raises(UsageError, match="runs on 1 rank, not on 2"):
        problem.with_world_size(problem.suite("official"), 2)


# ---- evaluating by our ranks and clocks -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["single/words", "single/pair", "multi/rowsum"])
def test_a_folder_is_evaluated_as_it_is(name: str, ran: Evaluate) -> None:
    """Texts and lists among its parameters; several tensors returned, inputs written to, a layout kept; ranks, and
    state of the submission that outlives a case. Timed against its ref_kernel, without a bound."""
    report = ran(FOLDERS / name, mode="leaderboard")
    assert verdict.status(report) == "pass", report.results
    figures = report.figures
    assert figures is not None
    assert figures.ratio is not None
    assert (report.problem, report.checker, figures.fraction) == (name, "folder", None)
    assert {result.bound for result in report.results} == {None}
    assert report.peaks is None


def test_lists_become_tuples_and_inputs_and_results_may_be_records(ran: Evaluate) -> None:
    """A dataclass with tensors on the host and on the GPU, a named tuple; as some of GPU MODE's folders have them."""
    report = ran(FOLDERS / "facts" / "records", cuda_is_cpu=True)
    assert [type(result.outcome) for result in report.results] == [Passed], report.results


def test_a_kernel_that_alters_its_input_does_not_alter_what_the_check_reads(ran: Evaluate) -> None:
    """A wrong result that would be right for the input as the kernel leaves it."""
    source = (
        "def custom_kernel(data):\n"
        "    values, room = data\n"
        "    values.fill_(1.0)\n"
        "    room.fill_(1.0)\n"
        "    return {'sorted': room, 'places': [room.argsort(1), None]}\n"
    )
    report = ran(SINGLE / "pair", source)
    assert {type(result.outcome) for result in report.results} == {Wrong}
    assert "off by" in report.results[0].outcome.message


def test_what_the_folders_check_takes_passes_and_is_noted(ran: Evaluate) -> None:
    """prefixsum of pmpp_v2 has such a submission: another dtype than its reference's."""
    report = ran(SCALE, "def custom_kernel(data):\n    return data.double() * data.numel()\n")
    assert verdict.status(report) == "pass", report.results
    [noted] = [warning for warning in report.warnings if warning.code == "make"]
    assert "the dtype of the result is float64; expected float32" in text_of(noted)


def test_a_wrong_make_is_told_beside_what_the_check_stumbled_over(ran: Evaluate) -> None:
    outcome = ran(SCALE, "def custom_kernel(data):\n    data * data.numel()\n").results[0].outcome
    assert isinstance(outcome, Wrong)
    assert "check_implementation raised" in outcome.message
    assert "; the result is a None; expected a plain torch.Tensor" in outcome.message


def test_a_check_that_its_own_reference_fails_is_said_to_be_one(tmp_path: Path, ran: Evaluate) -> None:
    shutil.copytree(SCALE, tmp_path / "single" / "scale")
    shutil.copy(SCALE.parent / "utils.py", tmp_path / "single")
    shutil.copy(SCALE.parent / "eval.py", tmp_path / "single")
    edit(tmp_path / "single" / "scale" / "reference.py", "ref_kernel(data), 1e-3", "2 * ref_kernel(data), 1e-3")
    outcome = ran(tmp_path / "single" / "scale").results[0].outcome
    assert isinstance(outcome, Wrong)
    assert "the folder's own ref_kernel fails the folder's check, too, on seed " in outcome.message


def test_a_check_that_takes_long_makes_samples_few_and_is_warned_of(
    folder: Path, ran: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of GPU MODE's linalg folders, whose checks of large batches take seconds. What other tests use of the cores,
    which would be warned of instead, is not seen."""
    monkeypatch.setattr(MachineWatch, "cpu_use", None)
    path = folder / "reference.py"
    text = path.read_text()

    def check(slow_s: float) -> None:
        monkeypatch.setattr(op_measure, "SLOW_S", slow_s / 2)
        sleeps = f"    __import__('time').sleep({slow_s} if len(data) == 4096 else 0)\n    return within"
        path.write_text(text.replace("    return within", sleeps))
        report = ran(folder, mode="benchmark")
        assert verdict.status(report) == "pass", report.results
        quick, slow = (result.outcome for result in report.results)
        assert isinstance(quick, Measured)
        assert isinstance(slow, Measured)
        assert len(quick.ranked.own) >= 16
        assert len(slow.ranked.own) == 8
        assert report.results[1].figures is not None
        assert report.results[1].figures.ratio is not None
        assert report.results[1].figures.ratio.ci is not None
        [warned] = [warning for warning in report.warnings if warning.code == "slow_judging"]
        assert warned.values["count"] == 1
        assert 10 * slow_s < warned.values["judging"] < 100 * slow_s
        assert text_of(warned).startswith("judging outputs took ")

    in_time(check, 0.2, 1.0)


def test_settings_of_the_folders_evaluator_hold_in_all_ranks(tmp_path: Path, ran: Evaluate) -> None:
    """Those that it makes where kernels run, and those that its reference makes at its import."""
    folder = tmp_path / "single" / "scale"
    shutil.copytree(SCALE, folder)
    shutil.copy(SCALE.parent / "utils.py", tmp_path / "single")
    (tmp_path / "single" / "eval.py").write_text(
        "import torch\ntorch.backends.cudnn.allow_tf32 = False\n"
        "def _run_single_test(test):\n    torch.set_float32_matmul_precision('medium')\n"
        "def main():\n    torch.backends.cudnn.benchmark = True\n"
    )
    edit(folder / "reference.py", "import torch\n", "import torch\ntorch.set_default_dtype(torch.float64)\n")
    report = ran(
        folder,
        "import torch\nFOUND = (torch.get_default_dtype(), torch.backends.cudnn.allow_tf32,"
        " torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark)\n"
        "def custom_kernel(data):\n"
        "    assert FOUND == (torch.float64, False, 'medium', False), FOUND\n"
        "    return data * data.numel()\n",
    )
    assert verdict.status(report) == "pass", report.results


def test_what_a_submission_of_a_folder_may_do(ran: Evaluate) -> None:
    """It patches init_process_group, opens a group in place of the evaluator's and others beside it, writes into its
    folder and imports what is staged."""
    source = """\
from pathlib import Path

import reference
import task
import torch.distributed as dist

OPENED = []
real = dist.init_process_group


def opened(*arguments, **named):
    OPENED.append(sorted(named))
    return real(*arguments, **named)


dist.init_process_group = opened


def custom_kernel(data: task.input_t) -> task.output_t:
    assert OPENED[0] == ["backend", "device_id", "init_method", "rank", "world_size"]
    if not Path("seen.txt").exists():
        Path("seen.txt").write_text("here")
        dist.barrier()
        dist.destroy_process_group()
        dist.init_process_group("gloo", init_method="env://", rank=data[1], world_size=data[2])
        dist.barrier(dist.new_group())
    return reference.ref_kernel(data)
"""
    report = ran(FOLDERS / "multi" / "rowsum", source)
    assert [type(result.outcome) for result in report.results] == [Passed, Passed], report.results


def test_hard_wired_cuda_is_refused_in_a_line_or_the_submissions_own_matter(ran: Evaluate) -> None:
    """By whose process fails; both are told what helps on a machine without CUDA."""
    wired = SINGLE / "wired"
    plain = "def custom_kernel(data):\n    return 2 * (data[0] + data[1])\n"
    with pytest.raises(UsageError, match=r"^\w+Error: .*\(\w+.py:\d+, a judge .* Next: DEVICE=cpu") as caught:
        ran(wired, plain)
    assert "\n" not in str(caught.value)
    outcome = ran(wired).results[0].outcome
    assert isinstance(outcome, Raised)
    assert "this machine may be the reason: DEVICE=cpu" in outcome.message


DRAFTS = {
    "a package that it imports is missing": ("import torch\n", "import nowhere\nimport torch\n", "ModuleNotFoundError"),
    "its generate_input fails": ("device = ", "raise OSError('no FP4')\n    device = ", "OSError: no FP4"),
    "its ref_kernel fails": (
        "return data * ",
        "raise ValueError('a draft')\n    return data * ",
        "ValueError: a draft",
    ),
    "its ref_kernel ends the process": ("return data * ", "import os; os.abort()\n    return data * ", "was killed by"),
}


@pytest.mark.parametrize("draft", DRAFTS.values(), ids=DRAFTS.keys())
def test_a_folder_that_does_not_run_here_is_refused_in_a_line(
    draft: tuple[str, str, str], folder: Path, ran: Evaluate
) -> None:
    """The reason comes first. No word of a message decides."""
    before, after, reason = draft
    edit(folder / "reference.py", before, after)
    with pytest.raises(UsageError, match="does not run here") as caught:
        ran(folder)
    assert str(caught.value).startswith(reason)
    assert "\n" not in str(caught.value)


KILLED = "import os; os.kill(os.getpid(), 9) if '/first/' in os.getcwd() else None"


def test_a_machine_with_too_little_memory_for_the_reference_too_is_not_the_submissions_fault(
    folder: Path, ran: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel kills what has most memory. Here the reference is killed wherever it is called as a submission is."""
    groups = {"trusted": "trusted", "candidate": "first", "baseline": "second"}
    monkeypatch.setattr(launch, "drawn", lambda: groups)
    own = f"def custom_kernel(data):\n    {KILLED}\n"
    outcome = ran(folder, own).results[0].outcome
    assert isinstance(outcome, Crashed), "the reference passes in its place"
    assert "SIGKILL" in outcome.message
    assert "a judge and the reference have memory of this machine too" in outcome.message
    edit(folder / "reference.py", "return data * ", f"{KILLED}\n    return data * ")
    with pytest.raises(UsageError, match=r"SIGKILL.* \(with the reference as the submission, too\)\. Next: smaller"):
        ran(folder, own)


@pytest.mark.parametrize("raises", ["ModuleNotFoundError(\"No module named 'cutlass'\")", "OSError('no CUDA_HOME')"])
def test_what_a_submission_lacks_is_its_own_matter(raises: str, ran: Evaluate) -> None:
    """Else a file could end every evaluation of it without a verdict."""
    outcome = ran(SCALE, f"def custom_kernel(data):\n    raise {raises}\n").results[0].outcome
    assert isinstance(outcome, Raised)
    assert raises.partition("(")[0] in outcome.message


TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def doubled(at, n: tl.constexpr):
    where = at + tl.arange(0, n)
    tl.store(where, 2 * tl.load(where))


def custom_kernel(data):
    out = data.clone()
    doubled[(1,)](out, 8)
    return out
"""


@pytest.mark.skipif(bool(gpus().count), reason="here a Triton kernel finds a GPU")
def test_a_triton_kernel_is_refused_where_there_is_no_gpu(ran: Evaluate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(UsageError, match=r"needs a GPU for its Triton kernels, .*Next: .*TRITON_INTERPRET=1"):
        ran(SCALE, TRITON)


ASIDE = """
import torch


def custom_kernel(data):
    with torch.cuda.stream(torch.cuda.Stream()):
        result = 2 * (data[0] + data[1])
    torch.cuda.synchronize()
    return result
"""


@pytest.mark.gpu(1)
def test_a_kernel_on_a_stream_that_waits_for_no_other_is_right_where_inputs_lie_ready(nothing_left: None) -> None:
    """As they do at GPU MODE."""
    problem = read(SINGLE / "wired", Checkout.here())
    suite = dataclasses.replace(problem.suite("official"), benchmark_s=0.1)
    plan = make_plan(ordered(problem, suite, submission_of(ASIDE), "leaderboard", gpus().device, 1))
    report = evaluate(plan, Progress())
    assert verdict.status(report) == "pass", verdict.first_failure(report)


def test_ranks_on_devices_of_their_own_are_redirected_too(ran: Evaluate) -> None:
    report = ran(FOLDERS / "multi" / "wired", cuda_is_cpu=True)
    assert [type(result.outcome) for result in report.results] == [Passed], report.results


def test_the_cpu_stands_in_for_cuda_when_asked_to_and_the_report_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Generators, streams, events, pinned memory and devices that are written out; in ranks of all groups."""
    with pytest.raises(SystemExit) as ended:
        main(["eval", str(SINGLE / "wired"), "--device", "cpu", "--seconds", "0.05", "--no-record", "-v"])
    shown = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0
    assert TEXTS["cuda_is_cpu"] in shown
    assert "looser than the strict checker" in shown


def test_torchs_compiler_takes_the_shim(tmp_path: Path) -> None:
    """It refuses functions that stand under several names of torch.cuda, and imports the module of each that it
    compiles; use_deterministic_algorithms imports it too, which most folders call."""
    environ = os.environ | {cuda_shim_site.VARIABLE: str(cuda_shim_site.SHIM), "PYTHONPATH": str(tmp_path)}
    shutil.copy(cuda_shim_site.__file__, tmp_path / "sitecustomize.py")
    text = """
import torch
torch.use_deterministic_algorithms(True)
torch.manual_seed(1)
compiled = torch.compile(lambda x: torch.sort(x + torch.ones(3, device="cuda"))[0], backend="eager")
print(compiled(torch.tensor([2.0, 1.0, 0.0], device="cuda")).tolist())
"""
    done = subprocess.run([sys.executable, "-c", text], env=environ, capture_output=True, text=True, timeout=120)
    assert done.stdout == "[1.0, 2.0, 3.0]\n", done.stderr


@pytest.mark.skipif("KERNELBOT_FOLDERS" not in os.environ, reason="KERNELBOT_FOLDERS names no tree of problem folders")
@pytest.mark.parametrize("evaluator", ["ours", "theirs"])
@pytest.mark.parametrize(
    ("name", "file"),
    [
        *((name, "submission.py") for name in ("conv2d", "grayscale", "histogram", "matmul", "prefixsum", "sort")),
        ("vectoradd", "submission.py"),  # vectorsum's is Triton's, and its other one has a wrong shape
    ],
)
def test_gpu_modes_folders_pass_their_tests_on_the_cpu(name: str, file: str, evaluator: str) -> None:
    folder = Path(os.environ["KERNELBOT_FOLDERS"]) / "pmpp_v2" / f"{name}_py"
    if not folder.is_dir():
        pytest.skip(f"there is no {folder}")
    with pytest.raises(SystemExit) as ended:
        main(["check", str(folder), str(folder / file), "--device", "cpu", "--eval", evaluator])
    assert ended.value.code == 0


# ---- the checker ----------------------------------------------------------------------------------------------------


@pytest.fixture
def buffer() -> Iterator[FileBuffer]:
    fd = os.memfd_create("buffer")
    yield FileBuffer(fd)
    os.close(fd)


ONES = torch.ones(2, 3)
TREE = {"a": ONES, "b": [torch.arange(3), None, (1, 2.5, "x", True)]}


def note(buffer: FileBuffer, result: object, expected: object) -> str:
    output = payload.write_output(buffer, 0, result, 1 << 20)
    value, lacking = payload.read_tree(buffer, output, 1 << 20)
    return lacking or folder_check.unlike(output, value, expected)


@pytest.mark.parametrize("expected", [ONES, TREE, (ONES, [ONES]), torch.linalg.eigh(torch.eye(3)), torch.empty(0, 4)])
def test_a_result_of_the_same_make_is_not_noted(expected: object, buffer: FileBuffer) -> None:
    assert note(buffer, expected, expected) == ""


@pytest.mark.parametrize(
    ("result", "expected", "told"),
    [
        (ONES.double(), ONES, "the dtype of the result is float64; expected float32"),
        (ONES.T, ONES, "the shape of the result is [3, 2]; expected [2, 3]"),
        (ONES / 0, ONES, "6 of 6 elements of the result are not finite"),
        ([ONES], ONES, "the result is a list; expected a plain torch.Tensor"),
        ([ONES], (ONES,), "the result is a list; expected a tuple"),
        ((ONES,), (ONES, ONES), "the result has 1 parts; expected 2"),
        ({"b": ONES}, {"a": ONES}, "the result has the keys b; expected a"),
        ((ONES, ONES.int()), (ONES, ONES), "the dtype of part 1 of the result is int32"),
        ({"a": [ONES, None]}, {"a": [ONES, ONES]}, "part 1 of part a of the result is a None"),
        (None, ONES, "the result is a None; expected a plain torch.Tensor"),
        (torch.nn.Parameter(ONES), ONES, "expected a plain torch.Tensor"),
        (Path("x"), ONES, "PosixPath cannot be handed over"),
        (ONES.to_sparse(), ONES, "its layout is torch.sparse_coo"),
    ],
)
def test_a_result_of_another_make_is_noted(result: object, expected: object, told: str, buffer: FileBuffer) -> None:
    assert told in note(buffer, result, expected)


def test_what_the_reference_leaves_infinite_may_be_infinite(buffer: FileBuffer) -> None:
    assert note(buffer, ONES / 0, ONES / 0) == ""


def test_trees_arrive_as_they_were(buffer: FileBuffer) -> None:
    tree = {"a": ONES, "n": [float("nan"), float("inf"), -3, True, "text", None], "t": (ONES.T, torch.tensor(5))}
    found, lacking = payload.read_tree(buffer, payload.write_output(buffer, 64, tree, 1 << 20), 1 << 20)
    assert lacking == ""
    assert list(found) == ["a", "n", "t"]
    assert repr(found["n"]) == repr(tree["n"])
    assert torch.equal(found["t"][0], ONES.T)


def test_a_declared_tree_costs_no_more_than_it_may(buffer: FileBuffer) -> None:
    """What a candidate rank declares is somebody's word: too much, too deep, too many parts, keys that do not fit."""
    one = payload.write_output(buffer, 0, ONES, 1 << 20)
    tree = payload.write_output(buffer, 0, [ONES], 1 << 20)
    nested = tree
    for _ in range(payload.MAX_DEPTH + 1):
        nested = dataclasses.replace(tree, items=(nested,))
    lies = [
        (dataclasses.replace(tree, items=(one,) * 50), 49 * one.nbytes),
        (dataclasses.replace(tree, items=(one,) * output_bounds.MAX_PARTS), 1 << 20),
        (nested, 1 << 20),
        (dataclasses.replace(tree, kind="dict", keys=("a", "b")), 1 << 20),
        (dataclasses.replace(tree, items=(dataclasses.replace(one, nbytes=-8),)), 1 << 20),
        (dataclasses.replace(tree, items=(dataclasses.replace(one, kind="int"),)), 1 << 20),
        (dataclasses.replace(tree, items=(dataclasses.replace(one, kind="os.system", dtype=""),)), 1 << 20),
    ]
    for output, most in lies:
        found, lacking = payload.read_tree(buffer, output, most)
        assert found is None
        assert lacking


def test_inputs_keep_their_layout_and_copies_are_copies(buffer: FileBuffer) -> None:
    wide = torch.randn(2, 3, 4).permute(2, 0, 1)
    made = payload.write_input(buffer, 0, (wide, torch.empty(0), ONES.expand(5, 2, 3)))
    for found in (
        payload.read_input(LoadedFile(buffer.fd), made),
        payload.copied((wide, torch.empty(0), ONES.expand(5, 2, 3))),
    ):
        assert found[0].stride() == wide.stride()
        assert torch.equal(found[0], wide)
        assert found[1].numel() == 0
        assert torch.equal(found[2], ONES.expand(5, 2, 3))
        found[0].zero_()
        assert wide.any()


def test_a_slow_check_is_asked_once_of_one_output_for_one_input(monkeypatch: pytest.MonkeyPatch) -> None:
    trusted = FolderTrusted.__new__(FolderTrusted)
    trusted.order = SimpleNamespace(world_size=1)  # type: ignore[assignment]
    trusted.made, trusted.is_slow, trusted.known_verdict = [torch.zeros(2), torch.ones(2)], True, None
    asked = []

    def check(data: Any, output: Any) -> str:
        asked.append(output.clone())
        output.zero_()  # it may
        return "" if float(asked[-1][0]) == 1 else "wrong"

    trusted.reference = SimpleNamespace(check_implementation=check)
    monkeypatch.setattr(folder_trusted, "SLOW_S", -1.0)
    right = [trusted.checked(index, torch.ones(2)).passed for index in (0, 0, 1, 1, 0)]
    assert (right, len(asked)) == ([True] * 5, 3), "by input"
    wrong = [trusted.checked(0, torch.full((2,), value)).message for value in (3.0, 3.0, 4.0)]
    assert (wrong, len(asked)) == (["wrong"] * 3, 5), "by output"
    trusted.order = SimpleNamespace(world_size=2)  # type: ignore[assignment]
    assert trusted.checked(0, torch.full((2,), 4.0)).message == "wrong"
    assert len(asked) == 6, "it may be collective"
    monkeypatch.setattr(folder_trusted, "SLOW_S", 60.0)
    trusted.order = SimpleNamespace(world_size=1)  # type: ignore[assignment]
    for _ in range(2):
        trusted.checked(1, torch.ones(2))
    assert trusted.known_verdict is None
    assert len(asked) == 8, "a quick one is asked again"


def test_equal_results_have_equal_digests() -> None:
    base = {"a": (torch.arange(6.0).reshape(2, 3), 1), "b": [None, "x", 2.5]}
    other = [
        {"a": (torch.arange(6.0).reshape(3, 2), 1), "b": [None, "x", 2.5]},
        {"a": (torch.arange(6).reshape(2, 3), 1), "b": [None, "x", 2.5]},
        {"a": (torch.arange(6.0).reshape(2, 3) + 1, 1), "b": [None, "x", 2.5]},
        {"a": (torch.arange(6.0).reshape(3, 2).T, 1), "b": [None, "x", 2.5]},
        {"a": [torch.arange(6.0).reshape(2, 3), 1], "b": [None, "x", 2.5]},
        {"a": (torch.arange(6.0).reshape(2, 3), True), "b": [None, "x", 2.5]},
        {"c": (torch.arange(6.0).reshape(2, 3), 1), "b": [None, "x", 2.5]},
    ]
    assert payload.digest(base) == payload.digest(payload.copied(base)) != ""
    assert len({payload.digest(one) for one in (base, *other)}) == 1 + len(other)
    large = torch.zeros((), dtype=torch.uint8).expand((256 << 20) + 1)
    assert [payload.digest(one) for one in (object(), large)] == ["", ""]


@pytest.mark.parametrize(
    ("said", "passed", "message"),
    [
        ((True, ""), True, ""),
        ((False, "off"), False, "off"),
        ((True,), True, ""),
        ("", True, ""),
        ("off", False, "off"),
        (None, True, ""),
        (True, True, ""),
        (False, False, "check_implementation says that it is wrong, and not why"),
        ((torch.tensor(False), ["a"]), False, "['a']"),
    ],
)
def test_a_check_says_it_with_a_pair_or_a_text(said: object, passed: bool, message: str) -> None:
    found = folder_check.checked(lambda: said)
    assert (found.passed, found.message) == (passed, message)


def test_a_check_that_returns_an_empty_tuple_is_the_folders_mistake() -> None:
    with pytest.raises(ValueError, match=r"check_implementation returned \(\); it must return \(right, message\)"):
        folder_check.checked(tuple)


def test_a_check_that_raises_finds_it_wrong() -> None:
    found = folder_check.checked(lambda: torch.ones(2) + torch.ones(3))
    assert not found.passed
    assert found.message.startswith("check_implementation raised RuntimeError: ")


# ---- the first lines of a submission --------------------------------------------------------------------------------


def test_the_first_comment_of_a_submission_says_what_it_is_for() -> None:
    found = directives("#!POPCORN leaderboard amd-gemm-rs\n# a word\n#!POPCORN gpu MI300 L4\n\n#!POPCORN gpus B200\n")
    assert (found.leaderboard, found.gpus) == ("amd-gemm-rs", ("MI300", "L4"))
    assert directives("import torch\n#!POPCORN leaderboard x\n").leaderboard is None


@pytest.mark.parametrize("line", ["leaderboard", "", "gpus", "boards x", "leaderboard a\n#!POPCORN leaderboard b"])
def test_a_bad_line_is_told(line: str) -> None:
    with pytest.raises(BadSubmissionError, match=r"x.py:\d: "):
        directives(f"#!POPCORN {line}\n", "x.py")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("def custom_kernel(data): ...\n", "for which problem? Name it (`python -m harness eval a2a"),
        ("#!POPCORN leaderboard amd-all2al\n", "its `#!POPCORN leaderboard` line: no problem 'amd-all2al'; did you"),
        ("#!POPCORN leader x\n", "x.py:1: expected `#!POPCORN leaderboard NAME`"),
    ],
)  # fmt: skip
def test_a_submission_that_names_no_problem_is_asked_for_one(
    source: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.py").write_text(source)
    with pytest.raises(SystemExit) as ended:
        main(["eval", str(tmp_path / "x.py")])
    assert ended.value.code in (2, 112)
    assert told in capsys.readouterr().err


def test_a_submission_chooses_its_problem_and_lacking_gpus_are_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = "#!POPCORN leaderboard amd-gemm-rs\n#!POPCORN gpus MI300 B200\n"
    (tmp_path / "x.py").write_text(f"{header}from reference import ref_kernel as custom_kernel\n")
    with pytest.raises(SystemExit) as ended:
        main(["check", str(tmp_path / "x.py"), "--suite", "quick", "--ranks", "2", "--device", "cpu"])
    shown = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0
    assert shown.startswith("gemm_rs ")
    assert "the submission is for" in shown  # no machine has both


@pytest.mark.parametrize(("named", "warned"), [("amd-ag-gemm", True), ("amd-gemm-rs", False), ("GEMM_RS", False)])
def test_a_file_that_says_that_it_is_for_another_problem_is_evaluated_with_a_warning(
    named: str, warned: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.py").write_text(
        f"#!POPCORN leaderboard {named}\nfrom reference import ref_kernel as custom_kernel\n"
    )
    with pytest.raises(SystemExit) as ended:
        main(["check", "gemm_rs", str(tmp_path / "x.py"), "--suite", "quick", "--ranks", "2", "--device", "cpu"])
    assert ended.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert (f"names {named}; it was evaluated as gemm_rs" in shown) == warned


def test_roofline_says_that_a_folder_has_no_cost(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["roofline", str(SCALE), "--hardware", "h200"])
    assert ended.value.code == 2
    assert "single/scale does not say what a call costs" in capsys.readouterr().err


# ---- submissions that compile ---------------------------------------------------------------------------------------

COMPILES = """\
from reference import ref_kernel
from torch.utils.cpp_extension import load_inline

SOURCE = '''
#include <Python.h>
static PyObject* three(PyObject* self, PyObject* none) { return PyLong_FromLong(3); }
static PyMethodDef methods[] = {{"three", three, METH_NOARGS, ""}, {0, 0, 0, 0}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "tiny", "", -1, methods};
PyMODINIT_FUNC PyInit_tiny() { return PyModule_Create(&module); }
'''
tiny = load_inline(name="tiny", cpp_sources=SOURCE, no_implicit_headers=True)
assert tiny.three() == 3


def custom_kernel(data):
    return ref_kernel(data)
"""
needs_compiler = pytest.mark.skipif(
    not shutil.which("g++") or not (shutil.which("ninja") or (Path(sys.executable).parent / "ninja").exists()),
    reason="needs g++ and ninja",
)


@needs_compiler
def test_what_an_import_compiles_is_compiled_once_and_kept(ran: Evaluate) -> None:
    """By rank 0, in a phase of its own, with its log; the other ranks and the next run find it. A lock that a killed
    run has left does not stop the next."""
    name = f"compiles-{os.getpid()}"
    cache = compile_cache.folder(read(SCALE, Checkout.here()).root, name)
    assert cache is not None
    submission = dataclasses.replace(submission_of(COMPILES), sha256=name)
    try:
        report = ran(FOLDERS / "multi" / "rowsum", submission)
        assert verdict.status(report) == "pass", report.results
        assert "compile" in report.phases_s
        assert "-DTORCH_EXTENSION_NAME=tiny" in report.logs["compile"]
        (cache / "extensions" / "tiny" / "lock").touch()
        built_ns = (cache / "extensions" / "tiny" / "tiny.so").stat().st_mtime_ns
        again = ran(FOLDERS / "multi" / "rowsum", submission)
        assert verdict.status(again) == "pass", again.results
        assert (cache / "extensions" / "tiny" / "tiny.so").stat().st_mtime_ns == built_ns
    finally:
        shutil.rmtree(cache)
        cache.with_name(f"{name}.lock").unlink()


@needs_compiler
def test_what_does_not_compile_is_shown_with_the_compilers_words(ran: Evaluate) -> None:
    name = f"broken-{os.getpid()}"
    cache = compile_cache.folder(read(SCALE, Checkout.here()).root, name)
    assert cache is not None
    broken = submission_of(COMPILES.replace("PyLong_FromLong(3)", "no_such_name(3)"))
    try:
        report = ran(FOLDERS / "multi" / "rowsum", dataclasses.replace(broken, sha256=name))
    finally:
        shutil.rmtree(cache)
        cache.with_name(f"{name}.lock").unlink()
    outcome = report.results[0].outcome
    assert isinstance(outcome, Raised)
    assert outcome.rank == 0
    assert "no_such_name" in report.logs["compile"]


def test_only_what_seems_to_compile_has_that_phase() -> None:
    assert compile_cache.compiles(submission_of(COMPILES))
    assert not compile_cache.compiles(submission_of("import torch\n"))


def test_a_lock_is_left_alone_while_another_run_is_there(tmp_path: Path) -> None:
    lock = tmp_path / "cache" / "extensions" / "tiny" / "lock"
    lock.parent.mkdir(parents=True)
    with compile_cache.held(tmp_path / "cache"):
        lock.touch()
        with compile_cache.held(tmp_path / "cache"):
            assert lock.exists()
    with compile_cache.held(tmp_path / "cache"):
        assert not lock.exists()


def test_no_lock_is_removed_through_a_link(tmp_path: Path) -> None:
    """A submission can write to its cache, the parent must not follow it out."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "lock").touch()
    (tmp_path / "cache" / "extensions").mkdir(parents=True)
    (tmp_path / "cache" / "extensions" / "tiny").symlink_to(tmp_path / "elsewhere")
    with compile_cache.held(tmp_path / "cache"):
        assert (tmp_path / "elsewhere" / "lock").exists()


def test_the_case_has_the_published_seed_and_later_calls_have_none_that_is_known(ran: Evaluate) -> None:
    """A kernel that knows its answer for the published seed is found out by the second call of the same case."""
    case = read(SCALE, Checkout.here()).suite("official").tests[0]
    source = (
        "from reference import generate_input, ref_kernel\n"
        f"KNOWN = {{n: generate_input(n, s) for n, s in [({case.params['size']}, {case.seed}), (64, 12)]}}\n"
        "def custom_kernel(data):\n"
        "    return ref_kernel(KNOWN[data.numel()])\n"
    )
    report = ran(SCALE, source)
    messages = [result.outcome.message for result in report.results if isinstance(result.outcome, Wrong)]
    assert len(messages) == 2
    assert all(result.verdicts is not None and result.verdicts.gpumode.passed for result in report.results)
