"""docs/problems.md, followed: its two problems are added to a checkout as they stand there; harness/ is not edited."""

import ast
import csv
import dataclasses
import errno
import filecmp
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.cli import new
from harness.core.checkout import ROOT, Checkout
from harness.core.errors import BadFileError, UsageError
from harness.core.files import replace_file, write_files
from harness.kinds.program.task import FUNCTIONS
from harness.kinds.registry import read_submission
from harness.problems.shape_file import find, problem_names
from harness.problems.skeleton import submission_text
from harness.problems.submission import directives

FEW = ("--suite", "quick", "--seconds", "0.05")
PAGE = (ROOT / "docs" / "problems.md").read_text()
Harness = Callable[..., subprocess.CompletedProcess[str]]
FORGETS_OTHERS = """
import torch


def custom_kernel(data):
    x, weight, eps = data
    return torch.nn.functional.rms_norm(x, weight.shape, weight, eps)
"""
IN_FP8 = """
import torch
from reference import ref_kernel


def custom_kernel(data):
    x, weight, eps = data
    return ref_kernel((x.to(torch.float8_e4m3fn).to(x.dtype), weight, eps))
"""
WITHOUT_EPS = """
from reference import ref_kernel


def custom_kernel(data):
    return ref_kernel((data[0], data[1], 1e-12))
"""
OUT_OF_PLACE = """
import torch


def custom_kernel(data):
    x, function, scale = data
    assert isinstance(scale, float) and isinstance(function, str)
    y = x * scale
    return y * torch.sigmoid(y) if function == "silu" else y.clamp_min(0)
"""


def files_of(problem: str) -> dict[str, str]:
    """The files that the page shows for a problem."""
    shown = dict(re.findall(r"^`([\w/.]+)`:\n\n```\w+\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
    return {path: text for path, text in shown.items() if f"/{problem}/" in path or path == f"shapes/{problem}.yaml"}


def add(problem: str, checkout: Path) -> None:
    files = files_of(problem)
    assert len(files) == 5, "params.py, task.py, reference.py, the shapes and a submission"
    for path, text in files.items():
        (checkout / path).parent.mkdir(parents=True, exist_ok=True)
        (checkout / path).write_text(text)


@pytest.fixture
def added(checkout: Path) -> Path:
    """A checkout with both problems."""
    for problem in ("ar_norm", "activate"):
        add(problem, checkout)
    return checkout


def report_of(checkout: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((checkout / "out.json").read_text())
    return found


def signatures(page: str) -> dict[str, str]:
    """The functions of a page's first block that has them, and their signatures as Python writes them."""
    blocks = [ast.parse(block) for block in re.findall(r"```py\n(.*?)```", page, re.DOTALL)]
    stubs = [node for block in blocks for node in block.body if isinstance(node, ast.FunctionDef)]
    return {node.name: f"({ast.unparse(node.args)}) -> {ast.unparse(node.returns)}" for node in stubs if node.returns}


def defined(*files: str) -> dict[str, str]:
    """The same of files of the checkout; of methods, without self."""
    found = {}
    for file in files:
        for node in ast.walk(ast.parse((ROOT / file).read_text())):
            if isinstance(node, ast.FunctionDef) and node.returns:
                arguments = ast.unparse(node.args).removeprefix("self, ")
                found[node.name] = f"({arguments}) -> {ast.unparse(node.returns)}"
    return found


def test_the_signatures_of_what_a_problem_may_call_are_the_codes() -> None:
    helpers = defined("harness/judging/correctness.py", "reference/common/utils.py")
    shown = signatures(PAGE)
    names = ["rounding_noise", "accumulation_variance", "rank_device", "seeded", "uniform_bf16", "half_zeroed"]
    assert {name: shown[name] for name in [*names, "within_tolerance"]} == {
        name: helpers[name] for name in [*names, "within_tolerance"]
    }


def test_the_signatures_of_a_solver_problem_are_the_protocols() -> None:
    protocol = defined("harness/kinds/program/task.py")
    shown = signatures((ROOT / "docs" / "programs.md").read_text())
    assert set(shown) == set(FUNCTIONS)
    assert shown == {name: protocol[name] for name in FUNCTIONS}


def test_a_problem_of_several_ranks_is_evaluated_ranked_and_shown(added: Path, harness: Harness) -> None:
    """Right, timed, bounded, on the board; and the reference is no faster than itself."""
    assert "ar_norm" in harness("problems").stdout
    done = harness("eval", "ar_norm", *FEW, "--ranks", "2", "--json", "out.json")
    assert done.returncode == 0, done.stderr
    assert "rows 16 H 256 eps 1e-05" in done.stdout
    assert "H hidden_dim" in done.stdout, "the legend"
    assert "verdict  pass" in done.stdout
    report = report_of(added)
    assert report["status"] == "pass"
    assert {case["params"]["eps"] for case in report["cases"]} == {1e-5}
    timed = [case for case in report["cases"] if case["kind"] == "benchmark"]
    assert all(case["bound"]["value"] > 0 for case in timed)
    assert "ar_norm" in (added / "leaderboard.yaml").read_text()
    assert not filecmp.dircmp(ROOT / "harness", added / "harness", ignore=["__pycache__"]).diff_files


@pytest.mark.parametrize("source", [FORGETS_OTHERS, IN_FP8, WITHOUT_EPS], ids=["no all-reduce", "fp8", "no eps"])
def test_a_kernel_that_is_wrong_in_a_new_problem_fails(source: str, added: Path, harness: Harness) -> None:
    (added / "wrong.py").write_text(source)
    assert harness("check", "ar_norm", "wrong.py", "--suite", "quick", "--ranks", "2").returncode == 112


def test_a_problem_of_one_rank_takes_floats_texts_and_lists_all_the_way(added: Path, harness: Harness) -> None:
    """From the shape file through ranks, terminal, report, board and export."""
    (added / "mine.py").write_text(OUT_OF_PLACE)
    done = harness("eval", "activate", "mine.py", *FEW, "--json", "out.json")
    assert done.returncode == 0, done.stderr
    assert "sizes [64,256] f silu scale 2.0" in done.stdout
    report = report_of(added)
    assert (report["status"], report["world_size"], report["peaks"]["link_bytes_per_s"]) == ("pass", 1, 0)
    timed = [case for case in report["cases"] if case["kind"] == "benchmark"]
    assert [case["params"] for case in timed] == [{"sizes": [64, 256], "function": "silu", "scale": 2.0}]
    assert {case["bound"]["by"] for case in timed} <= {"flops", "hbm"}
    entries = yaml.safe_load((added / "leaderboard.yaml").read_text())["entries"]
    assert [(entry["problem"], entry["world_size"]) for entry in entries] == [("activate", 1)]
    exported = harness("export", "--format", "csv")
    rows = list(csv.DictReader(exported.stdout.splitlines()))
    assert json.loads(rows[-1]["case_params"]) == timed[-1]["params"]
    assert harness("page").returncode == 0
    assert "sizes [64,256] f silu scale 2.0" in (added / "build" / "page.html").read_text()


def test_a_problem_of_one_rank_runs_on_no_other_number(added: Path, harness: Harness) -> None:
    done = harness("eval", "activate", "--suite", "quick", "--ranks", "2")
    assert done.returncode == 2
    assert "a case of one GPU runs on 1 rank, not on 2" in done.stderr


def test_a_problem_without_a_cost_has_no_bound_but_all_else(added: Path, harness: Harness) -> None:
    path = added / "reference" / "activate" / "params.py"
    path.write_text(path.read_text().partition("def cost")[0])
    assert find("activate", Checkout(added)).cost_of is None
    done = harness("eval", "activate", *FEW, "--json", "out.json")
    assert done.returncode == 0, done.stderr
    assert [case["bound"] for case in report_of(added)["cases"]] == [None, None]
    refused = harness("roofline", "activate", "--hardware", "h200")
    assert refused.returncode == 2
    assert "activate does not say what a call costs" in refused.stderr


def test_the_roofline_of_one_rank_has_no_links(added: Path, harness: Harness) -> None:
    done = harness("roofline", "activate", "--hardware", "h200")
    assert done.returncode == 0, done.stderr
    assert "1 rank on h200" in done.stdout


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("eps: 1.0e-5, seed: 1}", "eps: 1e-5, seed: 1}", "$.tests[0].eps: expected a number, found '1e-5'; YAML wants"),
        ("eps: 1.0e-5, seed: 1}", "eps: 0, seed: 1}", "$.tests[0].eps: expected a number above 0, found 0.0"),
        ("eps: 1.0e-5, seed: 1}", "eps: .inf, seed: 1}", "$.tests[0].eps: expected a finite number, found inf"),
        ("rows: 7,", "rows: [7],", "$.tests[0].rows: expected a whole number, found a list"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(old: str, new: str, message: str, added: Path, harness: Harness) -> None:
    path = added / "shapes" / "ar_norm.yaml"
    path.write_text(path.read_text().replace(old, new))
    done = harness("problems")
    assert f"shapes/ar_norm.yaml: {message}" in " ".join((done.stdout + done.stderr).split())


def test_a_new_problem_evaluates_at_once_and_nothing_is_written_over(checkout: Path, harness: Harness) -> None:
    (checkout / "docs").mkdir(exist_ok=True)
    (checkout / "docs" / "problems.md").write_text(PAGE)
    made = harness("new", "my_norm")
    assert made.returncode == 0, made.stderr
    assert (checkout / "shapes" / "my_norm.yaml").is_file()
    assert not [path for path in checkout.rglob("*my_norm*/*.py") if "ar_norm" in path.read_text()]
    done = harness("check", "my_norm", "--suite", "quick", "--ranks", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    timed = harness("eval", "my_norm", "--device", "cpu", "--ranks", "2", "--seconds", "0.1")  # by the suite cpu
    assert timed.returncode == 0, timed.stdout + timed.stderr
    again = harness("new", "my_norm")
    assert again.returncode == 2
    assert "is there already" in again.stderr
    assert "begins with a letter" in harness("new", "../evil").stderr
    assert "choose another name" in harness("new", "common").stderr, "its files would be every problem's"
    assert "choose another name" in harness("new", "amd_all2all").stderr, "that is a2a, whose submissions it would take"
    assert not [path for path in checkout.rglob("*") if path.name in ("common.yaml", "amd_all2all.yaml")]


def test_where_the_disk_is_full_nothing_of_a_new_problem_stays(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: Path, content: bytes) -> None:
        if path.name == "my_norm.yaml":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace_file(path, content)

    (checkout / "docs").mkdir(exist_ok=True)
    (checkout / "docs" / "problems.md").write_text(PAGE)
    monkeypatch.setattr(new, "replace_file", fails)

    def there() -> list[Path]:
        return sorted(path for path in checkout.rglob("*") if "__pycache__" not in path.parts)

    before = there()
    with pytest.raises(UsageError, match="cannot be written: No space left on device"):
        new.run(new.NewOrder(name="my_norm"), Checkout(checkout))
    assert there() == before


IMPORTED = """
import importlib, json, os, sys
sys.dont_write_bytecode = True
kept = set(sys.modules)
for folder in sorted(os.listdir()):
    for name in set(sys.modules) - kept:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(os.getcwd()):
            del sys.modules[name]
    sys.path[0] = os.path.join(os.getcwd(), folder)
    importlib.invalidate_caches()
    module = importlib.import_module("mine")
    print(folder, *(name for name in ("custom_kernel", "train", "build") if callable(getattr(module, name, None))))
"""


def test_a_new_submission_of_every_problem_is_what_its_kind_calls(tmp_path: Path) -> None:
    """It reads as a submission, names its problem, and defines what ranks call when it is imported as they import it.
    Solvers are programs: the next test runs one."""
    shipped = Checkout(ROOT)
    called = {}
    for name in problem_names(shipped):
        problem = find(name, shipped)
        file = tmp_path / f"{name}.py"
        file.write_text(submission_text(problem))
        submission = read_submission(problem, file, shipped)
        assert directives(submission.source).leaderboard == problem.leaderboard
        if problem.kind == "program":
            continue
        called[name] = {"train": "train", "model": "build"}.get(problem.kind, "custom_kernel")
        write_files(tmp_path / "staged" / name, problem.staged() | {"mine.py": submission.source.encode()})
    command = [sys.executable, "-c", IMPORTED]
    done = subprocess.run(command, cwd=tmp_path / "staged", capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert dict(line.split() for line in done.stdout.splitlines()) == called


def test_a_new_solver_is_right(harness: Harness) -> None:
    made = harness("new-submission", "iopddl")
    assert made.stdout.splitlines()[0] == "submissions/iopddl_mine.py"  # the folder iopddl/ is one submission
    command = made.stdout.split("`")[1].removeprefix("python -m harness ").split()
    assert command == ["check", "iopddl", "submissions/iopddl_mine.py"]
    done = harness(*command)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_problem_without_a_first_submission_says_what_to_write(tmp_path: Path) -> None:
    problem = find("iopddl", Checkout(ROOT))
    (tmp_path / "reference.py").write_text("")
    with pytest.raises(BadFileError, match=r"start\.txt: no such file; write the text of a first submission there"):
        submission_text(dataclasses.replace(problem, folder=tmp_path))


def test_a_new_submission_passes_and_names_its_problem(checkout: Path, harness: Harness) -> None:
    assert harness("new-submission", "a2a").returncode == 0
    done = harness("check", "submissions/a2a/mine.py", "--suite", "quick", "--ranks", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert harness("new-submission", "a2a").returncode == 2
