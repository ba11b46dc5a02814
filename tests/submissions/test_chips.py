"""Which rows of the tuning tables chips get that have none of their own, and that the kernels of all rows that nobody
has measured compile without spilling, as the tables say of them. No GPU is needed."""

import importlib.util
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
import torch
from compiled import TARGETS, chip_of, compiled_all
from kernel_ranks import ROOT, imported

from harness.core.checkout import Checkout
from harness.core.records import Case
from harness.problems import shape_file

SINGLE = ("gemm", "attention", "swiglu", "rms_norm", "cross_entropy")  # problems of one rank
DEVICE = torch.device("cuda")
LIKE = {"sm": ("sm_80", "sm_100", "sm_120"), "gfx942": ("gfx942", "gfx950")}  # chips that such rows are for


def official(name: str) -> tuple[Case, ...]:
    return shape_file.find(name, Checkout.here()).suite("official").benchmarks


def steps(plan: Any) -> list[Callable[[], Any]]:
    """What compiles each launch of a plan of gemm or attention."""
    if hasattr(plan, "examples"):
        launches = [(step, arguments) for step, arguments in plan.examples()]
    else:
        launches = [(plan, plan.example_arguments())]
    return [
        lambda step=step, given=given: step.launch.compile(given, step.constants, step.options)
        for step, given in launches
    ]


def compilers(name: str, plan: Any) -> list[Callable[[], Any]]:
    """What compiles each launch of a plan."""
    return steps(plan) if name in ("gemm", "attention") else [plan.compile]


def planned(name: str, submission: ModuleType, chip: str, params: dict[str, Any]) -> Any:
    """The plan of a call on that chip."""
    with patch.object(submission, "chip_of", lambda device: chip_of(submission, chip)):
        return PLANNED[name](submission, params)


def attention_plan(submission: ModuleType, params: dict[str, Any]) -> Any:
    heads, shared = params["batch"] * params["heads"], params["batch"] * params["kv_heads"]
    shape = (heads, shared, params["seq"], params["dim"])
    row = submission.row_of.__wrapped__(DEVICE, shape, params["backward"])
    return submission.plan_of.__wrapped__(DEVICE, shape, row)


def cross_entropy_plan(submission: ModuleType, params: dict[str, Any]) -> Any:
    smooth = params["label_smoothing"] != 0
    shape = submission.Shape(params["tokens"], params["vocab"], params["row_stride"], 8, smooth)
    return submission.plan_of.__wrapped__(DEVICE, shape)


PLANNED: dict[str, Callable[[ModuleType, dict[str, Any]], Any]] = {
    "gemm": lambda of, case: of.plan_of.__wrapped__(DEVICE, case["m"], case["n"], case["k"]),
    "attention": attention_plan,
    "swiglu": lambda of, case: of.plan_of.__wrapped__(DEVICE, (case["rows"], case["ffn"]), case["backward"]),
    "rms_norm": lambda of, case: of.plan_of.__wrapped__(DEVICE, (case["rows"], case["hidden"]), case["backward"]),
    "cross_entropy": cross_entropy_plan,
}


@pytest.mark.parametrize("name", ["gemm", "attention", "cross_entropy", "gemm_rs", "ag_gemm"])
def test_what_is_written_for_one_chip_is_chosen_on_no_other(name: str) -> None:
    """A kernel with explicit warps asks for instructions that only Hopper has: on others LLVM or ptxas would abort."""
    with imported(name) as submission:
        one_chip = {row.shape for row in submission.TABLE if row.kernel in ("warps", "loaded", "ring", "library")}
        assert one_chip
        for shape in one_chip:
            for chip in ("sm_80", "sm_86", "sm_89", "sm_100", "sm_103", "sm_120", "sm_121"):
                row = submission.nearest(submission.TABLE, chip, shape)
                assert row.kernel in ("plain", "engine", "registers"), (chip, row)
            assert submission.nearest(submission.TABLE, "sm_90", shape).chip == "sm_90"


@pytest.mark.parametrize("chip", LIKE["sm"])
@pytest.mark.parametrize("name", SINGLE)
def test_every_official_shape_has_a_kernel_that_fits_on_gpus_without_rows(name: str, chip: str) -> None:
    with imported(name) as submission:
        for case in official(name):
            plan = planned(name, submission, chip, dict(case.params))
            for compiling in compilers(name, plan):
                for kernel in compiled_all(chip, compiling):
                    assert kernel.spilled_bytes <= 32, case.label
                    assert kernel.fit >= 1, case.label


def unmeasured(submission: ModuleType) -> Iterator[tuple[Any, str]]:
    """Rows that say that they compile without spilling, with each chip that they are for."""
    claim = importlib.import_module("tuning").UNMEASURED
    for row in submission.TABLE:
        if row.found == claim:
            yield from ((row, chip) for chip in LIKE.get(row.chip, (row.chip,)))


@pytest.mark.parametrize("name", SINGLE)
def test_rows_that_nobody_has_measured_compile_without_spilling(name: str) -> None:
    """For every chip that takes them."""
    with imported(name) as submission:
        rows = list(unmeasured(submission))
        assert {chip for _, chip in rows} <= set(TARGETS)
        for row, chip in rows:
            with patch.object(torch.version, "hip", "6" if chip.startswith("gfx") else None):  # whose waves are of 64
                size = submission.Shape(*row.shape, row.shape[1], 8, False) if name == "cross_entropy" else row.shape
                of = chip_of(submission, chip)
                plan = submission.make_plan(row, of, *(size if name == "gemm" else (size,)))
                for compiling in compilers(name, plan):
                    for kernel in compiled_all(chip, compiling):
                        assert (kernel.spilled_bytes, kernel.fit > 0) == (0, True), (row, chip)


@pytest.mark.parametrize(("name", "place"), [("gemm", 0), ("attention", 0), ("attention", 2)])
def test_what_the_tuner_tries_with_explicit_warps_compiles_without_spilling(name: str, place: int) -> None:
    """Kernels too that no row of the table has."""
    params = dict(official(name)[place].params)
    with imported(name) as submission:
        source = ROOT / "submissions" / name / "space.py"
        space = importlib.util.module_from_spec(importlib.util.spec_from_file_location("space", source))
        space.__spec__.loader.exec_module(space)
        rows = [row for row in space.rows("sm_90", params) if row.kernel == "warps"]
        assert rows
        for row in rows:
            sizes = row.shape if name == "gemm" else (row.shape,)
            plan = submission.make_plan(row, chip_of(submission, "sm_90"), *sizes)
            for compiling in compilers(name, plan):
                for kernel in compiled_all("sm_90", compiling):
                    assert (kernel.spilled_bytes, kernel.fit > 0) == (0, True), row


@pytest.mark.parametrize("hidden", [1, 8, 24, 8192])
def test_rows_as_short_as_one_number_have_programs(hidden: int) -> None:
    """rms_norm, in both directions: a program has no fewer than 64 threads."""
    with imported("rms_norm") as submission:
        for backward in (False, True):
            params = {"rows": 1 << 20, "hidden": hidden, "backward": backward}
            plan = planned("rms_norm", submission, "sm_90", params)
            most = 132 * 2048 // 64  # programs of 64 threads that have room
            assert 0 < plan.steps[0].programs <= (most if backward else 1 << 20)
