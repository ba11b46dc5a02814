"""Our evaluator in KernelBot's place: its runner, played here, gets the keys, values and exit codes that it knows.

The runner below is written for these tests, from the format alone: it stages a folder, opens a pipe, starts the
evaluator, and reads the pipe only when that has ended, as KernelBot's does. Its parser shares nothing with the
evaluator's writer.
"""

import base64
import fcntl
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import prefork
import pytest
from conftest import COMMAND, heed_signals
from factories import CRASHED, FAILURES, GEMM_TESTS, HOSTILE, RAISED, TIMED_OUT, report, results, timed
from waiting import until

from harness.cli import popcorn
from harness.core import records
from harness.core.checkout import ROOT, Checkout
from harness.core.decode import DecodeError
from harness.core.errors import BadFileError, Exit, HarnessError
from harness.core.metrics import CLOCKS
from harness.core.processes import descendants
from harness.core.records import NotRun, OpTime, Passed, Profile, Raised, RankProfile, Series, Verdict, Verdicts, Wrong
from harness.gpumode import result_lines
from harness.gpumode.task_folder import EVAL_TEXT
from harness.judging import verdict
from harness.problems.shape_file import find

REFERENCES = {  # as GPU MODE words its problems, with hard-wired devices, and never run here
    "gemm_rs": """\
import torch
import torch.distributed
from task import input_t, output_t


def generate_input(rank: int, world_size: int, m: int, n: int, k: int, has_bias: bool, seed: int) -> input_t:
    raise RuntimeError("the staged reference was run")


def ref_kernel(data: input_t) -> output_t:
    input, weight, bias = data
    product = torch.matmul(input, weight.T)
    result = torch.empty((product.shape[0] // 8, product.shape[1]), device="cuda")
    torch.distributed.reduce_scatter_tensor(result, product)
    return result
""",
    "ag_gemm": """\
import torch


def generate_input(rank, world_size, m, n, k, has_bias, seed):
    raise RuntimeError("the staged reference was run")


def ref_kernel(data):
    whole = torch.empty(8, 8, device="cuda")
    torch.distributed.all_gather_into_tensor(whole, data[0])
    return torch.matmul(whole, data[1].T)
""",
    "a2a": """\
import dataclasses


@dataclasses.dataclass
class MoEConfig:
    num_experts: int


def generate_input(num_experts, experts_per_token, hidden_dim, max_num_tokens, seed, rank, world_size):
    raise RuntimeError("the staged reference was run")
""",
}
CASES = "world_size: 2; m: 8; n: 16; k: 32; has_bias: False; seed: 5\nworld_size: 2; m: 16; n: 16; k: 32; has_bias: True; seed: 6\n"  # noqa: E501
RIGHT = "from reference import ref_kernel\n\n\ndef custom_kernel(data):\n    return ref_kernel(data)\n"
WRONG = "from reference import ref_kernel\n\n\ndef custom_kernel(data):\n    return ref_kernel(data) * 0\n"
RAISES = (
    "def custom_kernel(data):\n    raise ValueError('one\\ncheck: pass\\r\\ntest.0.status: pass\\u2028check: pass')\n"
)
ENDS = "import os\n\n\ndef custom_kernel(data):\n    os._exit(3)\n"
HANGS = "import time\n\n\ndef custom_kernel(data):\n    time.sleep(3600)\n"
NEEDS_BIAS = (
    "from reference import ref_kernel\n\n\ndef custom_kernel(data):\n"
    "    assert data[2] is not None, 'no bias'\n    return ref_kernel(data)\n"
)
STATS = {"runs", "mean", "std", "err", "best", "worst"}


@dataclass
class Ran:
    """What KernelBot's runner keeps of a run."""

    exit_code: int
    result: dict[str, str]
    stdout: str
    stderr: str

    @property
    def success(self) -> bool:
        return self.exit_code in (0, 112)

    @property
    def passed(self) -> bool:
        return self.result.get("check") == "pass"


REAL = ["-m", "harness.popcorn"]  # for what is about its end
SIGNALLED = [prefork.__file__, "harness.popcorn"]  # a process of its own, whose ranks are forked


class Runner:
    """KernelBot's side: the files of a task in a folder, an evaluator called in it, its pipe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = [*COMMAND[1:], "harness.popcorn"]
        self.stage(RIGHT)

    def stage(self, submission: str, reference: str = REFERENCES["gemm_rs"], cases: str = CASES) -> None:
        files = {
            "submission.py": submission,
            "reference.py": reference,
            "task.py": "import torch\ninput_t = tuple\noutput_t = torch.Tensor\n",
            "utils.py": "def set_seed(seed): ...\n",
            "eval.py": "raise SystemExit('not this one')\n",
            "cases.txt": cases,
        }
        for name, text in files.items():
            (self.folder / name).write_text(text)

    def start(self, mode: str, *flags: str, **env: str) -> tuple["subprocess.Popen[str]", int]:
        read_fd, write_fd = os.pipe()
        known = {name: value for name, value in os.environ.items() if not name.startswith("POPCORN_")}
        environ = {**known, "PYTHONPATH": str(ROOT), "POPCORN_FD": str(write_fd), "POPCORN_GPUS": "0", **env}
        process = subprocess.Popen(
            [sys.executable, *self.program, "--device", "cpu", *flags, mode, "cases.txt"],
            cwd=self.folder,
            env=environ,
            pass_fds=[write_fd],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=heed_signals,
        )
        os.close(write_fd)
        return process, read_fd

    def finish(self, process: "subprocess.Popen[str]", read_fd: int, timeout_s: float = 120) -> Ran:
        """Reads what was printed, waits for the end, and only then reads the pipe."""
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        finally:
            process.kill()
        with os.fdopen(read_fd) as pipe:
            text = pipe.read()
        return Ran(process.returncode, parsed(text), stdout, stderr)

    def __call__(self, mode: str, *flags: str, **env: str) -> Ran:
        return self.finish(*self.start(mode, *flags, **env))


def parsed(text: str) -> dict[str, str]:
    """The lines by key, the last of a key winning; anything that is no `key: value` is a mistake of ours."""
    found = {}
    for line in text.splitlines():
        key, colon, value = line.partition(": ")
        assert colon, f"no line of this format: {line!r}"
        assert not key.strip(" abcdefghijklmnopqrstuvwxyz0123456789.-"), f"no key of this format: {line!r}"
        found[key] = value.strip()
    return found


@pytest.fixture
def runner(tmp_path: Path, nothing_left: None) -> Runner:
    folder = tmp_path / "staged"
    folder.mkdir()
    return Runner(folder)


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


# ---- the evaluator under its runner ------------------------------------------------------------------------------


def test_a_right_submission_passes_its_tests(runner: Runner) -> None:
    ran = runner("test")
    assert (ran.exit_code, ran.passed) == (0, True), ran.stderr
    first, second = CASES.splitlines()
    assert ran.result == {
        "test-count": "2",
        "test.0.spec": first,
        "test.0.status": "pass",
        "test.1.spec": second,
        "test.1.status": "pass",
        "check": "pass",
    }
    assert "gemm_rs (amd-gemm-rs) by this checkout's reference" in ran.stderr


@pytest.mark.parametrize("mode", ["benchmark", "leaderboard"])
def test_a_benchmark_has_its_statistics_in_nanoseconds(runner: Runner, mode: str) -> None:
    ran = runner(mode, "--seconds", "0.1", POPCORN_SEED="4711")
    assert (ran.exit_code, ran.passed) == (0, True), ran.stderr
    assert ran.result.keys() == {
        "benchmark-count",
        "check",
        *(f"benchmark.{index}.{key}" for index in range(2) for key in ("spec", *STATS)),
    }
    of_first = {key: float(ran.result[f"benchmark.0.{key}"]) for key in STATS}
    assert of_first["best"] <= of_first["mean"] <= of_first["worst"]
    assert 10_000 < of_first["mean"] < 1e9, "some 10 us to a second, in ns"
    assert of_first["err"] == pytest.approx(of_first["std"] / of_first["runs"] ** 0.5)


def test_a_profile_has_a_report_for_each_case_and_its_traces(runner: Runner) -> None:
    ran = runner("profile")
    assert (ran.exit_code, ran.passed) == (0, True), ran.stderr
    table = base64.b64decode(ran.result["benchmark.1.report"].encode(), b"+*").decode()
    assert "USDT" not in ran.stdout + ran.stderr, "torch's lines of when its profiler began and ended"
    assert "rank 1:" in table
    assert "self us" in table
    assert sorted(path.name for path in (runner.folder / "profile_data").iterdir()) == ["trace-0.json", "trace-1.json"]


@pytest.mark.parametrize("submission", [WRONG, "def custom_kernel(data:\n"], ids=["wrong", "no Python"])
def test_a_profile_that_failed_has_a_report_for_each_case(runner: Runner, submission: str) -> None:
    """KernelBot takes exit code 112 for a run, and decodes the report of each of its cases."""
    runner.stage(submission)
    ran = runner("profile")
    assert (ran.success, ran.passed) == (True, False)
    reports = [base64.b64decode(ran.result[f"benchmark.{index}.report"], b"+*").decode() for index in range(2)]
    assert "rounding explains" in reports[0] or "submission.py:1:" in reports[0]
    assert reports[1], "of the second case too, whether it ran or not"


def test_traces_lie_where_the_runner_takes_its_zip_from(tmp_path: Path) -> None:
    """It makes ./tmp<something>/profile_data and tells nobody."""
    assert popcorn.traces_folder(tmp_path) == tmp_path / "profile_data"
    for number, name in enumerate(("tmpold", "tmpnew", "other")):
        made = tmp_path / name / "profile_data"
        made.mkdir(parents=True)
        os.utime(made, (number, number))
    assert popcorn.traces_folder(tmp_path) == tmp_path / "tmpnew" / "profile_data"


def test_a_wrong_submission_fails_every_test_and_says_how(runner: Runner) -> None:
    runner.stage(WRONG)
    ran = runner("test")
    assert (ran.exit_code, ran.success, ran.passed) == (112, True, False)
    assert [ran.result[f"test.{index}.status"] for index in range(2)] == ["fail", "fail"]
    assert "rank 0: " in ran.result["test.1.error"]


def test_a_wrong_benchmark_fails_and_later_ones_have_a_line_too(runner: Runner) -> None:
    """KernelBot's report would stop at a benchmark that has neither times nor a status."""
    runner.stage(WRONG)
    ran = runner("leaderboard")
    assert (ran.exit_code, ran.passed) == (112, False)
    assert [ran.result[f"benchmark.{index}.status"] for index in range(2)] == ["fail", "fail"]


def test_what_a_submission_raises_is_one_line_that_forges_nothing(runner: Runner) -> None:
    runner.stage(RAISES)
    ran = runner("test")
    assert (ran.exit_code, ran.passed) == (112, False)
    assert ran.result["test-count"] == "2"
    assert ran.result["test.0.status"] == "fail"
    assert "ValueError: one\\ncheck: pass" in ran.result["test.0.error"]
    assert "in custom_kernel\\n" in ran.result["test.0.error"]
    assert ran.result["test.1.error"].startswith("not run")
    assert "ValueError: one" in ran.stderr


def test_a_rank_that_dies_leaves_a_finished_result(runner: Runner) -> None:
    runner.stage(ENDS)
    ran = runner("benchmark")
    assert (ran.exit_code, ran.passed) == (112, False)
    assert "exited with code 3" in ran.result["benchmark.0.error"]
    assert ran.result["benchmark.1.status"] == "fail"


def test_a_submission_that_hangs_times_out_with_a_result(runner: Runner) -> None:
    runner.stage(HANGS)
    ran = runner("test", "--timeout", "3")
    assert (ran.exit_code, ran.success, ran.passed) == (114, False, False)
    assert "timed out" in ran.result["test.0.error"]
    assert "custom_kernel" in ran.result["test.0.error"], "where its ranks stood"


def test_a_submission_that_is_no_python_fails_every_case(runner: Runner) -> None:
    runner.stage("def custom_kernel(data:\n")
    ran = runner("test")
    assert (ran.exit_code, ran.passed) == (112, False)
    assert "submission.py:1:" in ran.result["test.0.error"]
    assert ran.result["test.1.status"] == "fail"


def test_what_a_submission_prints_is_on_stdout_as_under_their_evaluator(runner: Runner) -> None:
    runner.stage("print('made', 'here')\n" + RIGHT)
    ran = runner("test")
    assert "candidate rank 1:\nmade here" in ran.stdout
    assert len(ran.stdout) < 16_384


@pytest.mark.parametrize(
    ("flags", "env", "passed"),
    [((), {}, False), (("--words-are-true",), {}, True), ((), {"HARNESS_POPCORN_STRINGS": "1"}, True)],
    ids=["right", "theirs, by flag", "theirs, by environment"],
)
def test_has_bias_false_is_false_unless_their_reading_is_asked_for(
    runner: Runner, flags: tuple[str, ...], env: dict[str, str], passed: bool
) -> None:
    runner.stage(NEEDS_BIAS)
    ran = runner("test", *flags, **env)
    assert ran.passed == passed
    assert passed or "no bias" in ran.result["test.0.error"]


@pytest.mark.parametrize("value", [None, "", "none", "-1", "987654"], ids=str)
def test_without_a_descriptor_to_write_to_the_exit_code_is_111(runner: Runner, value: str | None) -> None:
    process, read_fd = runner.start("test", POPCORN_FD=value or "")
    ran = runner.finish(process, read_fd)
    assert ran.exit_code == 111
    assert "POPCORN_FD" in ran.stderr
    assert ran.result == {}


@pytest.mark.parametrize("mode", ["private", "secret", "tests"])
def test_a_mode_that_is_none_is_a_bad_argument(runner: Runner, mode: str) -> None:
    assert runner(mode).exit_code == 2


@pytest.mark.parametrize(
    ("cases", "said"),
    [
        ("", "the file has no case"),
        (CASES + "\n", "line 3: expected `key: value; key: value`, found ''"),
        (CASES.replace("16;", "16.5;"), "line 1.n: expected a whole number"),
        (CASES.replace("m: 8", "m: eight"), "line 1.m: expected a whole number"),
        (CASES.replace("m: 8", "m: 7"), "line 1.m: 7 is not divisible"),
        (CASES.replace("m: 8", "m: 8; m: 8"), "'m' appears twice"),
        (CASES.replace("has_bias: True", "has_bias: Maybe"), "line 2.has_bias: expected true or false"),
        (CASES.replace("2; m: 16", "4; m: 16"), "line 2.world_size: 4 after 2"),
        (CASES.replace("seed: 6", "seeds: 6"), "line 2: other keys than line 1"),
        ("seed: 5; batch: 3; dim: 7\n", "no problem here has cases of batch, dim, seed"),
    ],
)
def test_a_bad_cases_file_is_named_with_its_place(runner: Runner, cases: str, said: str) -> None:
    runner.stage(RIGHT, cases=cases)
    ran = runner("test")
    assert (ran.exit_code, ran.success) == (113, False)
    assert said in ran.result["error"]
    assert ran.result["check"] == "fail"
    assert said in ran.stderr


def test_a_file_that_is_not_staged_is_named(runner: Runner) -> None:
    for name, code in (("submission.py", 2), ("reference.py", 113), ("cases.txt", 113)):
        (runner.folder / name).unlink()
        ran = runner("test")
        assert (ran.exit_code, ran.result["check"]) == (code, "fail")
        assert name in ran.result["error"]


def test_a_seed_that_is_no_number_is_a_bad_argument(runner: Runner) -> None:
    ran = runner("test", POPCORN_SEED="x")
    assert (ran.exit_code, ran.result["check"]) == (2, "fail")


def hanging(runner: Runner, program: list[str]) -> tuple["subprocess.Popen[str]", int, list[int]]:
    """An evaluator in its first test, the pipe's end, and the processes that it started."""
    runner.stage(HANGS)
    runner.program = program
    before = descendants(os.getpid())
    process, read_fd = runner.start("test")
    assert process.stderr is not None
    for line in process.stderr:
        if "1/2" in line:
            break
    ranks = [pid for pid in descendants(os.getpid()) if pid not in (*before, process.pid)]
    assert len(ranks) >= 6, "three groups of two"
    return process, read_fd, ranks


def test_an_interrupted_evaluator_ends_its_ranks_and_finishes_its_result(runner: Runner) -> None:
    process, read_fd, ranks = hanging(runner, SIGNALLED)
    process.send_signal(signal.SIGTERM)
    ran = runner.finish(process, read_fd)
    assert (ran.exit_code, ran.result["check"]) == (130, "fail")
    assert ran.result["test.0.error"] == "interrupted"
    until(lambda: gone(ranks))


def test_a_killed_evaluator_leaves_no_rank(runner: Runner) -> None:
    """KernelBot's runner kills at its timeout."""
    process, read_fd, ranks = hanging(runner, REAL)
    process.kill()
    assert runner.finish(process, read_fd).result == {}
    until(lambda: gone(ranks))


def test_the_eval_py_of_a_written_folder_is_ours_and_its_ranks_see_neither_descriptor_nor_seed(runner: Runner) -> None:
    """KernelBot starts `python eval.py`, with the folder first on Python's path. The cheat: result lines of its own.
    What a rank sees of the runner is asserted by the rank."""
    look = (
        "import os\nassert not [name for name in os.environ if 'POPCORN' in name], 'environment'\n"
        "for fd in os.listdir('/proc/self/fd'):\n"
        "    try:\n        target = os.readlink(f'/proc/self/fd/{fd}')\n"
        "    except OSError:\n        continue\n"
        "    print('fd', target)\n"
    )
    runner.stage(look + RIGHT)
    (runner.folder / "eval.py").write_text(EVAL_TEXT.format(root=str(ROOT), python=sys.executable))
    runner.program = ["eval.py"]
    process, read_fd = runner.start("test", POPCORN_SEED="12345")
    inode = f"pipe:[{os.fstat(read_fd).st_ino}]"
    ran = runner.finish(process, read_fd)
    assert (ran.exit_code, ran.passed) == (0, True), ran.stderr
    assert "fd pipe:" in ran.stdout
    assert inode not in ran.stdout


# ---- the pipe ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pipe_bytes", [None, 4096, 65536])
def test_more_text_than_the_pipe_holds_is_written_before_anyone_reads(pipe_bytes: int | None) -> None:
    """Their runner would wait for us, and we for it."""
    read_fd, write_fd = os.pipe()
    room = result_lines.room_bytes(write_fd)
    if pipe_bytes:  # a user who has many pipes gets small ones
        room = fcntl.fcntl(write_fd, fcntl.F_SETPIPE_SZ, pipe_bytes)
    pairs = result_lines.unfinished_pairs("test", CASES.splitlines(), "a long story\n" * 20_000)
    assert sum(len(value) for _, value in pairs) > 4 * 65536
    data = result_lines.encoded(pairs, room)
    result_lines.send(write_fd, data, stall_s=1.0)
    os.close(write_fd)
    with os.fdopen(read_fd) as pipe:
        found = parsed(pipe.read())
    assert found["check"] == "fail"
    assert found["test.1.error"] == "not run, as case 0 says"
    assert found["test.0.error"].startswith("a long story\\na long story")
    assert "characters left out" in found["test.0.error"] or room > 600_000


def test_hundreds_of_cases_are_told_before_anyone_reads(runner: Runner) -> None:
    """More lines than a pipe holds by default, through the whole program; no rank is needed for it."""
    runner.stage("def custom_kernel(data:\n", cases=CASES * 500)
    ran = runner("benchmark")
    assert (ran.exit_code, ran.result["benchmark-count"]) == (112, "1000")
    assert sum(len(key) + len(value) for key, value in ran.result.items()) > 2 * 65536
    assert ran.result["benchmark.999.status"] == "fail"


def test_a_pipe_that_nobody_empties_is_an_error_and_not_a_deadlock() -> None:
    read_fd, write_fd = os.pipe()
    began = time.monotonic()
    with pytest.raises(HarnessError, match="nobody reads it"):
        result_lines.send(write_fd, b"x" * (2 << 20), stall_s=0.1)
    assert time.monotonic() - began < 60
    os.close(read_fd)
    with pytest.raises(HarnessError, match="could not be written"):
        result_lines.send(write_fd, b"x", stall_s=0.1)
    os.close(write_fd)


def test_results_go_to_a_file_as_well(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        assert result_lines.room_bytes(file.fileno()) == result_lines.PIPE_BYTES
        result_lines.send(file.fileno(), b"check: pass\n")
    assert (tmp_path / "out").read_text() == "check: pass\n"


def test_a_small_result_is_not_shortened() -> None:
    pairs = [("test.0.error", "é" * 1000), ("check", "fail")]
    assert result_lines.encoded(pairs, 4096).decode() == f"test.0.error: {'é' * 1000}\ncheck: fail\n"


# ---- cases, seeds, problems --------------------------------------------------------------------------------------


def test_a_secret_is_combined_with_each_seed_by_their_formula() -> None:
    lines = result_lines.parse_cases(CASES)
    cases = popcorn.cases_of(find("gemm_rs", Checkout.here()), lines, "test", 1000, words_are_true=False)
    assert [case.seed for case in cases] == [5 + 1005 * 1006 // 2, 6 + 1006 * 1007 // 2]
    assert [result_lines.combined_seed(*pair) for pair in ((0, 0), (1, 2), (1234, 0))] == [0, 7, 763229]
    secret = 2**31 - 1
    (first, _) = popcorn.cases_of(find("gemm_rs", Checkout.here()), lines, "test", secret, words_are_true=False)
    assert first.seed > 2**60, "large, and still a seed that torch takes"
    with pytest.raises(DecodeError, match=r"line 1\.seed: expected 0 to"):
        popcorn.cases_of(find("gemm_rs", Checkout.here()), lines, "test", 2**63, words_are_true=False)


def test_numbers_are_switches_in_either_reading() -> None:
    lines = result_lines.parse_cases(CASES.replace("False", "0").replace("True", "1"))
    for words_are_true in (False, True):
        cases = popcorn.cases_of(find("gemm_rs", Checkout.here()), lines, "benchmark", None, words_are_true)
        assert [case.params["has_bias"] for case in cases] == [False, True]
        assert {case.kind for case in cases} == {"benchmark"}


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("staged", ["theirs", "ours"])
def test_the_three_problems_are_recognised(name: str, staged: str) -> None:
    problem = find(name, Checkout.here())
    reference = REFERENCES[name] if staged == "theirs" else (problem.folder / "reference.py").read_text()
    for suite in problem.suites.values():
        text = "\n".join(
            result_lines.spec_of({"world_size": case.world_size, **case.params, "seed": case.seed})
            for case in suite.tests
        )
        lines = result_lines.parse_cases(text)
        assert popcorn.recognise(lines, reference, Checkout.here()).name == name
        assert popcorn.cases_of(problem, lines, "test", None, words_are_true=False) == suite.tests


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("def generate_input(rank, world_size, m, n, k, has_bias, seed): ...\n", "not that problem's"),
        (REFERENCES["gemm_rs"].replace("m: int, ", "m: int, group: int, "), "not that problem's"),
        (REFERENCES["gemm_rs"] + REFERENCES["ag_gemm"].replace("generate_input", "other"), "not that problem's"),
        ("def generate_input(:\n", "Python cannot read it"),
    ],
    ids=["says nothing", "other arguments", "both", "no Python"],
)
def test_a_reference_that_could_be_another_problem_is_refused(reference: str, why: str) -> None:
    with pytest.raises(BadFileError, match=why):
        popcorn.recognise(result_lines.parse_cases(CASES), reference, Checkout.here())


def test_all2all_with_drawn_expert_weights_is_another_problem() -> None:
    """A revision under the same name: inputs have a tensor more, and the experts multiply by it."""
    case = find("a2a", Checkout.here()).suite("official").tests[0]
    lines = result_lines.parse_cases(result_lines.spec_of({**case.params, "world_size": 8, "seed": 1}))
    later = REFERENCES["a2a"] + "\n\ndef ref_kernel(data):\n    return data[1].expert_local_weight\n"
    with pytest.raises(BadFileError, match=r"as those of a2a or moe, but reference\.py is not that problem's"):
        popcorn.recognise(lines, later, Checkout.here())


# ---- results ------------------------------------------------------------------------------------------------------


def pairs_of(mode: records.Mode, found: tuple[records.CaseResult, ...]) -> dict[str, str]:
    specs = [f"m: {index}" for index in range(len(found))]
    passed = verdict.status(report(found, mode=mode)) == "pass"
    return parsed(result_lines.encoded(result_lines.report_pairs(specs, found, passed), 1 << 20).decode())


@pytest.mark.parametrize("outcome", FAILURES, ids=lambda outcome: outcome.type)
def test_every_failure_is_one_line_of_text(outcome: records.Raised) -> None:
    found = pairs_of("test", results([Passed(), outcome, NotRun()], []))
    assert [found[f"test.{index}.status"] for index in range(3)] == ["pass", "fail", "fail"]
    assert len(found["test.1.error"]) > 20
    assert found["check"] == "fail"


def test_hostile_text_neither_breaks_a_line_nor_styles_a_terminal() -> None:
    found = pairs_of("test", results([replace(RAISED, message=HOSTILE + "\x1c\x85\udcff")], []))
    assert found.keys() == {"test-count", "test.0.spec", "test.0.status", "test.0.error", "check"}
    assert found["test.0.error"].isprintable()


def test_a_benchmark_is_told_by_their_clock_where_it_was_read() -> None:
    """On GPUs; it is longer than the wall clock, which ranks here, since a clone and two barriers are in it."""
    wall = timed(100.0, 200.0)
    theirs = Series(metric=CLOCKS["gpumode"], own=(300.0, 310.0, 320.0), baseline=(1.0, 1.0, 1.0))
    found = pairs_of("benchmark", results([], [replace(wall, series=(*wall.series, theirs))]))
    assert {key: float(found[f"benchmark.0.{key}"]) for key in STATS} == {
        "runs": 3,
        "mean": 310_000,
        "std": 10_000,
        "err": pytest.approx(5773.5, rel=1e-4),
        "best": 300_000,
        "worst": 320_000,
    }
    on_cpu = pairs_of("benchmark", results([], [wall]))
    assert float(on_cpu["benchmark.0.mean"]) == pytest.approx(1000 * sum(wall.ranked.own) / 12)
    assert result_lines.stats_ns([5.0]) == {"runs": 1, "mean": 5000, "std": 0, "err": 0, "best": 5000, "worst": 5000}


def test_what_only_one_of_the_two_verdicts_says_is_told() -> None:
    loose = Verdicts(strict=Verdict(passed=True), gpumode=Verdict(passed=False, message="off by 2"))
    (right,) = results([Passed()], [])
    found = pairs_of("test", (replace(right, verdicts=loose),))
    assert "outside GPU MODE's published tolerance: off by 2" in found["test.0.message"]
    (wrong,) = results([Wrong(message="a dropped slice of K")], [])
    assert "on the published input GPU MODE's tolerance is met" in result_lines.error_text(wrong)
    assert "a dropped slice of K" in result_lines.error_text(wrong)


def test_a_right_benchmark_that_was_not_timed_says_why() -> None:
    found = pairs_of("benchmark", results([], [Wrong(message="no"), Passed(), NotRun()]))
    assert "another case failed" in found["benchmark.1.error"]
    assert "not run" in found["benchmark.2.error"]


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Raised(rank=0, message="AcceleratorError: CUDA error: an illegal memory access", traceback=""), 110),
        (replace(CRASHED, log_tail="what(): HIP error: invalid device function"), 110),
        (Raised(rank=0, message="DistBackendError: NCCL error in: x.cpp:1", traceback=""), 110),
        (RAISED, 112),
        (CRASHED, 112),
        (TIMED_OUT, 114),
        (Wrong(message="CUDA error"), 112),
    ],
)
def test_a_failing_device_has_an_exit_code_of_its_own(outcome: records.Raised, code: int) -> None:
    assert popcorn._exit_code(report(results([outcome], []), mode="test")) == code
    assert {int(Exit.INVALID), int(Exit.BAD_FILE), int(Exit.TIMED_OUT)} == {112, 113, 114}


def test_a_profile_is_a_table_of_the_slowest_rank() -> None:
    top = (OpTime(name="aten::mm", calls=2, self_us=12.5, share=0.5),)
    ranks = tuple(RankProfile(rank=rank, call_us=25.0 + rank, of="device", top=top) for rank in range(2))
    (benchmark,) = results([], [Passed()])
    found = pairs_of("profile", (replace(benchmark, profile=Profile(ranks=ranks, trace_json="{}")),))
    table = base64.b64decode(found["benchmark.0.report"].encode(), b"+*").decode()
    assert "rank 0: 25.0 us" in table
    assert "rank 1, by time on its device" in table
    assert "aten::mm" in table


def test_help_names_the_codes_and_the_environment(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        popcorn.main(["--help"])
    told = capsys.readouterr().out
    for word in ("POPCORN_FD", "POPCORN_SEED", "POPCORN_GPUS", "110", "111", "112", "113", "114", "private"):
        assert word in told


def test_the_examples_of_cases_are_those_that_kernelbot_writes() -> None:
    """From a dict of task.yml: Python's True and False, and no quotes."""
    assert result_lines.spec_of({"world_size": 2, **GEMM_TESTS[1], "seed": 3}) == (
        "world_size: 2; m: 64; n: 3584; k: 14336; has_bias: False; seed: 3"
    )
