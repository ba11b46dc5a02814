"""rms_norm with its residual, forward and backward: a row stays in registers from its first load to its last store.

Forward, a program does one row. In the backward pass a program takes rows one after the other, a grid apart, and loads
the next one while it works on one: it sums up the weight's gradient in registers. What programs have found, some
megabytes that lie in the L2, is added up by a second kernel, or by the same programs behind a barrier. Why it wins on
GPUs: eager torch passes over a row several times. CPU ranks work in rows that fit the cache.

Legend: M rows, H hidden dimension, P programs.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from common.launch import INTERPRETED, Launcher, ShapedLaunch, current_stream
from common.tuning import Chip, chip_of, nearest, warps_of
from task import input_t, output_t
from torch import Tensor
from tuning import TABLE, Row

LEAST_THREADS = 64  # of a program, however short a row is
SUMMED = 64  # columns of the weight's gradient that a program of `sum_up` sums up
LEAST_COLUMNS, SUMMED_EACH = 16, 32  # of the other programs: columns of one at least, and what a thread adds up at once
CACHED_BYTES = 8 << 20  # what CPU ranks have in the works at a time


def custom_kernel(data: input_t) -> output_t:
    x_MH, residual_MH, weight_H, grad_MH, eps = data
    if x_MH.is_cuda or INTERPRETED:
        return by_plan(plan_of(x_MH.device, tuple(x_MH.shape), grad_MH is not None), data)
    if grad_MH is None:
        return forward_on_cpu(x_MH, residual_MH, weight_H, eps)
    return backward_on_cpu(x_MH, residual_MH, weight_H, grad_MH, eps)


# ---- GPUs ------------------------------------------------------------------------------------------------------------


@triton.jit
def forward(
    x,  # bf16 [rows, hidden], as the next and the last two
    residual,
    weight,  # bf16 [hidden]
    normed,
    total,
    hidden,
    eps,
    BLOCK: tl.constexpr,
    LOADS: tl.constexpr,
    STORES: tl.constexpr,
):
    """A row of `total` = x + residual, rounded, and of `normed`."""
    at = tl.arange(0, BLOCK)
    inside = at < hidden
    place = tl.program_id(0).to(tl.int64) * hidden + at
    left = tl.load(x + place, mask=inside, other=0.0, eviction_policy=LOADS).to(tl.float32)
    right = tl.load(residual + place, mask=inside, other=0.0, eviction_policy=LOADS).to(tl.float32)
    factor = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    rounded = (left + right).to(total.dtype.element_ty)
    tl.store(total + place, rounded, mask=inside, cache_modifier=STORES)
    value = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value) / hidden + eps)
    result = (value * scale * factor).to(normed.dtype.element_ty)
    tl.store(normed + place, result, mask=inside, cache_modifier=STORES)


@triton.jit
def both_added(first, second, other_first, other_second):
    """Two sums at once, for tl.reduce."""
    return first + other_first, second + other_second


@triton.jit
def gradients(
    total,
    grad_total,
    weight,
    grad,
    out,
    rows,
    hidden,
    eps,
    BLOCK: tl.constexpr,
    LOADS: tl.constexpr,
    STORES: tl.constexpr,
):
    """Rows of `out`, the gradient of x and of the residual; returns this program's part of the weight's gradient."""
    at = tl.arange(0, BLOCK)
    inside = at < hidden
    factor = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    found = tl.zeros((BLOCK,), tl.float32)
    first, step = tl.program_id(0), tl.num_programs(0)
    place = tl.cast(first, tl.int64) * hidden + at
    next_value = tl.load(total + place, mask=inside, other=0.0, eviction_policy=LOADS)
    next_given = tl.load(grad + place, mask=inside, other=0.0, eviction_policy=LOADS)
    next_passed = tl.load(grad_total + place, mask=inside, other=0.0, eviction_policy=LOADS)
    for row in range(first, rows, step):
        place = tl.cast(row, tl.int64) * hidden + at
        value, given, passed = next_value.to(tl.float32), next_given.to(tl.float32), next_passed.to(tl.float32)
        ahead, there = place + step * hidden, at < tl.where(row + step < rows, hidden, 0)
        next_value = tl.load(total + ahead, mask=there, other=0.0, eviction_policy=LOADS)
        next_given = tl.load(grad + ahead, mask=there, other=0.0, eviction_policy=LOADS)
        next_passed = tl.load(grad_total + ahead, mask=there, other=0.0, eviction_policy=LOADS)
        # Both sums in one reduction, since each makes all threads wait for each other. In this order nothing of the
        # products is needed again, which would take registers.
        squares, products = tl.reduce((value * value, given * value * factor), 0, both_added)
        scale = tl.rsqrt(squares / hidden + eps)
        mean = products * scale / hidden
        value *= scale
        found += given * value
        given *= factor
        result = (passed + scale * (given - value * mean)).to(out.dtype.element_ty)
        tl.store(out + place, result, mask=inside, cache_modifier=STORES)
    return found


@triton.jit
def summed(partial, programs, hidden, at, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The sum of `partial` [programs, hidden] over programs, at COLUMNS columns `at`."""
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, programs, ROWS):
        row = start + tl.arange(0, ROWS)
        mask = (row < programs)[:, None] & (at < hidden)[None, :]
        total += tl.load(partial + row[:, None] * hidden + at[None, :], mask=mask, other=0.0, cache_modifier=".cg")
    return tl.sum(total, 0)


@triton.jit
def backward(
    total,  # bf16 [rows, hidden], as the next, `grad` and `out`
    grad_total,
    weight,  # bf16 [hidden]
    grad,
    out,
    partial,  # float32 [programs, hidden]
    rows,
    hidden,
    eps,
    BLOCK: tl.constexpr,
    LOADS: tl.constexpr,
    STORES: tl.constexpr,
):
    """`out`, and each program's part of the weight's gradient."""
    found = gradients(total, grad_total, weight, grad, out, rows, hidden, eps, BLOCK, LOADS, STORES)
    at = tl.arange(0, BLOCK)
    tl.store(partial + tl.program_id(0) * hidden + at, found, mask=at < hidden)


@triton.jit
def backward_together(
    total,  # the first six as above
    grad_total,
    weight,
    grad,
    out,
    partial,
    grad_weight,  # bf16 [hidden]
    arrived,  # int64: how many programs have come to the barrier, in all calls
    rows,
    hidden,
    eps,
    BLOCK: tl.constexpr,
    LOADS: tl.constexpr,
    STORES: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The same, and the weight's gradient: when all programs have stored their parts, each sums up some columns. All
    programs run at once."""
    found = gradients(total, grad_total, weight, grad, out, rows, hidden, eps, BLOCK, LOADS, STORES)
    at = tl.arange(0, BLOCK)
    tl.store(partial + tl.program_id(0) * hidden + at, found, mask=at < hidden)
    tl.debug_barrier()  # before this program says that it has, which one thread does
    programs = tl.num_programs(0)
    before = tl.atomic_add(arrived, 1, sem="acq_rel", scope="gpu")
    last = (before // programs + 1) * programs  # in this call
    seen = before + 1
    while seen < last:
        seen = tl.atomic_add(arrived, 0, sem="acquire", scope="gpu")
    tl.debug_barrier()
    for block in range(tl.program_id(0), tl.cdiv(hidden, COLUMNS), programs):
        columns = block * COLUMNS + tl.arange(0, COLUMNS)
        value = summed(partial, programs, hidden, columns, ROWS, COLUMNS)
        tl.store(grad_weight + columns, value.to(grad_weight.dtype.element_ty), mask=columns < hidden)


@triton.jit
def sum_up(partial, out, programs, hidden, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """`out` [H] is the sum of `partial` [programs, H] over programs."""
    at = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    value = summed(partial, programs, hidden, at, ROWS, COLUMNS)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=at < hidden)


launchers = {kernel: Launcher(kernel, all_at_once=False) for kernel in (forward, backward, sum_up)}
launchers[backward_together] = Launcher(backward_together)


class Plan(NamedTuple):
    """The launches of a call. `partial`: the shape of the parts of the weight's gradient (backward). `arrived`: for the
    barrier of programs that sum these up, how many have come to it in all calls, by stream."""

    steps: tuple[ShapedLaunch, ...]
    partial: tuple[int, int] | None
    arrived: dict[int, Tensor]

    def compile(self) -> list[Any]:
        """The kernels for the dtypes they are called with; fills Triton's cache."""
        bf16, float32 = torch.bfloat16, torch.float32
        if not self.partial:
            return [self.steps[0].compile((bf16,) * 5, (1e-5,))]
        if len(self.steps) == 1:
            return [self.steps[0].compile((*(bf16,) * 5, float32, bf16, torch.int64), (1e-5,))]
        return [self.steps[0].compile((*(bf16,) * 5, float32), (1e-5,)), self.steps[1].compile((float32, bf16))]


@cache
def plan_of(device: torch.device, shape: tuple[int, int], is_backward: bool) -> Plan:
    """The plan by the table."""
    chip = chip_of(device)
    return make_plan(nearest([row for row in TABLE if row.backward == is_backward], chip.name, shape), chip, shape)


def make_plan(row: Row, chip: Chip, shape: tuple[int, int]) -> Plan:
    rows, hidden = shape
    block = triton.next_power_of_2(hidden)
    threads = max(LEAST_THREADS, block // row.elements)
    constants, options = {"BLOCK": block, "LOADS": row.loads, "STORES": row.stores}, {"num_warps": warps_of(threads)}
    if not row.backward:
        return Plan((ShapedLaunch(launchers[forward], rows, (hidden,), constants, options),), None, {})
    programs = min(rows, chip.multiprocessors * max(1, row.resident // threads))
    if row.together:
        columns = max(LEAST_COLUMNS, triton.next_power_of_2(triton.cdiv(hidden, programs)))
        fitting = max(1, SUMMED_EACH * threads // columns)
        constants |= {"ROWS": min(fitting, triton.next_power_of_2(programs)), "COLUMNS": columns}
        step = ShapedLaunch(launchers[backward_together], programs, shape, constants, options)
        return Plan((step,), (programs, hidden), {})
    found = ShapedLaunch(launchers[backward], programs, shape, constants, options)
    total = {"ROWS": 32, "COLUMNS": SUMMED}
    last = ShapedLaunch(launchers[sum_up], triton.cdiv(hidden, SUMMED), (programs, hidden), total, {"num_warps": 4})
    return Plan((found, last), (programs, hidden), {})


def by_plan(plan: Plan, data: input_t) -> output_t:
    first_MH, second_MH, weight_H, grad_MH, eps = data
    out_MH = torch.empty_like(first_MH)
    if grad_MH is None:
        total_MH = torch.empty_like(first_MH)
        plan.steps[0]((first_MH, second_MH, weight_H, out_MH, total_MH), (float(eps),))
        return out_MH, total_MH
    sum_H, partial_PH = torch.empty_like(weight_H), weight_H.new_empty(plan.partial, dtype=torch.float32)
    given = (first_MH, second_MH, weight_H, grad_MH, out_MH, partial_PH)
    if len(plan.steps) == 1:
        plan.steps[0]((*given, sum_H, arrived_on(plan, weight_H.device)), (float(eps),))
    else:
        plan.steps[0](given, (float(eps),))
        plan.steps[1]((partial_PH, sum_H))
    return out_MH, sum_H


def arrived_on(plan: Plan, device: torch.device) -> Tensor:
    """The count of the plan's barrier on the current stream, whose calls follow each other. It only grows, by the
    number of programs with each call, so nobody resets it."""
    stream = current_stream()
    if stream not in plan.arrived:
        plan.arrived[stream] = torch.zeros(1, dtype=torch.int64, device=device)
    return plan.arrived[stream]


# ---- CPUs ------------------------------------------------------------------------------------------------------------


def forward_on_cpu(x_MH: Tensor, residual_MH: Tensor, weight_H: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    normed_MH, total_MH = torch.empty_like(x_MH), torch.empty_like(x_MH)
    weight_H = weight_H.float()
    for x_mH, residual_mH, normed_mH, total_mH in in_cache(x_MH, residual_MH, normed_MH, total_MH):
        torch.add(x_mH, residual_mH, out=total_mH)
        value_mH = total_mH.float()
        scale_m1 = torch.linalg.vector_norm(value_mH, dim=1, keepdim=True).square_()
        scale_m1.div_(value_mH.shape[1]).add_(eps).rsqrt_()
        normed_mH.copy_(value_mH.mul_(scale_m1).mul_(weight_H))
    return normed_MH, total_MH


def backward_on_cpu(
    total_MH: Tensor, grad_total_MH: Tensor, weight_H: Tensor, grad_MH: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    out_MH, hidden = torch.empty_like(total_MH), total_MH.shape[1]
    grad_weight_H, weight_H = torch.zeros_like(weight_H, dtype=torch.float32), weight_H.float()
    for total_mH, passed_mH, grad_mH, out_mH in in_cache(total_MH, grad_total_MH, grad_MH, out_MH):
        value_mH, given_mH = total_mH.float(), grad_mH.float()
        scale_m1 = torch.linalg.vector_norm(value_mH, dim=1, keepdim=True).square_()
        scale_m1.div_(hidden).add_(eps).rsqrt_()
        value_mH.mul_(scale_m1)
        product_mH = given_mH * value_mH
        grad_weight_H += product_mH.sum(0)
        mean_m1 = product_mH @ weight_H[:, None]
        given_mH.mul_(weight_H).addcmul_(value_mH, mean_m1, value=-1 / hidden)
        out_mH.copy_(given_mH.mul_(scale_m1).add_(passed_mH))
    return out_MH, grad_weight_H.to(torch.bfloat16)


def in_cache(*tensors_MH: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The tensors a few rows at a time."""
    step = max(1, CACHED_BYTES // (4 * len(tensors_MH) * tensors_MH[0].shape[1]))
    return zip(*(tensor.split(step) for tensor in tensors_MH), strict=True)
