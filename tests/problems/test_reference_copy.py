"""A submission that is the reference by its text: it is known to be, and the report says what its speedup is worth."""

import dataclasses
import time
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import submission_of
from places import SINGLE

from harness.core.checkout import Checkout
from harness.core.records import Case
from harness.evaluation.evaluate import evaluate
from harness.gpumode.folder import read
from harness.judging import verdict, warnings
from harness.kinds.kind import Order, Progress, Setting
from harness.kinds.op import measure as op_measure
from harness.kinds.registry import kind_of
from harness.problems.reference_copy import is_reference
from harness.problems.shape_file import find, problem_names
from harness.problems.skeleton import submission_text
from harness.problems.submission import MAX_BYTES

SCALE = SINGLE / "scale"
CALLS = "from reference import ref_kernel\n\n\ndef custom_kernel(data):\n    return ref_kernel(data)\n"
REFERENCE = '''
import torch
from utils import exact

SCALE = 2


def half(x):
    return x / 2


def ref_kernel(data: "input_t") -> "output_t":
    """What it does."""
    with exact():
        return half(data) * SCALE * torch.ones(1)


check_implementation = print
'''
COPY = '''
"""A copy."""
import torch
from utils import exact
import math

TIMES = 2
def divided(number):
    return number / 2  # by two
def custom_kernel(inputs):
    with exact():
        return divided(inputs) * TIMES * torch.ones(1)
'''
SAME = {
    "it calls the reference": CALLS,
    "with a comment, a docstring and types": CALLS.replace("(data):", "(data: int) -> int:\n    '''D'''\n    # so"),
    "under another name": CALLS.replace("ref_kernel\n", "ref_kernel as f\n").replace("ref_kernel(", "f("),
    "it is imported as the kernel": "from reference import ref_kernel as custom_kernel\n",
    "it is assigned": "import torch\nfrom reference import ref_kernel\ncustom_kernel = ref_kernel\n",
    "it has its code": COPY,
}
OTHER = {
    "another constant": COPY.replace("TIMES = 2", "TIMES = 3"),
    "another helper": COPY.replace("number / 2", "number / 3"),
    "a setting": COPY + "torch.backends.cuda.matmul.allow_tf32 = True\n",
    "a setting beside the call": CALLS + "import torch\ntorch.set_num_threads(1)\n",
    "a decorator": CALLS.replace("def custom", "@print\ndef custom"),
    "another argument": CALLS.replace("ref_kernel(data)", "ref_kernel(data[0])"),
    "more than the call": CALLS.replace("return ref", "print(1)\n    return ref"),
    "a ref_kernel of its own": "def ref_kernel(data):\n    return 1\n\n\ncustom_kernel = ref_kernel\n",
    "another module's": CALLS.replace("from reference", "from elsewhere"),
    "no kernel": "import torch\n",
    "no Python": "def (",
}


@pytest.mark.parametrize("source", SAME.values(), ids=SAME.keys())
def test_the_reference_is_recognised(source: str) -> None:
    assert is_reference(source, REFERENCE)


@pytest.mark.untraced
def test_the_longest_text_takes_seconds() -> None:
    """It is read before anything runs, when no deadline holds."""
    names = [f"a{number}" for number in range(60_000)]
    source = "def custom_kernel(data):\n return " + "+".join([*names[:90], "f(data)"]) + "\n"
    source += f"def f(data):\n return ({','.join(names)})\n" + "".join(f"{name}=0\n" for name in names)
    assert MAX_BYTES * 0.9 < len(source) < MAX_BYTES
    began_s = time.process_time()
    assert not is_reference(source, REFERENCE)
    assert time.process_time() - began_s < 30


@pytest.mark.parametrize("source", OTHER.values(), ids=OTHER.keys())
def test_anything_else_is_not(source: str) -> None:
    assert not is_reference(source, REFERENCE)
    assert not is_reference(source, "import torch\n"), "a reference without a kernel"


@pytest.mark.parametrize("name", problem_names(Checkout.here()))
def test_a_new_submission_is_the_reference_and_a_shipped_one_is_not(name: str) -> None:
    problem = find(name, Checkout.here())
    reference = problem.staged().get("reference.py", b"").decode()
    new = submission_text(problem)
    assert is_reference(new, reference) == ("ref_kernel" in new and "custom_kernel" in new)
    assert not is_reference(problem.default_submission().read_text(), reference)


@pytest.mark.parametrize("source", [CALLS, "def custom_kernel(data):\n    return data * len(data)\n"])
def test_the_report_says_so_and_a_speedup_other_than_1_is_measured_again(
    source: str, nothing_left: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = read(SCALE, Checkout.here())
    suite = dataclasses.replace(problem.suite("official"), benchmark_s=0.05)
    setting = Setting(problem=problem, suite=suite, device="cpu", world_size=1, is_cpu_asked=True)
    plan = kind_of(setting).plan(Order(setting=setting, submission=submission_of(source), mode="benchmark", author="a"))
    made: list[Case] = []
    samples = op_measure.CaseMeasurement.samples

    def counted(self: op_measure.CaseMeasurement, *more: Any) -> Any:
        made.append(self.case)
        return samples(self, *more)

    monkeypatch.setattr(op_measure.CaseMeasurement, "samples", counted)
    monkeypatch.setattr(op_measure, "_is_one", lambda measured: False)
    report = evaluate(plan, Progress())
    assert verdict.status(report) == "pass"
    is_it = source == CALLS
    assert [one.code for one in report.warnings].count("reference") == is_it
    assert len(made) == len(report.results) * (1 + is_it)


def test_an_interval_around_1_is_1(monkeypatch: pytest.MonkeyPatch) -> None:
    for ci, is_one in (((0.9, 1.1), True), ((1.01, 1.2), False), ((0.2, 0.79), False), (None, False)):
        figures = SimpleNamespace(ratio=SimpleNamespace(ci=ci))
        monkeypatch.setattr(op_measure, "case_figures", lambda *_, found=figures: found)
        assert op_measure._is_one(None) == is_one  # type: ignore[arg-type]
    assert "its speedup is 1" in warnings.TEXTS["reference"]
