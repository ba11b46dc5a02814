"""The program that a folder's task.yml names under `validation`: it is run for ranked entries, and its verdict kept."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import submission_of
from places import FOLDERS

from harness.core.checkout import Checkout
from harness.core.records import EvalReport
from harness.evaluation.evaluate import evaluate
from harness.gpumode.folder import read
from harness.judging import verdict
from harness.judging.warnings import text_of
from harness.kinds.kind import Evaluator, Order, Progress, Setting
from harness.kinds.registry import kind_of

EVAL = """\
import os, sys
lines = os.fdopen(int(os.environ["POPCORN_FD"]), "w")
for index in range(len(open(sys.argv[2]).read().splitlines())):
    print(f"test.{index}.status: pass\\nbenchmark.{index}.mean: 1000.0", file=lines)
print("check: pass", file=lines)
"""
VALIDATES = """\
import json, os
from submission import custom_kernel
print(json.loads(os.environ["KERNELBOT_VALIDATION_CONFIG"])["version"])
print("noise\\n" * 100_000)
print(json.dumps({"total_shapes": 2, "passed_shapes": %s, "fully_validated": True, "geomean_sync_wall_speedup": 1.25}))
"""
Evaluated = Callable[..., EvalReport]


@pytest.fixture
def evaluated(tmp_path: Path, nothing_left: None) -> Evaluated:
    """evaluated(script, evaluator) evaluates a copy of scale whose validation is that script."""

    def run(script: str, evaluator: Evaluator = "theirs", kernel: str = "def custom_kernel(data): ...") -> EvalReport:
        folder = Path(shutil.copytree(FOLDERS, tmp_path / "folders")) / "single" / "scale"
        (folder.parent / "eval.py").write_text(EVAL)
        (folder / "validate.py").write_text(script)
        with (folder / "task.yml").open("a") as file:
            file.write("validation: {version: v7, script: validate.py}\n")
        problem = read(folder, Checkout.here())
        suite = dataclasses.replace(problem.suite("official"), benchmark_s=0.05)
        setting = Setting(problem=problem, suite=suite, device="cpu", world_size=1, evaluator=evaluator)
        kind = kind_of(setting)
        plan = kind.plan(Order(setting=setting, submission=submission_of(kernel), mode="leaderboard", author="t"))
        return evaluate(plan, Progress())

    return run


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (VALIDATES % 2, "validated, 2 of 2 shapes, 1.25x in the application"),
        (VALIDATES % 1, "not validated, 1 of 2 shapes, 1.25x in the application"),
        (VALIDATES % 3, "failed: it tells no valid counts of shapes"),
        ("print('{}'); raise SystemExit(3)", "failed: it exited with 3"),
        ('print(\'{"status": "failed", "failure_reason": "slower"}\')', "failed: slower"),
        ("print('right')", "failed: it exited with 0 and its last line is no JSON"),
    ],
)
def test_its_verdict_is_kept_with_a_ranked_run_of_eval_py(script: str, told: str, evaluated: Evaluated) -> None:
    """It decides nothing: KernelBot validates entries that are ranked already."""
    report = evaluated(script)
    assert verdict.status(report) == "pass"
    assert f"task.yml's validation v7: {told}" in [text_of(warning) for warning in report.warnings]


def test_with_our_ranks_a_note_says_that_it_was_not_run(evaluated: Evaluated) -> None:
    report = evaluated("pass", "ours", "from reference import ref_kernel as custom_kernel")
    assert [warning.values for warning in report.warnings if warning.code == "unvalidated"] == [{"version": "v7"}]
