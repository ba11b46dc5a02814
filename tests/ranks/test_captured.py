"""Folders whose own eval.py times CUDA graphs: calls are replays of graphs, and what cannot be captured fails.

On a CPU the shim's graphs stand in for a GPU's.
"""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import submission_of
from places import FOLDERS

from harness.core.checkout import Checkout
from harness.core.records import EvalReport, Mode, Raised
from harness.evaluation.evaluate import evaluate
from harness.gpumode.folder import read
from harness.judging import verdict
from harness.kinds.kind import Order, Progress, Setting
from harness.kinds.registry import kind_of
from harness.machine.host import gpus
from harness.ranks.captured import REFUSED

EVAL = """
import torch


def _run_single_benchmark(data):
    graph = torch.cuda.CUDAGraph()
"""
HONEST = """
import torch

calls = []


def custom_kernel(data):
    calls.append(torch.cuda.is_current_stream_capturing())
    assert any(calls[-2:]) or len(calls) == 1, "what compiles is one call before a capture"
    return (data[0] + data[1]) * 2
"""
WAITS = """
import torch


def custom_kernel(data):
    if (data[0] + data[1]).sum().item() == 12345:
        print("unlikely")
    return (data[0] + data[1]) * 2
"""
WRONG = "def custom_kernel(data):\n    return data[0] + data[1]\n"
SCRATCH = "def custom_kernel(data):\n    return data[0].add_(data[1]).mul_(2)\n"
STALE = """
last = []


def custom_kernel(data):
    last.append(data[0].clone())
    return (last[0] + data[1]) * 2
"""
Evaluated = Callable[..., EvalReport]


@pytest.fixture
def evaluated(tmp_path: Path, nothing_left: None) -> Evaluated:
    """evaluated(source) evaluates a copy of `wired` whose eval.py is EVAL, on a GPU or under the shim."""

    def run(source: str, mode: Mode = "leaderboard", device: str = "cpu", eval_py: str = EVAL) -> EvalReport:
        folders = tmp_path / str(len(list(tmp_path.iterdir())))
        shutil.copytree(FOLDERS, folders)
        (folders / "single" / "eval.py").write_text(eval_py)
        problem = read(folders / "single" / "wired", Checkout.here())
        suite = dataclasses.replace(problem.suite("official"), benchmark_s=0.05)
        setting = Setting(problem=problem, suite=suite, device=device, world_size=1, is_cpu_asked=device == "cpu")
        order = Order(setting=setting, submission=submission_of(source), mode=mode, author="tester")
        plan = kind_of(setting).plan(order)
        return evaluate(plan, Progress())

    return run


@pytest.fixture(params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu(1))])
def device(request: pytest.FixtureRequest) -> str:
    return "cpu" if request.param == "cpu" else gpus().device


def test_a_file_that_can_be_captured_passes_and_the_report_says_how(device: str, evaluated: Evaluated) -> None:
    report = evaluated(
        HONEST if device == "cpu" else "def custom_kernel(data):\n    return (data[0] + data[1]) * 2\n", device=device
    )
    assert verdict.status(report) == "pass", verdict.first_failure(report)
    assert "captured" in [warning.code for warning in report.warnings]


@pytest.mark.parametrize("source", [SCRATCH])
def test_a_file_that_writes_into_its_input_is_right(source: str, device: str, evaluated: Evaluated) -> None:
    """The call that compiles has a copy."""
    assert verdict.status(evaluated(source, device=device)) == "pass"


@pytest.mark.parametrize("source", [WRONG, STALE])
def test_a_wrong_file_is_wrong(source: str, device: str, evaluated: Evaluated) -> None:
    failed = verdict.first_failure(evaluated(source, device=device))
    assert failed is not None
    assert failed.outcome.type == "wrong"


def test_a_file_that_waits_for_its_device_fails(device: str, evaluated: Evaluated) -> None:
    """As it would there. Where eval.py times launches it passes."""
    failed = verdict.first_failure(evaluated(WAITS, device=device))
    assert failed is not None
    assert isinstance(failed.outcome, Raised)
    assert failed.outcome.message.startswith(f"RuntimeError: {REFUSED}: ")
    assert "item()" in failed.outcome.traceback
    assert verdict.status(evaluated(WAITS, device=device, eval_py="import torch\n")) == "pass"
