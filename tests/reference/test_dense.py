"""gemm and attention: the references say what is right, the strict verdict tells honest kernels from wrong ones, and
the entries' kernels are right interpreted and compile for GPUs."""

import copy
import math
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from compiled import chip_of, compiled
from kernel_ranks import ROOT, imported
from torch import Tensor

from harness.core.checkout import Checkout
from harness.core.records import Case
from harness.judging import correctness
from harness.judging.correctness import Expected
from harness.machine import hardware
from harness.problems import shape_file
from tests.court import load_reference

PROBLEMS = ("gemm", "attention")
Kernel = Callable[[ModuleType, Any], Any]
LOG2E = math.log2(math.e)


def cases(name: str) -> list[Case]:
    """Every shape of the small suites."""
    suites = shape_file.find(name, Checkout.here()).suites
    return [case for suite in ("quick", "cpu") for case in (*suites[suite].tests, *suites[suite].benchmarks)]


def verdicts(output: Any, expected: Any) -> list[correctness.Verdict]:
    """One for each tensor of the result."""
    pairs = zip(output, expected, strict=True) if isinstance(expected, tuple) else [(output, expected)]
    return [correctness.strict(*pair) for pair in pairs]


@pytest.fixture(scope="module", params=PROBLEMS)
def trials(request: pytest.FixtureRequest) -> tuple[str, ModuleType, list[tuple[Case, Any, Any, Any]]]:
    """The problem, its reference, and each shape with its published and its hardened input and what is right."""
    reference = load_reference(request.param)
    made = []
    for case in cases(request.param):
        data = reference.generate_input(rank=0, world_size=1, seed=case.seed, **case.params)
        for inputs in (data, reference.harden(data, 5)):
            made.append((case, inputs, reference.exact_kernel(inputs), inputs is not data))
    return request.param, reference, made


# ---- honest and wrong kernels ----------------------------------------------------------------------------------------


def scaled_fp8(values: Tensor) -> Tensor:
    """Rounded to fp8 (e4m3) with a scale that uses its range."""
    scale = values.abs().amax().float() / 448
    return ((values.float() / scale).to(torch.float8_e4m3fn).float() * scale).to(values.dtype)


def product(reference: ModuleType, data: Any) -> Tensor:
    return (data[0].float() @ data[1].float().T).bfloat16()


def split_k(reference: ModuleType, data: Any) -> Tensor:
    half = data[0].shape[1] // 2
    low, high = (data[0][:, part].float() @ data[1][:, part].float().T for part in (slice(half), slice(half, None)))
    return (low + high).bfloat16()


def last_tile_lost(reference: ModuleType, data: Any) -> Tensor:
    out = product(reference, data)
    out[-16:, -16:] = 0
    return out


def part_of_k_dropped(reference: ModuleType, data: Any) -> Tensor:
    kept = data[0].shape[1] * 7 // 8
    return product(reference, (data[0][:, :kept], data[1][:, :kept]))


def bf16_halves(reference: ModuleType, data: Any) -> Tensor:
    """The sums of both halves of the depth rounded, then added in float32."""
    half = data[0].shape[1] // 2
    low, high = (data[0][:, part].float() @ data[1][:, part].float().T for part in (slice(half), slice(half, None)))
    return (low.bfloat16().float() + high.bfloat16().float()).bfloat16()


def fp16_sums(reference: ModuleType, data: Any) -> Tensor:
    """Sums in fp16, as some matrix units add twice as fast."""
    total = torch.zeros(len(data[0]), len(data[1]), dtype=torch.float16)
    for left, right in zip(data[0].split(16, 1), data[1].split(16, 1), strict=True):
        total = (total.float() + left.float() @ right.float().T).half()
    return total.bfloat16()


def strassen(reference: ModuleType, data: Any) -> Tensor:
    """Seven products of bf16 sums of quarters, in place of eight products."""
    (a, b), (c, d) = (half.float().chunk(2, 1) for half in data[0].chunk(2))
    (e, g), (f, h) = (half.float().chunk(2, 1) for half in data[1].chunk(2))  # transposed: e f / g h
    r = [one.bfloat16().float() for one in (a + d, e + h, c + d, f - h, g - e, a + b, c - a, e + f, b - d, g + h)]
    m1, m2, m3, m4 = r[0] @ r[1].T, r[2] @ e.T, a @ r[3].T, d @ r[4].T
    m5, m6, m7 = r[5] @ h.T, r[6] @ r[7].T, r[8] @ r[9].T
    rows = (torch.cat([m1 + m4 - m5 + m7, m3 + m5], 1), torch.cat([m2 + m4, m1 - m2 + m3 + m6], 1))
    return torch.cat(rows).bfloat16()


def int8_rows(values: Tensor) -> Tensor:
    """Rounded to int8 with a scale for each row."""
    scale = values.abs().amax(-1, keepdim=True).float() / 127
    return ((values.float() / scale).round() * scale).to(values.dtype)


def bf16_sums(reference: ModuleType, data: Any) -> Tensor:
    """Sums rounded after each quarter of the depth."""
    total = torch.zeros(len(data[0]), len(data[1]), dtype=torch.bfloat16)
    for left, right in zip(data[0].chunk(8, 1), data[1].chunk(8, 1), strict=True):
        total = (total.float() + left.float() @ right.float().T).bfloat16()
    return total


def attend(
    data: Any,
    *,
    scale: float = 1.0,
    shift: int = 0,
    group: int = 1,
    weights: torch.dtype = torch.bfloat16,
    top: bool = True,
    product_of: str = "the output",
    product_scale: float = 1.0,
    rounded: str = "",
    far: int = 0,
    apart: bool = False,
    divided: bool = False,
) -> Any:
    """Attention by its formula, forward or backward, with faults to choose: a scale that is off, a mask that is `shift`
    too wide, heads that take the wrong keys, weights of another dtype, no maximum subtracted, what do o comes from, or
    by how much it is off; which operand of the scores, or the scores, are `rounded` to bf16 once they are scaled; keys
    that are left out, as they are too `far` back; gradients that heads share rounded `apart`, before their sum; weights
    rounded once `divided` by their sum, in place of before."""
    queries, keys, values, saved = data
    share = queries.shape[1] // keys.shape[1]
    order = torch.arange(queries.shape[1]) // share if group == 1 else torch.arange(queries.shape[1]) % keys.shape[1]
    q, k, v = queries.float(), keys.float()[:, order], values.float()[:, order]
    scale *= q.shape[-1] ** -0.5
    seq = q.shape[2]
    hidden = torch.ones(seq, seq, dtype=torch.bool).triu(1 + shift)
    if far:
        hidden |= torch.ones_like(hidden).tril(-far)
    left, right = (rounding(one, scale * LOG2E if rounded == of else 0) for of, one in (("queries", q), ("keys", k)))
    scores = rounding(left @ right.transpose(2, 3) * scale, rounded == "scores").masked_fill(hidden, -math.inf)
    if saved is None:
        p = (scores - (scores.amax(-1, keepdim=True) if top else 0)).exp()
        if divided:
            return ((p / p.sum(-1, keepdim=True)).to(weights).float() @ v).bfloat16()
        return ((p.to(weights).float() @ v) / p.sum(-1, keepdim=True)).bfloat16()
    p = (scores - saved.logarithm_BHS[..., None]).exp()
    do = saved.gradient_BHSD.float()
    delta = (do * saved.output_BHSD.float()).sum(-1, keepdim=True)
    if not top:  # the other sum in another order: where they cancel, only the orders differ
        delta = (do * saved.output_BHSD.float()).flip(-1).cumsum(-1)[..., -1:]
    dp = do @ v.transpose(2, 3)
    if product_of == "an output of its own":
        delta = (do * attend((queries, keys, values, None)).float()).sum(-1, keepdim=True)
    if product_of == "the weights":
        delta = (p * dp).sum(-1, keepdim=True)
    ds = p * (dp - product_scale * delta)
    p, ds = p.to(weights).float(), ds.to(weights).float()
    shared = (len(q), keys.shape[1], share, seq, q.shape[-1])
    dq, dk, dv = ds @ k * scale, ds.transpose(2, 3) @ q * scale, p.transpose(2, 3) @ do
    return dq.bfloat16(), *(rounding(one.view(shared), apart).sum(2).bfloat16() for one in (dk, dv))


def rounding(values: Tensor, factor: float) -> Tensor:
    """In bf16 once multiplied by the factor; as they are with a factor of 0."""
    return (values * factor).bfloat16().float() / factor if factor else values


def in_blocks(data: Any) -> Any:
    """As FlashAttention goes forward, by blocks of 16 keys: weights by the maximum so far, powers of 2, divided by
    their sum last. Backward, heads that share gradients round theirs apart."""
    queries, keys, values, saved = data
    if saved is not None:
        return attend(data, apart=True)
    k, v = (one.float().repeat_interleave(queries.shape[1] // keys.shape[1], 1) for one in (keys, values))
    seq, dim = queries.shape[2:]
    hidden = torch.ones(seq, seq, dtype=torch.bool).triu(1)
    scores = (queries.float() @ k.transpose(2, 3) * (dim**-0.5 * LOG2E)).masked_fill(hidden, -math.inf)
    total, out, peak = torch.zeros(*scores.shape[:3], 1), torch.zeros_like(queries, dtype=torch.float32), -1e30
    for block, v_block in zip(scores.split(16, -1), v.split(16, 2), strict=True):
        higher = block.amax(-1, keepdim=True).clamp_min(peak)
        fade, p = torch.exp2(peak - higher), torch.exp2(block - higher)
        total = total * fade + p.sum(-1, keepdim=True)
        out, peak = out * fade + p.bfloat16().float() @ v_block, higher
    return (out / total).bfloat16()


def last_keys_dropped(reference: ModuleType, data: Any) -> Any:
    """The last 16 keys of every head are 0."""
    queries, keys, values, saved = data
    keys, values = keys.clone(), values.clone()
    keys[:, :, -16:], values[:, :, -16:] = 0, 0
    return attend((queries, keys, values, saved))


def smoothed_int8_keys(reference: ModuleType, data: Any) -> Any:
    """What is the same in all keys is kept, the rest rounded to int8, as SageAttention does it."""
    keys = data[1].float()
    mean = keys.mean(2, keepdim=True)
    return attend((data[0], int8_rows(keys - mean) + mean, *data[2:]))


def product_off(reference: ModuleType, data: Any) -> Any:
    """The output's product with its gradient is off by 3 %; a forward call is off as much."""
    return (attend(data).float() * 1.03).bfloat16() if data[3] is None else attend(data, product_scale=1.03)


def first_gradient_lost(reference: ModuleType, data: Any) -> Any:
    """One head's contribution to the shared gradients is missing."""
    out = attend(data)
    if data[3] is None:
        return (out.float() * 1.02).bfloat16()
    out[2][0, 0] -= attend((data[0][:1, :1], data[1][:1, :1], data[2][:1, :1], cut(data[3])))[2][0, 0]
    return out


def cut(saved: Any) -> Any:
    return type(saved)(*(tensor[:1, :1] for tensor in saved))


HONEST: dict[str, dict[str, Kernel]] = {
    "gemm": {
        "one_rounding": product,
        "split_k": split_k,
        "library": lambda reference, data: reference.ref_kernel(data),
    },
    "attention": {
        "bf16_weights": lambda reference, data: attend(data),
        "sums_in_another_order": lambda reference, data: attend(data, top=data[3] is None),
        "float32_weights": lambda reference, data: attend(data, weights=torch.float32),
        "its_own_output": lambda reference, data: attend(data, product_of="an output of its own"),
        "no_output": lambda reference, data: attend(data, product_of="the weights"),
        "in_blocks": lambda reference, data: in_blocks(data),
        "weights_rounded_once_divided": lambda reference, data: attend(data, divided=True),
        "library": lambda reference, data: reference.ref_kernel(data),
    },
}
WRONG: dict[str, dict[str, Kernel]] = {
    "gemm": {
        "last_tile_lost": last_tile_lost,
        "part_of_k_dropped": part_of_k_dropped,
        "fp8_inputs": lambda reference, data: product(reference, tuple(map(scaled_fp8, data))),
        "fp8_weight": lambda reference, data: product(reference, (data[0], scaled_fp8(data[1]))),
        "int8_inputs": lambda reference, data: product(reference, tuple(map(int8_rows, data))),
        "bf16_sums": bf16_sums,
        "bf16_halves": bf16_halves,
        "fp16_sums": fp16_sums,
        "strassen": strassen,
    },
    "attention": {
        "scale_off": lambda reference, data: attend(data, scale=1.05),
        "mask_too_wide": lambda reference, data: attend(data, shift=1),
        "mask_too_narrow": lambda reference, data: attend(data, shift=-1),
        "fp8_weights": lambda reference, data: attend(data, weights=torch.float8_e4m3fn),
        "fp8_values": lambda reference, data: attend((*data[:2], scaled_fp8(data[2]), data[3])),
        "scaled_queries_rounded": lambda reference, data: attend(data, rounded="queries"),
        "scaled_keys_rounded": lambda reference, data: attend(data, rounded="keys"),
        "scores_rounded": lambda reference, data: attend(data, rounded="scores"),
        "smoothed_int8_keys": smoothed_int8_keys,
        "far_keys_left_out": lambda reference, data: attend(data, far=data[0].shape[2] - 4),
        "last_keys_dropped": last_keys_dropped,
        "product_off": product_off,
        "first_gradient_lost": first_gradient_lost,
    },
}


def test_honest_kernels_pass_on_every_shape(trials: Any) -> None:
    name, reference, made = trials
    for label, kernel in HONEST[name].items():
        for case, data, expected, _ in made:
            for verdict in verdicts(kernel(reference, copy.deepcopy(data)), expected):
                assert verdict.passed, (label, case.label, verdict.message)


def test_wrong_kernels_fail_on_every_hardened_shape(trials: Any) -> None:
    name, reference, made = trials
    for label, kernel in WRONG[name].items():
        for case, data, expected, hardened in made:
            if hardened:
                found = verdicts(kernel(reference, copy.deepcopy(data)), expected)
                assert any(not verdict.passed for verdict in found), (label, case.label)


def test_hardened_scores_overflow_without_a_maximum() -> None:
    reference = load_reference("attention")
    (case,) = [case for case in cases("attention") if not case.params["backward"]][:1]
    data = reference.generate_input(rank=0, world_size=1, seed=1, **case.params)
    for inputs, passes in ((data, True), (reference.harden(data, 1), False)):
        assert correctness.strict(attend(inputs, top=False), reference.exact_kernel(inputs)).passed == passes


def test_the_queries_heads_that_share_keys_are_neighbours() -> None:
    reference = load_reference("attention")
    params = {"batch": 1, "heads": 4, "kv_heads": 2, "seq": 32, "dim": 16}
    for backward in (False, True):
        data = reference.generate_input(rank=0, world_size=1, seed=1, backward=backward, **params)
        expected = reference.exact_kernel(data)
        assert all(verdict.passed for verdict in verdicts(attend(data), expected))
        assert not all(verdict.passed for verdict in verdicts(attend(data, group=2), expected))


def test_the_exact_gradients_are_those_of_autograd_in_float64() -> None:
    reference = load_reference("attention")
    params = {"batch": 2, "heads": 4, "kv_heads": 2, "seq": 24, "dim": 16, "backward": True}
    queries, keys, values, saved = reference.generate_input(rank=0, world_size=1, seed=3, **params)
    leaves = [tensor.double().requires_grad_() for tensor in (queries, keys, values)]
    out = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True, enable_gqa=True)
    # A given output that is rounded changes the gradients; the exact one is what autograd has.
    exact = saved._replace(output_BHSD=out.detach())
    found: tuple[Expected, ...] = reference.exact_kernel((queries, keys, values, exact))
    for one, right in zip(found, torch.autograd.grad(out, leaves, saved.gradient_BHSD.double()), strict=True):
        assert (one.value - right).abs().max() < 1e-5 * right.abs().max()


@pytest.mark.parametrize(
    ("name", "place", "us"),
    [("gemm", 0, 1389.68), ("gemm", 2, 7782.19), ("attention", 0, 1111.74), ("attention", 2, 2779.35)],
)
def test_the_cost_has_its_anchors_on_an_h200(name: str, place: int, us: float) -> None:
    problem = shape_file.find(name, Checkout.here())
    bound, by = hardware.bound(problem.cost(problem.suite("official").benchmarks[place]), hardware.peaks("H200"))
    assert (round(bound, 2), by) == (us, "flops")


def test_the_bytes_of_a_call() -> None:
    cost = shape_file.find("gemm", Checkout.here()).suite("quick").benchmarks[0]
    assert shape_file.find("gemm", Checkout.here()).cost(cost).hbm_bytes == 2 * (64 * 64 + 80 * 64 + 64 * 80)
    attention = shape_file.find("attention", Checkout.here())
    forward, backward = map(attention.cost, attention.suite("quick").benchmarks)  # 2 heads, 1 of keys, 64 x 32
    assert forward.hbm_bytes == 2 * 64 * 32 * 6
    assert backward.hbm_bytes == 2 * 64 * 32 * 12 + 4 * 2 * 64


# ---- the entries -----------------------------------------------------------------------------------------------------

INTERPRETED = """
import sys, torch
sys.path[:0] = {paths!r}
import interpreting
interpreting.quicken()
import submission
from tests.reference.test_dense import cases, verdicts
import reference
for case in cases({name!r}):
    if case.params.get("seq", 0) > 64 or case.params.get("m", 0) > 128:
        continue
    data = reference.harden(reference.generate_input(rank=0, world_size=1, seed=case.seed, **case.params), 1)
    kept = [tensor.clone() for tensor in data if isinstance(tensor, torch.Tensor)]
    found = verdicts(submission.custom_kernel(data), reference.exact_kernel(data))
    assert all(one.passed for one in found), (case.label, found)
    now = [tensor for tensor in data if isinstance(tensor, torch.Tensor)]
    assert all(map(torch.equal, kept, now)), case.label
    print(case.label)
"""


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_plain_kernels_are_right_interpreted(name: str) -> None:
    """In a process of its own, as Triton decides when it is imported."""
    parts = (f"reference/{name}", "reference/common", f"submissions/{name}", "submissions", "tests", ".")
    source = INTERPRETED.format(paths=[str(ROOT / part) for part in parts], name=name)
    command = [sys.executable, "-c", source]
    result = subprocess.run(
        command, env={"TRITON_INTERPRET": "1", "PATH": ""}, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert len(result.stdout.splitlines()) >= 2


def compilations(submission: ModuleType, name: str, chip: str) -> list[tuple[Any, Any, Any]]:
    """Each row of that chip with a launch of its plan and the kernel as it would be launched."""
    found = []
    for row in submission.TABLE:
        if row.chip == chip:
            plan = submission.make_plan(
                row, chip_of(submission, chip), *((row.shape,) if name == "attention" else row.shape)
            )
            steps = (
                [] if plan is None else plan.examples() if name == "attention" else [(plan, plan.example_arguments())]
            )
            found += [
                (row, step, compiled(chip, step.launch, arguments, step.constants, step.options))
                for step, arguments in steps
            ]
    return found


@pytest.mark.parametrize("chip", ["sm_90", "gfx942"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_every_row_of_the_tables_compiles_without_spilling_and_a_program_fits(name: str, chip: str) -> None:
    with imported(name) as submission:
        found = compilations(submission, name, chip)
        assert found
        for row, _, kernel in found:
            assert kernel.spilled_bytes == 0, row
            assert kernel.fit >= 1, row


def test_hopper_kernels_multiply_asynchronously_and_load_by_bulk_copies() -> None:
    for name in PROBLEMS:
        with imported(name) as submission:
            for row, _, kernel in compilations(submission, name, "sm_90"):
                if row.kernel == "warps" and "wgmma" in kernel.assembly:
                    assert "cp.async.bulk.tensor.2d.shared" in kernel.assembly, row
                    assert "setmaxnreg" in kernel.assembly, row


def test_shapes_that_no_kernel_can_do_are_for_the_library() -> None:
    with imported("gemm") as submission:
        row = submission.TABLE[0]
        assert submission.make_plan(row, chip_of(submission, "sm_90"), 64, 60, 64) is None
    with imported("attention") as submission:
        chip, rows = chip_of(submission, "sm_90"), submission.TABLE
        assert submission.make_plan(rows[0], chip, (4, 2, 100, 128)) is None
        assert submission.make_plan(rows[0], chip, (4, 2, 128, 96)) is None
        assert submission.make_plan(rows[0], chip, (4, 2, 256, 64)) is not None
