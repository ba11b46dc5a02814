"""`export --task`: a problem of ours as a KernelBot problem folder, which their loader and ours read."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml
from places import SINGLE

from harness.cli import popcorn
from harness.cli.main import main
from harness.core.checkout import Checkout
from harness.core.errors import BadFileError, UsageError
from harness.gpumode import folder, result_lines, task_folder
from harness.kinds.registry import find, named
from harness.kinds.settings import Asked
from harness.problems.problem import OFFICIAL
from harness.problems.shape_file import problem_names
from harness.serve.offers import ServeOptions, leaderboards, offered

HERE = Checkout.here()
FIT = [name for name in problem_names(HERE) if not task_folder.unfit(named(name, HERE))]
UNFIT = [name for name in problem_names(HERE) if name not in FIT]
SCALE = SINGLE / "scale"


def exported(name: str, out: Path) -> Path:
    problem = named(name, HERE)
    task_folder.write(out, task_folder.files_of(problem, problem.suite(OFFICIAL)))
    return out


def exit_code(*words: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return ended.value.code


@pytest.mark.parametrize("name", FIT)
def test_a_written_folder_is_the_same_problem(name: str, tmp_path: Path) -> None:
    """Read as any folder, it has the problem's cases and limits; its eval.py recognises it."""
    problem, found = named(name, HERE), folder.read(exported(name, tmp_path / "out"), HERE)
    ours, theirs = problem.suite(OFFICIAL), found.suite(OFFICIAL)
    for kind in ("tests", "benchmarks"):
        cases = [(case.params, case.seed, case.world_size) for case in getattr(ours, kind)]
        assert [(case.params, case.seed, case.world_size) for case in getattr(theirs, kind)] == cases
    assert (theirs.test_timeout_s, theirs.ranked_timeout_s) == (ours.test_timeout_s, ours.ranked_timeout_s)
    assert (found.ranking_by, found.gpus, found.task.multi_gpu) == (problem.ranking_by, problem.gpus, problem.multi_gpu)
    lines = result_lines.parse_cases(folder.cases_text(found.task.tests))
    assert popcorn.recognise(lines, (tmp_path / "out" / "reference.py").read_text(), HERE).name == name
    popcorn.cases_of(problem, lines, "test", None, words_are_true=False)
    assert "custom_kernel" in found.default_submission().read_text()


@pytest.mark.parametrize("name", FIT)
def test_their_loader_reads_a_written_folder(name: str, tmp_path: Path) -> None:
    """Runs where their package is on Python's path (PYTHONPATH=kernelbot/src)."""
    theirs = pytest.importorskip("libkernelbot.task", reason="needs gpu-mode/kernelbot's src on PYTHONPATH")
    definition = theirs.make_task_definition(exported(name, tmp_path / "out"))
    problem = named(name, HERE)
    task = task_folder.task_of(problem, problem.suite(OFFICIAL))
    assert definition.task == theirs.LeaderboardTask.from_dict(task)


@pytest.mark.parametrize("name", UNFIT)
def test_other_kinds_are_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"{name}: it is ranked as .* ranks"):
        exported(name, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_those_that_are_refused_are_programs_models_and_trainings() -> None:
    assert {named(name, HERE).kind for name in UNFIT} == {"program", "model", "train"}
    assert {named(name, HERE).kind for name in FIT} == {"op"}


@pytest.mark.slow
def test_its_eval_py_evaluates_as_kernelbot_starts_it(tmp_path: Path, nothing_left: None) -> None:
    """A right file passes and a wrong one fails, in ranks of this checkout."""
    out = str(tmp_path / "my")
    assert exit_code("export", "--task", "gemm_rs", out, "--suite", "quick") == 0
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import torch\n\ndef custom_kernel(data):\n    return torch.zeros(1)\n")
    run = ("--eval", "theirs", "--device", "cpu", "--mode", "test", "--quiet")
    assert exit_code("eval", out, *run) == 0
    assert exit_code("eval", out, str(wrong), *run) == 112


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--task",), "name a problem and a new folder"),
        (("--task", "a2a"), "name a problem and a new folder"),
        (("--task", "a2a", "{folder}"), "not empty; name a new folder"),
        (("--task", str(SCALE), "new"), "a KernelBot problem folder already"),
        (("--task", "a2a", "new", "--leaderboards"), "--task and --leaderboards: name one"),
        (("a2a", "new"), "only --task takes it"),
        (("--suite", "cpu"), "--suite: only --task and --harbor take it"),
        (("--image", "kernels"), "--image: only --harbor takes it"),
        (("--task", "a2a", "new", "--trace"), "--task and --trace: name one"),
        (("--task", "a2a", "new", "-o", "other"), "new and --out other: name one"),
        (("--task", "a2a", "new", "--format", "csv"), "--format: --task does not take it"),
        (("--harbor", "new", "--leaderboards"), "--harbor and --leaderboards: name one"),
        (("--trace", "a2a", "--suite", "cpu"), "--suite: --trace does not take it"),
        (("--leaderboards", "a2a"), "all problems are written; leave the problem out"),
    ],
)
def test_what_cannot_be_written_is_said(
    words: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "there").write_text("")
    assert exit_code("export", *(word.format(folder=tmp_path) for word in words)) == 2
    assert told in capsys.readouterr().err


def test_the_timeouts_of_a_staged_task_are_honoured(tmp_path: Path) -> None:
    """Less half a minute, so that a result comes before the runner's own limit; a folder without them has the
    problem's."""
    problem = named("a2a", HERE)
    task = exported("a2a", tmp_path / "out") / "task.yml"
    task.write_text(yaml.safe_dump(yaml.safe_load(task.read_text()) | {"test_timeout": 90, "ranked_timeout": 20}))
    asked = popcorn.PopcornOrder(mode="test", cases=task)
    suite = popcorn._suite(problem, asked, (), task)
    assert (suite.test_timeout_s, suite.ranked_timeout_s) == (60, 10)
    assert popcorn._suite(problem, asked, (), tmp_path / "none").test_timeout_s == 610
    assert popcorn._suite(problem, dataclasses.replace(asked, timeout=5), (), task).test_timeout_s == 5
    task.write_text("test_timeout: soon")
    with pytest.raises(BadFileError, match=r"task.yml: \$\.test_timeout: expected a number"):
        popcorn.timeouts(task)


def test_a_folder_is_served_as_kernelbot_keeps_it() -> None:
    """With the file that `main` names, and the submission under the names that task.yml gives it."""
    problem = find(str(SCALE), HERE)
    task: dict[str, Any] = task_folder.task_of(problem, problem.suite(OFFICIAL))
    assert task["files"]["submission.py"] == "@SUBMISSION@"
    assert task["config"]["main"] in task["files"]
    assert task["tests"][0] == {"size": 5, "seed": 11}


def test_leaderboards_serve_the_files_that_are_written() -> None:
    """A problem that KernelBot has no place for has no task."""
    served = ServeOptions(asked=Asked(problem="", device="cpu"))
    known = {one.name: one for one in leaderboards(offered(served, HERE), served, HERE)}
    problem = named("a2a", HERE)
    task = known["amd-all2all"].task
    assert task["files"] == task_folder.task_of(problem, problem.suite("cpu"))["files"]
    assert task["config"]["main"] in task["files"]
    tasks = [one.task for one in known.values() if one.task]
    assert all(("world_size" in case) == task["multi_gpu"] for task in tasks for case in task["tests"])
    assert known["iopddl"].task == {}
