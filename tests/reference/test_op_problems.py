"""The operators of one GPU: references, costs, the strict verdict on honest and wrong kernels, and the shipped kernels
interpreted and compiled for GPUs that are not here."""

import copy
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
import torch
from interpreting import quicken

from harness.core.checkout import ROOT, Checkout
from harness.core.records import Verdict
from harness.judging import correctness
from harness.machine import hardware
from harness.problems import shape_file
from harness.problems.drawn import drawn_cases
from harness.ranks.strict_check import parts_of
from tests import op_variants
from tests.compiled import chip_of, compiled_all
from tests.court import load_reference
from tests.kernel_ranks import imported
from tests.op_variants import VARIANTS, Variant
from tests.played_gluon import Machine

PROBLEMS = ("swiglu", "cross_entropy", "rms_norm")
WORST = {"swiglu": "rounded_between", "cross_entropy": "probabilities_in_bf16", "rms_norm": "rounded_sum_and_norm"}
WHOLE = {"swiglu": 6, "cross_entropy": 4, "rms_norm": 8}  # bytes an element, forward
on_every = pytest.mark.parametrize("name", PROBLEMS)


@cache
def reference_of(name: str) -> ModuleType:
    return load_reference(name)


@cache
def problem_of(name: str) -> Any:
    return shape_file.find(name, Checkout.here())


def inputs(name: str, params: dict[str, Any], seed: int, hardened: bool) -> Any:
    reference = reference_of(name)
    data = reference.generate_input(**params, rank=0, world_size=1, seed=seed)
    return reference.harden(data, seed) if hardened else data


def own_copy(data: Any) -> Any:
    """With the strides of tensors whose rows have gaps."""
    return tuple(
        torch.empty_strided((len(one), one.stride(0)), (one.stride(0), 1), dtype=one.dtype)[:, : one.shape[1]].copy_(
            one
        )
        if isinstance(one, torch.Tensor) and one.dim() == 2
        else copy.deepcopy(one)
        for one in data
    )


@cache
def trials(name: str, hardened: bool, quick: bool = False) -> list[tuple[dict[str, Any], Any, Any]]:
    """(parameters, data, right result) of all shapes of the suite `quick`, and of some drawn near them; unless `quick`
    also of the tests of `cpu`."""
    suites = problem_of(name).suites
    drawn = drawn_cases(problem_of(name), replace(suites["quick"], drawn=2), "two shapes of a test")
    cases = (*suites["quick"].tests, *suites["quick"].benchmarks, *drawn, *(() if quick else suites["cpu"].tests))
    made = []
    for case in cases:
        data = inputs(name, case.params, case.seed, hardened)
        before = own_copy(data)
        expected = reference_of(name).exact_kernel(data)
        assert all(torch.equal(a, b) for a, b in zip(before, data, strict=True) if isinstance(a, torch.Tensor))
        made.append((case.params, data, expected))
    return made


def judged(output: Any, expected: Any) -> Verdict:
    """The first of the result's tensors that is wrong, or the last one's verdict."""
    outputs = output if isinstance(output, tuple) else (output,)
    verdicts = [correctness.strict(one, right) for one, right in zip(outputs, parts_of(expected), strict=True)]
    return next((verdict for verdict in verdicts if not verdict.passed), verdicts[-1])


@pytest.mark.parametrize("variant", [one for one in VARIANTS if not one.is_honest], ids=lambda one: one.name)
def test_a_wrong_variant_fails_on_every_shape(variant: Variant) -> None:
    concerned = [trial for trial in trials(variant.problem, True) if variant.needs(trial[0])]
    assert concerned
    for params, data, expected in concerned:
        assert not judged(variant.kernel(own_copy(data)), expected).passed, params


@pytest.mark.parametrize("hardened", [True, False], ids=["hardened", "published"])
@pytest.mark.parametrize("variant", [one for one in VARIANTS if one.is_honest], ids=lambda one: one.name)
def test_an_honest_variant_passes_on_every_shape(variant: Variant, hardened: bool) -> None:
    for params, data, expected in trials(variant.problem, hardened):
        verdict = judged(variant.kernel(own_copy(data)), expected)
        assert verdict.passed, (params, verdict.message)


@on_every
def test_the_honest_variant_that_rounds_most_never_fails(name: str) -> None:
    kernel = next(one.kernel for one in VARIANTS if (one.problem, one.kernel.__name__) == (name, WORST[name]))
    for case in problem_of(name).suites["quick"].tests:
        for seed in range(60):
            data = inputs(name, case.params, seed, seed % 2 == 0)
            expected = reference_of(name).exact_kernel(data)
            verdict = judged(kernel(own_copy(data)), expected)
            assert verdict.passed, (seed, case.params, verdict.message)


@on_every
@pytest.mark.filterwarnings("error", "ignore::ResourceWarning")  # of what an earlier test left
def test_the_timed_reference_and_the_shipped_kernel_are_right_on_cpus(name: str) -> None:
    with imported(name) as submission:
        for hardened in (True, False):
            for params, data, expected in trials(name, hardened):
                for kernel in (reference_of(name).ref_kernel, submission.custom_kernel):
                    verdict = judged(kernel(own_copy(data)), expected)
                    assert verdict.passed, (kernel, params, verdict.message)
                output = reference_of(name).ref_kernel(own_copy(data))
                assert reference_of(name).check_implementation(own_copy(data), output) == (True, "")


@on_every
def test_right_results_are_those_of_autograd_in_float64(name: str) -> None:
    for _, data, expected in trials(name, True):
        for part, right in zip(parts_of(expected), AUTOGRAD[name](data), strict=True):
            assert (part.value - right).abs().max() <= 2e-6 * right.abs().max()
            assert bool((part.noise >= 0).all())


def autograd_swiglu(data: Any) -> tuple[torch.Tensor, ...]:
    x, grad = data
    leaf = x.double().requires_grad_()
    gate, up = leaf.chunk(2, 1)
    value = torch.nn.functional.silu(gate) * up
    return (value.detach(),) if grad is None else torch.autograd.grad(value, leaf, grad.double())


def autograd_rms_norm(data: Any) -> tuple[torch.Tensor, ...]:
    first, second, weight, grad, eps = data
    total = (first.double() + (second.double() if grad is None else 0)).requires_grad_()
    factor = weight.double().requires_grad_()
    value = torch.nn.functional.rms_norm(total, factor.shape, factor, eps)
    if grad is None:
        return value.detach(), total.detach()
    through, of_weight = torch.autograd.grad(value, (total, factor), grad.double())
    return through + second.double(), of_weight


def autograd_cross_entropy(data: Any) -> tuple[torch.Tensor, ...]:
    logits, targets, ignore_index, smoothing, scale = data
    leaf = logits.double().requires_grad_()
    options = {"ignore_index": ignore_index, "label_smoothing": smoothing}
    losses = torch.nn.functional.cross_entropy(leaf, targets, reduction="none", **options)
    mean = torch.nn.functional.cross_entropy(leaf, targets, **options)
    return losses.detach(), *torch.autograd.grad(scale * mean, leaf)


AUTOGRAD = {"swiglu": autograd_swiglu, "rms_norm": autograd_rms_norm, "cross_entropy": autograd_cross_entropy}


@on_every
def test_hardening_keeps_shapes_and_leaves_its_argument(name: str) -> None:
    for params, data, _ in trials(name, False):
        before = own_copy(data)
        hardened = reference_of(name).harden(data, 3)
        for old, kept, new in zip(before, data, hardened, strict=True):
            if isinstance(old, torch.Tensor):
                assert torch.equal(old, kept)
                assert (new.shape, new.dtype, new.stride()) == (old.shape, old.dtype, old.stride()), params
                assert bool(new.isfinite().all())
            else:
                assert (old, kept) == (new, new)


def test_sums_of_rounded_exponentials_fail_where_there_are_many_classes() -> None:
    """Float32's own sums, in order or in parts, are far from the bound."""
    sizes = {"tokens": 8, "vocab": 32000, "row_stride": 32000, "ignored": 0, "ignore_index": -100}
    for seed in range(4):
        for hardened in (False, True):
            options = {"label_smoothing": 0.0, "loss_scale": 1.0}
            data = inputs("cross_entropy", sizes | options, seed, hardened)
            right, _ = reference_of("cross_entropy").exact_kernel(data)
            value = data[0].float()
            top = value.amax(1, keepdim=True)
            chosen = value.gather(1, data[1][:, None])[:, 0]
            parts = (value - top).exp()
            sums = {"in parts": parts.view(8, 250, 128).sum(2).sum(1), "in order": parts.cumsum(1)[:, -1]}
            for order, total in sums.items():
                losses = total.log() + top[:, 0] - chosen
                margin = ((losses - right.value).abs() / right.noise).max()
                assert correctness.strict(losses, right).passed, (order, margin)
            rounded = parts.bfloat16().float().sum(1).log() + top[:, 0] - chosen
            assert not correctness.strict(rounded, right).passed


def test_the_mean_in_the_norms_gradient_may_be_of_rounded_factors() -> None:
    """Where both gradients are 0, the mean's error is all there is, and as large where the mean itself is nearly 0."""
    data = inputs("rms_norm", {"rows": 256, "hidden": 128, "backward": True, "eps": 1e-5}, 1, False)
    for tensor in (data[1], data[3]):
        tensor[:, ::2] = 0
    expected = reference_of("rms_norm").exact_kernel(data)
    for variant in VARIANTS:
        if variant.problem == "rms_norm" and variant.is_honest:
            assert judged(variant.kernel(own_copy(data)), expected).passed, variant.name
    assert not judged(op_variants.rms_norm(data, mean=slice(120)), expected).passed


def test_a_gradient_of_zeros_beside_the_target_is_refused_by_the_published_tolerance_too() -> None:
    sizes = {"tokens": 16, "vocab": 4096, "row_stride": 4096, "ignored": 0, "ignore_index": -100}
    data = inputs("cross_entropy", {**sizes, "label_smoothing": 0.0, "loss_scale": 1.0}, 3, False)
    losses, grad = reference_of("cross_entropy").ref_kernel(own_copy(data))
    at_target = torch.zeros_like(grad).scatter_(1, data[1][:, None], grad.gather(1, data[1][:, None]))
    check = reference_of("cross_entropy").check_implementation
    assert check(own_copy(data), (losses, grad)) == (True, "")
    assert not check(own_copy(data), (losses, at_target))[0]


def test_ignored_tokens_are_as_many_as_the_case_says() -> None:
    for params, data, _ in trials("cross_entropy", True):
        assert int((data[1] == params["ignore_index"]).sum()) == params["ignored"]
        assert data[0].stride() == (params["row_stride"], 1)


@on_every
def test_costs_are_the_published_bytes_and_anchors(name: str) -> None:
    """6 M F and 10 M F, 4 M V, 8 M H bytes; the limits on an H200 that the docstrings say."""
    problem = problem_of(name)
    anchors = {"swiglu": [293.6, 489.3] * 2, "cross_entropy": [218.5, 1751], "rms_norm": [111.8] * 4}[name]
    for case, anchor in zip(problem.suites["official"].benchmarks, anchors, strict=True):
        rows, columns, *_ = case.params.values()
        whole = (10 if case.params.get("backward") and name == "swiglu" else WHOLE[name]) * rows * columns
        cost = problem.cost(case)
        assert whole <= cost.hbm_bytes <= 1.001 * whole
        value_us, by = hardware.bound(cost, hardware.peaks("h200"))
        assert (by, value_us) == ("hbm", pytest.approx(anchor, rel=1e-3))
    if name == "cross_entropy":
        assert cost.held_bytes == 2 * rows * columns + 12 * rows


# ---- kernels ---------------------------------------------------------------------------------------------------------


def play_interpreted() -> None:
    """Run with TRITON_INTERPRET: the shipped kernels on the small shapes, under the strict verdict."""
    quicken()
    for name in PROBLEMS:
        with imported(name) as submission:
            assert submission.INTERPRETED
            for _, data, expected in trials(name, True, quick=True):
                verdict = judged(submission.custom_kernel(own_copy(data)), expected)
                assert verdict.passed, (name, verdict.message)
                if name == "rms_norm" and data[3] is not None:
                    row, chip = submission.TABLE[-1]._replace(together=True), submission.Chip("interpreter", 1, 1)
                    plan = submission.make_plan(row, chip, tuple(data[0].shape))
                    for _ in range(2):  # the barrier's count goes on
                        verdict = judged(submission.by_plan(plan, data), expected)
                        assert verdict.passed, verdict.message
                if name == "cross_entropy":
                    losses, copy = torch.empty(len(data[1])), own_copy(data)
                    row, chip = submission.TABLE[-1], submission.Chip("interpreter", 1, 1)
                    submission.by_plan(submission.plan_twice(row, chip, submission.shape_of(copy)), copy, losses)
                    verdict = judged((losses, copy[0]), expected)
                    assert verdict.passed, verdict.message


@pytest.mark.slow
def test_interpreted_kernels_are_right() -> None:
    environment = os.environ | {
        "TRITON_INTERPRET": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
    }
    program = "from tests.reference.test_op_problems import play_interpreted; play_interpreted()"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


MOST_SPILLED_BYTES = 32  # of a thread
WIDE = re.compile(r"ld\.global[.\w:]*\.v4|cp\.async\.cg\.shared\.global|global_load_dwordx4|buffer_load_dwordx4")


def plans(name: str, submission: ModuleType, chip: str) -> Iterator[tuple[Any, Any]]:
    """Rows of the table for that chip with their plans, for the shape that a row is for; smoothed too, if it can be."""
    for row in submission.TABLE:
        if row.chip != chip:
            continue
        shapes = [row.shape]
        if name == "cross_entropy":
            shapes = [submission.Shape(*row.shape, row.shape[1], 8, smooth) for smooth in (False, True)]
        for shape in shapes:
            with patch.object(torch.version, "hip", "6" if chip == "gfx942" else None):  # whose waves are of 64
                plan = submission.make_plan(row, chip_of(submission, chip), shape)
            if plan is not None:
                yield row, plan


@pytest.mark.parametrize("chip", ["sm_90", "gfx942"])
@on_every
def test_every_row_of_the_tables_compiles_for_gpus_that_are_not_here(name: str, chip: str) -> None:
    """In registers, with wide loads; of programs that wait for each other, all run at once."""
    with imported(name) as submission:
        found_plans = list(plans(name, submission, chip))
        assert {row for row, _ in found_plans} == {row for row in submission.TABLE if row.chip == chip}
        for row, plan in found_plans:
            for found in compiled_all(chip, plan.compile):
                assert found.spilled_bytes <= MOST_SPILLED_BYTES, row
                assert WIDE.search(found.assembly), row
                if name == "cross_entropy" and plan.parts > 1:
                    assert found.fit >= row.resident, row
                if name == "rms_norm" and chip == "sm_90":
                    assert 32 * found.warps * found.fit >= row.resident, row


# ---- cross_entropy's Gluon kernels -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "tokens", "vocab", "stride", "ignored", "smoothing", "parts", "slots", "lag"),
    [
        pytest.param("ring", 7, 200, 208, 2, 0.1, 1, 2, 0, id="ring: whole rows, gaps between them, two ahead"),
        pytest.param("ring", 9, 1000, 1000, 3, 0.0, 4, 3, 1, id="ring: parts, the gradient a row behind"),
        pytest.param("ring", 5, 600, 600, 1, 0.1, 2, 3, 1, id="ring: parts, smoothed"),
        pytest.param("ring", 1, 600, 600, 0, 0.1, 2, 3, 0, id="ring: fewer rows than groups of programs"),
        pytest.param("loaded", 7, 200, 208, 2, 0.0, 1, 2, 0, id="loaded: gaps between rows, one ahead"),
        pytest.param("loaded", 9, 1000, 1000, 3, 0.0, 1, 2, 0, id="loaded: vectors that are inside in all threads"),
        pytest.param("loaded", 1, 600, 600, 0, 0.0, 1, 2, 0, id="loaded: fewer rows than programs"),
    ],
)
def test_a_gluon_kernel_is_right_played_on_a_cpu(
    kernel: str, tokens: int, vocab: int, stride: int, ignored: int, smoothing: float, parts: int, slots: int, lag: int
) -> None:
    """Two groups of programs of a warp each."""
    sizes = {"tokens": tokens, "vocab": vocab, "row_stride": stride, "ignored": ignored, "ignore_index": -100}
    data = inputs("cross_entropy", {**sizes, "label_smoothing": smoothing, "loss_scale": 8.0}, 5, True)
    expected = reference_of("cross_entropy").exact_kernel(data)
    losses, told = torch.full((tokens,), math.nan), torch.zeros(2, tokens, parts, dtype=torch.int64)
    with imported("cross_entropy") as submission:
        row = submission.Row("sm_90", (tokens, vocab), kernel, parts, 32, 1, slots, lag, "")
        plan = submission.make_plan(row, submission.Chip("sm_90", 2 * parts, 1), submission.shape_of(data))
    modules, heard = (["ring"], [told[0].clone(), told[1].clone()]) if kernel == "ring" else (["ring", "loaded"], [])
    machine = Machine(programs=2 * parts, warps=1)
    played = machine.kernel("cross_entropy", modules, f"{kernel}_kernel")
    machine.run(played, [*data[:2], losses, *heard], [*plan.step.numbers, *data[2:]], **plan.step.constants)
    verdict = judged((losses, data[0]), expected)
    assert verdict.passed, verdict.message


@pytest.mark.parametrize(
    ("vocab", "stride", "smooth", "kernel", "parts"),
    [
        pytest.param(32000, 32000, False, "loaded", 1, id="a row of the table"),
        pytest.param(32000, 32000, True, "ring", 4, id="smoothed, which takes more than bf16"),
        pytest.param(50304, 50304, False, "ring", 8, id="too long for registers"),
        pytest.param(2048, 2048, False, "ring", 1, id="too short for programs that have a row each"),
        pytest.param(32000, 32001, False, "twice", 1, id="rows at odd addresses"),
    ],
)
def test_rows_are_loaded_whole_where_they_fill_registers(
    vocab: int, stride: int, smooth: bool, kernel: str, parts: int
) -> None:
    with imported("cross_entropy") as submission:
        shape = submission.Shape(8192, vocab, stride, math.gcd(vocab, stride, 8), smooth)
        with patch.object(submission, "chip_of", lambda device: chip_of(submission, "sm_90")):
            plan = submission.plan_of.__wrapped__(torch.device("cpu"), shape)
        assert (plan.kernel, plan.parts) == (kernel, parts)


@pytest.mark.parametrize("shape", [(8192, 8192), (16384, 4096)])
def test_programs_that_sum_up_together_all_run_at_once(shape: tuple[int, int]) -> None:
    """And what they have stored is there before they say so, and is read when all have said so."""
    with imported("rms_norm") as submission:
        row = submission.Row("sm_90", shape, True, 16, 512, "evict_last", "", True, "")
        chip = chip_of(submission, "sm_90")
        plan = submission.make_plan(row, chip, shape)
        (found,) = compiled_all("sm_90", plan.compile)
        (step,) = plan.steps
        assert step.launcher.all_at_once
        assert step.programs <= found.fit * chip.multiprocessors
    assert found.spilled_bytes == 0
    stored, _, rest = found.assembly.rpartition("atom.global.gpu.acq_rel.add")
    assert "bar.sync" in stored[stored.rindex("st.global") :]
    assert rest.index(".acquire") < rest.index("bar.sync", rest.index(".acquire")) < rest.index("ld.global.cg")


def test_streams_compile_for_hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of bench/streams.py: without spilling, and as many programs fit as are launched."""
    with imported("cross_entropy"):
        monkeypatch.syspath_prepend(ROOT / "bench")
        import streams

        words = (torch.int32, torch.int32)
        calls = [
            (streams.double, (*words, "evict_last", ".wt", streams.WORDS), 8),
            (streams.stay_double, (*words, 32000, 4096, True, "evict_last"), 4),
            (streams.ring_double, (*words, 32000, streams.WORDS, streams.SLOTS, ""), streams.WARPS),
            (streams.bulk_move, (*words, 32000, 16, streams.INNER, streams.SLOTS), 1),
            (streams.mix, (*words * 2, torch.int32, 4096, 8192, 8192, 3, 2, "evict_last", ".cs", "", 1024), 8),
            (streams.mix, (*words * 2, torch.int32, 4096, 8192, 4096, 2, 1, "evict_first", "", "evict_last", 1024), 8),
        ]
        found = compiled_all(
            "sm_90", lambda: [kernel.warmup(*given, grid=(1,), num_warps=warps) for kernel, given, warps in calls]
        )
    assert all(one.spilled_bytes == 0 and one.fit >= streams.RESIDENT for one in found)
