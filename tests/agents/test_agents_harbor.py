"""Problems as Harbor tasks: what is in the folders, what their verifier rewards, and three readers that load them.

`make test-agents` runs all of it: the readers need Python 3.12, and twenty hostile files take minutes.
"""

import gzip
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from harness.agents import harbor
from harness.cli.export import ExportOrder, run
from harness.core.checkout import ROOT, Checkout
from harness.core.errors import UsageError
from harness.kinds.registry import find
from harness.problems.shape_file import problem_names

HERE = Checkout.here()
RIGHT = "from reference import ref_kernel as custom_kernel\n"
WRONG = "def custom_kernel(data):\n    return data[0], data[1]\n"
KERNELBENCH = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.rand(16, 16)]


def get_init_inputs():
    return []
"""
READERS = os.environ.get("READERS", "")  # an interpreter with harbor, verifiers and inspect-harbor
TRIED = (  # of tests/hostile, of each family
    "break_its_judge", "clock_backwards", "clock_stopped", "deferred_to_a_child", "deferred_to_a_thread",
    "ahead_of_the_gate", "forged_frame", "forged_reply", "forged_verdict", "kill_a_trusted_rank",
    "kill_the_parent", "mode_by_clock", "patch_the_reference", "phone_home", "replay_by_id", "replay_by_shape",
    "silent_in_timed_calls", "stale_memory", "tolerance_broadcast_scalar", "tolerance_bias_forgotten",
)  # fmt: skip


def written(folder: Path, *names: str, suite: str = "quick") -> Path:
    problems = [(find(name, HERE), suite) for name in names]
    harbor.write(folder, problems, harbor.Wanted(device="cpu"), HERE)
    return folder


def verified(task: Path, logs: Path, source: str | None, ranks: str = "") -> tuple[int, dict[str, Any] | None]:
    """What tests/test.sh makes of that file in a plain folder: its exit code, and what it wrote to reward.json."""
    script = task / "tests" / "test.sh"
    if ranks:
        script.write_text(script.read_text().replace("--ranks 8", ranks))
    file = logs / "submission.py"
    logs.mkdir(exist_ok=True)
    if source is not None:
        file.write_text(source)
    environ = {**os.environ, "SUBMISSION": str(file), "LOGS": str(logs), "KERNEL_EVAL": str(ROOT)}
    environ |= {"PYTHON": sys.executable, "PYTHONPATH": str(ROOT), "PROBLEM": str(task / "tests" / "problem")}
    done = subprocess.run(["bash", str(script)], env=environ, capture_output=True, text=True, timeout=120, check=False)
    found = logs / "reward.json"
    return done.returncode, json.loads(found.read_text()) if found.exists() else None


def test_a_task_has_what_harbor_reads(tmp_path: Path) -> None:
    task = written(tmp_path / "out", "rms_norm") / "rms_norm"
    found = tomllib.loads((task / "task.toml").read_text())
    assert found["verifier"]["environment_mode"] == "separate"
    assert found["artifacts"] == [harbor.FILE]
    assert (found["task"]["name"], found["metadata"]["suite"]) == ("kernel-eval/rms_norm", "quick")
    assert harbor.FILE in (task / "instruction.md").read_text()
    assert os.access(task / "tests" / "test.sh", os.X_OK)
    for box in ("environment", "tests"):
        names = gzip.decompress((task / box / harbor.ARCHIVE).read_bytes())
        assert b"harness/agents/harbor.py" in names
        assert b"submissions/rms_norm" not in names


def test_every_problem_is_written_and_never_over_a_folder(tmp_path: Path) -> None:
    names = problem_names(HERE)
    suites = [(find(name, HERE), "official") for name in names]
    wanted = harbor.Wanted(device="cuda", reward="sol_score", image="me/kernels")
    harbor.write(tmp_path / "out", suites, wanted, HERE)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    found = tomllib.loads((tmp_path / "out" / "a2a" / "task.toml").read_text())
    assert (found["environment"]["gpus"], found["environment"]["docker_image"]) == (8, "me/kernels-a2a")
    assert found["verifier"]["environment"]["docker_image"] == "me/kernels-a2a-verifier"
    with pytest.raises(UsageError, match="already"):
        harbor.write(tmp_path / "out", suites, wanted, HERE)


def test_a_set_of_kernelbench_files_is_written_with_its_files(tmp_path: Path) -> None:
    (tmp_path / "my level").mkdir()
    (tmp_path / "my level" / "1_$add.py").write_text(KERNELBENCH)
    run(ExportOrder(problem=str(tmp_path / "my level"), harbor=tmp_path / "out", device="cpu"), HERE)
    [task] = (tmp_path / "out").iterdir()
    found = tomllib.loads((task / "task.toml").read_text())
    assert (task.name, found["task"]["name"]) == ("my-level-1_-add", "kernel-eval/my-level-1_-add")
    for box in ("environment", "tests"):
        assert (task / box / "problem" / "my level" / "1_$add.py").read_text() == KERNELBENCH
        assert "COPY problem /opt/problem" in (task / box / "Dockerfile").read_text()
    assert "class ModelNew" in (task / "instruction.md").read_text()
    code, rewards = verified(task, tmp_path / "logs", None)  # no file: it finds the problem, and rejects
    assert (code, rewards and rewards["reward"]) == (0, 0.0)
    assert json.loads((tmp_path / "logs" / "result.json").read_text())["verdict"] == "rejected"


def test_two_problems_are_not_one_task(tmp_path: Path) -> None:
    """Whose files would be written over each other."""
    for name in ("2 \u2602.py", "2 \u2603.py"):
        (tmp_path / name).write_text(KERNELBENCH)
    with pytest.raises(UsageError, match="would both be the task"):
        run(ExportOrder(problem=str(tmp_path), harbor=tmp_path / "tasks", device="cpu"), HERE)
    assert not (tmp_path / "tasks").exists()


def test_a_problem_of_a_set_that_cannot_be_evaluated_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    level = tmp_path / "level"
    level.mkdir()
    bad = level / "2_far.py"
    bad.write_text("import not_at_all_here\n" + KERNELBENCH)
    with pytest.raises(UsageError, match="can be evaluated"):
        run(ExportOrder(problem=str(level), harbor=tmp_path / "none", device="cpu"), HERE)
    (level / "1_add.py").write_text(KERNELBENCH)
    run(ExportOrder(problem=str(level), harbor=tmp_path / "out", device="cpu"), HERE)
    assert [one.name for one in (tmp_path / "out").iterdir()] == ["level-1_add"]
    assert "left out: " in (told := capsys.readouterr().err)
    assert "imports not_at_all_here" in told
    with pytest.raises(UsageError, match="not_at_all_here"):  # by itself it is an error
        run(ExportOrder(problem=str(bad), harbor=tmp_path / "alone", device="cpu"), HERE)
    assert not (tmp_path / "none").exists()
    assert not (tmp_path / "alone").exists()


def test_a_folder_of_gpu_modes_is_no_task(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs more files"):
        written(tmp_path / "out", str(ROOT / "tests" / "folders" / "single" / "scale"))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_verifier_rewards_what_is_right_and_nothing_else(tmp_path: Path) -> None:
    task = written(tmp_path / "out", "rms_norm") / "rms_norm"
    code, right = verified(task, tmp_path / "right", RIGHT)
    assert (code, right and right["ranked"]) == (0, 1.0)
    assert right is not None
    assert right["reward"] >= 0
    assert right["speedup"] > 0
    for name, source in (("wrong", WRONG), ("missing", None)):
        code, found = verified(task, tmp_path / name, source)
        assert (code, found and found["reward"], found and found["ranked"]) == (0, 0.0, 0.0), name


def test_a_failure_of_the_machine_is_no_reward(tmp_path: Path) -> None:
    """The trial is an error for Harbor then."""
    task = written(tmp_path / "out", "rms_norm") / "rms_norm"
    script = task / "tests" / "test.sh"
    script.write_text(script.read_text().replace("--ranks 1", "--ranks 100000"))
    code, found = verified(task, tmp_path / "logs", RIGHT)
    assert (code, found) == (1, None)


@pytest.mark.skipif(not READERS, reason="READERS names no interpreter with harbor's readers: make test-agents")
def test_three_readers_load_every_task(tmp_path: Path) -> None:
    names = problem_names(HERE)
    folder = written(tmp_path / "out", *names, suite="official")
    command = [READERS, str(ROOT / "tests" / "harbor_readers.py"), str(folder)]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found) == {"harbor", "verifiers", "inspect"}
    for reader, tasks in found.items():
        assert [task["name"].rpartition("/")[2] for task in tasks] == names, reader
        told = [(folder / name / "instruction.md").read_text().strip() for name in names]
        assert [task["instruction"].strip() for task in tasks] == told, reader
    assert {task["verifier"] for reader in ("harbor", "verifiers") for task in found[reader]} == {"tests"}


@pytest.mark.skipif("AGENTS_ALL" not in os.environ, reason="takes minutes: make test-agents")
@pytest.mark.parametrize("name", TRIED)
def test_no_hostile_file_is_rewarded(name: str, tmp_path: Path) -> None:
    task = written(tmp_path / "out", "a2a") / "a2a"
    source = (ROOT / "tests" / "hostile" / f"{name}.py").read_text()
    _, found = verified(task, tmp_path / "logs", source, "--ranks 2")
    assert found is None or found["reward"] == 0
