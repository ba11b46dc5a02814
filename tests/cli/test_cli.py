"""The command line as a user meets it: what passes is recorded, what is wrong is said, with its exit code."""

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import prefork
import pytest
import yaml
from conftest import COMMAND, heed_signals
from places import SINGLE
from waiting import until

from harness.board.leaderboard import SCHEMA
from harness.core.checkout import ROOT, Checkout
from harness.core.errors import Exit, UsageError
from harness.core.processes import descendants
from harness.machine import host
from harness.problems.shape_file import problem_names
from harness.process import sandbox

Harness = Callable[..., subprocess.CompletedProcess[str]]

ZEROS = "import torch\n\n\ndef custom_kernel(data):\n    return torch.zeros_like(data[1].x)\n"
SLEEPS = "import time\n\n\ndef custom_kernel(data):\n    time.sleep(3600)\n"
LONG = "a" * 300  # characters, which no file system takes for a name


def running(
    checkout: Path,
    *arguments: str,
    begin: Callable[[], object] = heed_signals,
    program: tuple[str, ...] = (prefork.__file__,),
) -> subprocess.Popen[str]:
    """An evaluation that has come as far as its first test; `begin` is what its process does first. Its ranks come
    from the tests' own server, unless `program` is the real one."""
    process = subprocess.Popen(
        [sys.executable, *program, "harness", *arguments],
        cwd=checkout,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=begin,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "1/2" in line:
            return process
    raise AssertionError("it ended before its first test")


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_an_evaluation_is_shown_recorded_and_archived(harness: Harness, checkout: Path) -> None:
    """Exit 0, a table, JSON with the agreed names, an entry, a report, the source kept."""
    few = ("--suite", "quick", "--ranks", "2", "--seconds", "0.05")
    result = harness("eval", "a2a", *few, "--json", "result.json", "--author", "ada")
    assert result.returncode == 0, result.stderr
    last = result.stdout.rstrip().splitlines()[-3:]
    assert [line.split()[0] for line in last] == ["verdict", "speedup", "place"]
    assert "1 of 1" in last[2]
    found = json.loads((checkout / "result.json").read_text())
    names = {
        "schema", "problem", "submission", "device", "world_size", "suite", "mode", "status", "exit_code", "cases",
        "figures", "empty_call_samples_us", "warnings", "environment", "phases_s", "confined",
    }  # fmt: skip
    assert names <= found.keys()
    assert (found["schema"], found["figures"]["score"]["unit"]) == (2, "s")
    assert all(found["figures"][name]["value"] > 0 for name in ("score", "ratio", "fraction"))
    low, high = found["figures"]["ratio"]["ci"]
    assert low <= found["figures"]["ratio"]["value"] <= high
    assert (found["status"], found["exit_code"], found["world_size"]) == ("pass", 0, 2)
    of_case = {
        "kind", "params", "label", "status", "error", "verdicts", "outcome", "figures", "bound", "profile",
    }  # fmt: skip
    assert all(of_case <= case.keys() for case in found["cases"])
    timed = [case for case in found["cases"] if case["kind"] == "benchmark"]
    assert all(case["verdicts"]["strict"]["passed"] for case in timed)
    assert all(len(case["outcome"]["series"][0]["own"]) >= 16 for case in timed)
    of_figures = {"metric", "value", "baseline", "spread", "ratio", "fraction"}
    assert all(case["figures"].keys() == of_figures and case["bound"]["value"] > 0 for case in timed)
    board = yaml.safe_load((checkout / "leaderboard.yaml").read_text())
    assert [(entry["author"], entry["run_id"]) for entry in board["entries"]] == [("ada", found["run_id"])]
    assert board["entries"][0]["score"]["value"] == pytest.approx(found["figures"]["score"]["value"], rel=1e-5)
    run = checkout / "runs" / found["run_id"]
    assert json.loads((run / "report.json").read_text())["secret_seed"] == found["secret_seed"]
    assert (run / "submission.py").read_text() == (checkout / "submissions/a2a/submission.py").read_text()


def test_a_wrong_submission_is_shown_but_never_recorded(harness: Harness, checkout: Path) -> None:
    (checkout / "zeros.py").write_text(ZEROS)
    result = harness("eval", "a2a", "zeros.py", "--suite", "quick", "--ranks", "2", "--json", "result.json")
    assert result.returncode == Exit.INVALID
    assert "rank 0" in result.stdout
    assert not (checkout / "leaderboard.yaml").exists()
    found = json.loads((checkout / "result.json").read_text())
    assert (found["status"], found["exit_code"], found["figures"]) == ("fail", 112, None)


def test_no_record_writes_neither_board_nor_runs(harness: Harness, checkout: Path) -> None:
    assert harness("eval", "a2a", "--suite", "quick", "--ranks", "2", "--mode", "test", "--no-record").returncode == 0
    assert not (checkout / "leaderboard.yaml").exists()
    assert not (checkout / "runs").exists()


def test_two_evaluations_at_once_are_both_recorded(checkout: Path) -> None:
    command = [*COMMAND, "harness", "eval", "a2a", "--suite", "quick", "--ranks", "2", "--seconds", "0.05", "--author"]
    both = [
        subprocess.Popen([*command, author], cwd=checkout, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for author in ("ada", "bob")
    ]
    assert [process.wait(120) for process in both] == [0, 0]
    board = yaml.safe_load((checkout / "leaderboard.yaml").read_text())
    assert sorted(entry["author"] for entry in board["entries"]) == ["ada", "bob"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["eval", "a2b"], 2, "did you mean 'a2a'?"),
        (["eval", "gemm-rz"], 2, "did you mean"),
        (["eval", "a2a", "nowhere.py"], 2, "no submission file"),
        (["eval", "a2a", "."], 2, "is not a file"),
        (["eval", "a2a", "--suite", "qick"], 2, "did you mean 'quick'?"),
        (["eval", "a2a", "--ranks", "0"], 2, "--ranks 0: 1 to"),
        (["eval", "a2a", "--ranks", "-3"], 2, "--ranks -3"),
        (["eval", "a2a", "--ranks", "5000"], 2, "--ranks 5000"),
        (["eval", "a2a", "--ranks", "7"], 2, "is not divisible by the world size 7"),
        (["eval", "a2a", "--timeout", "0"], 2, "seconds above 0"),
        (["eval", "a2a", "--timeout", "inf"], 2, "seconds above 0"),
        (["eval", "a2a", "--seconds", "inf"], 2, "seconds above 0"),
        (["eval", "a2a", "--mode", "tset"], 2, "invalid choice"),
        (["eval", "a2a", "--device", "tpu"], 2, "invalid choice"),
        (["eval", "a2a", "--json", "no/such/folder.json"], 2, "its folder does not exist"),
        (["eval", "a2a", "--json", "shapes"], 2, "it is a folder"),
        (["eval", "a2a", "--seed", "3"], 2, "--seed 3: only --eval theirs takes it"),
        (
            ["check", "a2a", "--for", "gpumode", "--ranks", "9", "--suite", "foo"],
            2,
            "--ranks: --for gpumode runs nothing",
        ),
        (["check", "a2a", "--for", "gpumode", "--watch"], 2, "--watch: --for gpumode runs nothing"),
        (["eval"], 2, "which problem"),
        ([], 2, "required"),
        (["board", "--problem", "zzz"], 2, "no problem 'zzz'"),
        (["compare", LONG, "b.py", "--problem", "a2a"], 2, f"{LONG[:117]}...: File name too long; name another"),
        (["settle", LONG], 2, "no problem 'aaa"),
        (["mlperf", "score", LONG], 2, "File name too long; name another"),
        (["eval", "a2a", "--json", LONG], 2, "File name too long; name another"),
        (["eval", "a2a", "--json", "loop"], 2, "name another"),
        (["merge", "a2a", "--out", "loop"], 2, "name another"),
    ],
)
def test_what_cannot_be_asked_for_is_said_at_once(
    arguments: list[str], code: int, says: str, harness: Harness, checkout: Path
) -> None:
    """Before any rank is started; nothing is recorded."""
    (checkout / "loop").symlink_to("loop")
    result = harness(*arguments)
    assert result.returncode == code
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert not (checkout / "leaderboard.yaml").exists()


def test_a_pipe_that_nobody_reads_is_said_before_an_evaluation(harness: Harness, checkout: Path) -> None:
    os.mkfifo(checkout / "pipe")
    result = harness("eval", "a2a", "--suite", "quick", "--json", "pipe")
    assert (result.returncode, "nobody reads from this pipe" in result.stderr) == (2, True)


@pytest.mark.parametrize("place", ["single/words", "./single/words/task.yml"])
def test_a_submission_cannot_name_a_folder_whose_code_would_be_trusted(
    place: str, harness: Harness, checkout: Path
) -> None:
    """A submission can write to its cache: a problem folder, which the next one's first line would have us run."""
    shutil.copytree(SINGLE, checkout / "single")
    (checkout / "mine.py").write_text(f"#!POPCORN leaderboard {place}\ndef custom_kernel(data):\n    return data\n")
    result = harness("eval", "mine.py", "--device", "cpu")
    assert (result.returncode, f"no problem '{place}'" in result.stderr) == (2, True), result.stderr
    assert harness("check", place, "--device", "cpu").returncode == 0, "whoever evaluates can"


def test_an_evaluation_that_is_to_outlive_its_terminal_does(checkout: Path) -> None:
    """nohup has the hang-up ignored."""
    nohup = functools.partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    process = running(checkout, "check", "a2a", "--suite", "quick", "--ranks", "2", begin=nohup)
    process.send_signal(signal.SIGHUP)
    assert process.communicate(timeout=300) is not None
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (b"def custom_kernel(data)\n    return data\n", "bad.py:1: expected ':'"),
        (b"x = '\xff'\n", "not UTF-8 at byte 5"),
        (b"#" * 1_000_001, "at most 1000000"),
        (b"(" * 5000, "bad.py"),
        (b"x = 1\n\0", "bad.py:2: a NUL character"),
        (b"x = (" + b"a " * 5000, "a a... (10004 characters)"),
    ],
    ids=["syntax error", "not UTF-8", "too large", "nested too deeply", "a null byte", "a long line"],
)
def test_a_file_that_is_no_python_fails_validation(source: bytes, says: str, harness: Harness, checkout: Path) -> None:
    (checkout / "bad.py").write_bytes(source)
    result = harness("eval", "a2a", "bad.py", "--json", "result.json")
    assert result.returncode == Exit.INVALID
    assert says in result.stderr
    assert json.loads((checkout / "result.json").read_text())["exit_code"] == 112


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("has_bias: true", 'has_bias: "False"', "has_bias: expected true or false, found 'False'"),
        ("m: 8,", "m: 9,", "9 is not divisible by the world size 8"),
        ("m: 8,", "mm: 8,", "did you mean 'm'?"),
        ("seed: 21", "sed: 21", "did you mean 'seed'?"),
        ("ranking_by: geom", "ranking_by: best", "expected one of 'last', 'mean', 'geom'"),
        ("tests:", "tests: [", "not YAML"),
    ],
)
def test_a_bad_shape_file_is_said_with_its_place(
    old: str, new: str, says: str, harness: Harness, checkout: Path
) -> None:
    shapes = checkout / "shapes" / "gemm_rs.yaml"
    assert old in shapes.read_text()
    shapes.write_text(shapes.read_text().replace(old, new, 1))
    result = harness("eval", "gemm_rs")
    assert result.returncode == Exit.BAD_FILE
    assert result.stderr.startswith("error: shapes/gemm_rs.yaml: ")
    assert says in result.stderr


def test_a_corrupted_leaderboard_stops_an_evaluation_before_it_begins(harness: Harness, checkout: Path) -> None:
    (checkout / "leaderboard.yaml").write_text("schema: 1\nentries: [{problem: a2a}]\n")
    result = harness("eval", "a2a", "--suite", "quick", "--ranks", "2")
    assert result.returncode == Exit.BAD_FILE
    assert "leaderboard.yaml: $.entries[0]: the key 'suite' is missing" in result.stderr
    assert "--no-record" in result.stderr
    assert (checkout / "leaderboard.yaml").read_text() == "schema: 1\nentries: [{problem: a2a}]\n"


def test_a_board_of_a_schema_to_come_stops_an_evaluation_before_it_begins(harness: Harness, checkout: Path) -> None:
    text = f"schema: {SCHEMA + 1}\nentries: []\n"
    (checkout / "leaderboard.yaml").write_text(text)
    result = harness("eval", "a2a", "--suite", "quick", "--ranks", "2")
    assert result.returncode == Exit.BAD_FILE
    assert f"newer harness (schema {SCHEMA + 1}, this one reads up to {SCHEMA}); update the checkout" in result.stderr
    assert (checkout / "leaderboard.yaml").read_text() == text
    assert not (checkout / "runs").exists()


def test_a_read_only_checkout_is_said_before_it_begins(checkout: Path) -> None:
    """Tried as a user without rights, since root may write anywhere."""
    if os.getuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root without setpriv cannot become a user without rights")
    for path in (checkout, *checkout.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    for path in checkout.parents:  # so that another user finds the way
        if path.stat().st_uid == os.getuid() and path.is_relative_to("/tmp") and path != Path("/tmp"):
            path.chmod(path.stat().st_mode | 0o755)
    command = [sys.executable, "-m", "harness", "eval", "a2a", "--suite", "quick", "--mode", "test"]
    if os.getuid() == 0:
        if not os.access(Path(sys.executable).resolve(), os.X_OK) or "/root/" in str(Path(sys.executable).resolve()):
            pytest.skip("this interpreter lies where only root can run it")
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command]
    result = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == Exit.USAGE, result.stderr
    assert "--no-record" in result.stderr


def test_more_ranks_than_memory_allows_are_refused_with_the_number_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "available_bytes", lambda: 10 * host.RANK_BYTES)
    host.check_memory(10)
    with pytest.raises(UsageError, match=r"ask for at most 10 "):
        host.check_memory(11)


def test_a_temporary_folder_too_deep_for_sockets_is_refused_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the longest name that still is none too long."""
    most = "/tmp/" + "x" * 50
    monkeypatch.setattr("tempfile.tempdir", most)
    host.check_temporary("cuda")
    assert len(f"{most}/kernel-eval-{'x' * 8}/candidate/tmp/symm_mem-{2**22}") == host.SOCKET_NAME_BYTES
    monkeypatch.setattr("tempfile.tempdir", most + "x")
    host.check_temporary("cpu")
    with pytest.raises(UsageError, match="at most 55 bytes, such as TMPDIR=/tmp"):
        host.check_temporary("cuda")


def test_the_sandbox_can_be_left_out_and_the_report_says_so(harness: Harness, checkout: Path) -> None:
    """Then a submission may write to the checkout, as its user may."""
    source = "from reference import ref_kernel as custom_kernel\nopen({!r}, 'w').close()\n"
    mark = checkout / "written"
    (checkout / "writes.py").write_text(source.format(str(mark)))
    free = harness("check", "gemm_rs", "writes.py", "--ranks", "2", "--device", "cpu", "--unconfined")
    assert free.returncode == Exit.OK, free.stdout + free.stderr
    assert "left out, as was asked for (--unconfined)" in " ".join(free.stdout.split())
    mark.unlink()
    confined = harness("check", "gemm_rs", "writes.py", "--ranks", "2", "--device", "cpu")
    assert "sandbox: left out" not in confined.stdout
    if sandbox.landlock_abi():
        assert confined.returncode == Exit.INVALID
        assert not mark.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupting_ends_every_process_and_records_nothing(number: int, checkout: Path) -> None:
    (checkout / "sleeps.py").write_text(SLEEPS)
    before = set(descendants(os.getpid()))
    process = running(checkout, "eval", "a2a", "sleeps.py", "--suite", "quick", "--ranks", "2")
    below = [pid for pid in descendants(os.getpid()) if pid not in before and pid != process.pid]
    assert len(below) >= 7, "a zygote and three groups of 2"
    process.send_signal(number)
    assert process.wait(60) == Exit.INTERRUPTED
    until(lambda: gone(below))
    assert not (checkout / "leaderboard.yaml").exists()


def test_killing_the_parent_ends_every_rank(checkout: Path) -> None:
    (checkout / "sleeps.py").write_text(SLEEPS)
    process = running(checkout, "eval", "a2a", "sleeps.py", "--suite", "quick", "--ranks", "2", program=("-m",))
    below = descendants(process.pid)
    assert len(below) >= 7, "a zygote and three groups of 2"
    process.kill()
    process.wait(60)
    until(lambda: gone(below))


def test_board_and_problems_say_what_there_is(harness: Harness) -> None:
    assert "No evaluation is recorded yet" in harness("board").stdout
    listed = harness("problems").stdout.splitlines()[1:]
    assert len(listed) == len(problem_names(Checkout(ROOT)))
    assert [line.split()[0] for line in listed] == problem_names(Checkout(ROOT))
    assert max(map(len, listed)) <= 100


def test_an_unfinished_problem_hides_no_other(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "checkout" / "reference" / "begun").mkdir()
    (tmp_path / "checkout" / "reference" / "begun" / "task.py").write_text("")
    listed = harness("problems")
    assert listed.returncode == Exit.BAD_FILE
    assert [name for name in ("a2a", "gemm_rs", "ag_gemm") if f"\n{name} " in f"\n{listed.stdout}"] == [
        "a2a",
        "gemm_rs",
        "ag_gemm",
    ]
    assert re.search(r"^bad +.*begun", listed.stdout.splitlines()[-1])


def test_problems_of_a_folder_are_listed_good_ones_first_then_what_is_wrong(harness: Harness, tmp_path: Path) -> None:
    shutil.copytree(SINGLE, tmp_path / "set")
    listed = harness("problems", str(tmp_path))
    assert listed.returncode == Exit.OK
    names = [line.split()[0] for line in listed.stdout.splitlines() if line.startswith("set/")]
    assert names == ["set/cuda", "set/fragile", "set/pair", "set/scale", "set/total", "set/wired", "set/words"]
    task = tmp_path / "set" / "pair" / "task.yml"
    task.write_text(task.read_text().replace("lang:", "language:"))
    listed = harness("problems", str(tmp_path))
    assert listed.returncode == Exit.BAD_FILE
    assert listed.stdout.index("set/words") < listed.stdout.index("bad      ")
    assert "set/pair/task.yml: $" in listed.stdout
    assert harness("problems", str(tmp_path / "set" / "scale")).returncode == Exit.OK
    for path, says in (
        (tmp_path / "nowhere", "no such folder"),
        (task, "a file; name"),
        (tmp_path / "set/pair", "bad  "),
    ):
        refused = harness("problems", str(path))
        assert refused.returncode != Exit.OK
        assert says in refused.stdout + refused.stderr


@pytest.mark.parametrize("command", ["", "eval", "check", "board", "problems", "doctor", "roofline"])
def test_help_says_what_a_command_does_and_its_exit_codes(command: str, harness: Harness) -> None:
    result = harness(*command.split(), "--help")
    assert result.returncode == 0
    assert "exit codes:" in result.stdout
    assert len(result.stdout.splitlines()) > 8


def made(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "-n", f"--file={ROOT / 'Makefile'}", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_make_refuses_a_variable_that_nothing_reads() -> None:
    misspelt = made("check", "PROBLEM=a2a", "RANK=2")
    assert misspelt.returncode == Exit.USAGE
    assert "RANK: no target reads this variable; did you mean RANKS?" in misspelt.stderr
    assert "XYZ: no target reads this variable; these are read: PROBLEM" in made("help", "XYZ=1").stderr
    other = made("eval", "PROBLEM=a2a", "FILE=my.py")
    assert "make eval reads no FILE; SUBMISSION=path names the file" in other.stderr
    assert other.returncode == Exit.USAGE
    new = made("new-submission", "PROBLEM=a2a", "SUBMISSION=my.py")
    assert "make new-submission reads no SUBMISSION; FILE=path names the file" in new.stderr
    bare = made("eval", "PROBLEM=a2a", "my.py")
    assert "my.py is no target; SUBMISSION=path names the file" in bare.stderr
    assert bare.returncode == Exit.USAGE
    right = made("check", "PROBLEM=a2a", "RANKS=2", "ARGS=--seconds=1 --timeout=2", "PYTHON=python3")
    assert "--ranks '2'" in right.stdout
    assert "--seconds=1 --timeout=2" in right.stdout


def test_make_knows_every_variable_that_a_target_reads() -> None:
    text = (ROOT / "Makefile").read_text()
    known = re.search(r"^KNOWN := ((?:.*\\\n)*.*)$", text, re.MULTILINE)
    assert known is not None
    read = set(re.findall(r"\$\((?:value |call quoted,|call flag,[a-z-]+,)?([A-Z][A-Z_]*)\)", text))
    own = set(re.findall(r"^([A-Z_]+) [:?]?=", text, re.MULTILINE)) - {"PROBLEM"}
    assert read - own - {"MAKECMDGOALS"} <= set(known[1].replace("\\", " ").split())


def test_make_clean_leaves_the_sources_of_entries(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("runs", "build"):
        (tmp_path / name).mkdir()
    cleaned = subprocess.run(["make", "clean"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "make clean RUNS=1 deletes all of it" in cleaned.stdout
    assert [(tmp_path / name).exists() for name in ("runs", "build")] == [True, False]
    subprocess.run(["make", "clean", "RUNS=1"], cwd=tmp_path, capture_output=True, check=True)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("python", ["false", "python-that-is-not-there"])
def test_make_sets_up_nothing_with_a_python_that_is_too_old(python: str, tmp_path: Path) -> None:
    """A .venv of it would stay, and fail after a newer one is there too."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    command = ["make", "setup", f"BASE_PYTHON={python}"]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert made.returncode == 2
    assert f"{python} is no Python 3.11 or newer; BASE_PYTHON=path names one" in made.stderr
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-S", "-m", "harness"], "has no package psutil; install what pyproject.toml names there"),
        (
            ["-c", "import runpy, sys; sys.version_info = (3, 10, 1); runpy.run_module('harness', None, '__main__')"],
            "is Python 3.10.1, and the harness needs 3.11 or newer; name another (PYTHON=python3.11)",
        ),
    ],
    ids=["bare", "old"],
)
def test_an_interpreter_that_cannot_run_the_harness_is_said(words: list[str], says: str) -> None:
    command = [sys.executable, *words]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == Exit.USAGE
    assert ran.stderr.startswith(f"error: {sys.executable} {says}")
    assert ran.stderr.count("\n") == 1
