"""swiglu, forward and backward, as one elementwise pass: every input element is read once, every result written once.

A program does a block of columns of one row, so that all its loads are in flight before it needs the first. The table
(tuning.py) has the blocks. Arithmetic is in float32 and each result is rounded once. Why it wins on GPUs: eager torch
writes silu(gate) to memory and reads it back, and its backward pass makes a dozen such tensors, in float32. CPU ranks
work in rows that fit the cache, so that what lies between the steps never goes to memory. It pays in the backward pass;
forward, the exponential alone takes longer than memory does.

Legend: M rows, F columns of the result.
"""

from functools import cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from common.launch import INTERPRETED, Launcher, ShapedLaunch
from common.tuning import Chip, chip_of, nearest, warps_of
from task import input_t, output_t
from torch import Tensor
from tuning import TABLE, Row

CACHED_BYTES = 8 << 20  # what CPU ranks have in the works at a time


def custom_kernel(data: input_t) -> output_t:
    x_M2F, grad_MF = data
    if x_M2F.is_cuda or INTERPRETED:
        return by_plan(plan_of(x_M2F.device, shape_of(x_M2F), grad_MF is not None), data)
    return forward_on_cpu(x_M2F) if grad_MF is None else backward_on_cpu(x_M2F, grad_MF)


# ---- GPUs ------------------------------------------------------------------------------------------------------------


@triton.jit
def forward(
    x,  # bf16 [rows, 2 columns], gates first
    out,  # bf16 [rows, columns]
    columns,
    BLOCK: tl.constexpr,
    LOADS: tl.constexpr,
    STORES: tl.constexpr,
):
    """A block of a row of `out`."""
    blocks = tl.cdiv(columns, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = at < columns
    line = x + row * 2 * columns
    gate = tl.load(line + at, mask=inside, eviction_policy=LOADS).to(tl.float32)
    up = tl.load(line + columns + at, mask=inside, eviction_policy=LOADS).to(tl.float32)
    value = gate * up / (1 + tl.exp(-gate))
    tl.store(out + row * columns + at, value.to(out.dtype.element_ty), mask=inside, cache_modifier=STORES)


@triton.jit
def backward(
    x,  # bf16 [rows, 2 columns], gates first
    grad,  # bf16 [rows, columns]
    out,  # bf16 [rows, 2 columns]
    columns,
    BLOCK: tl.constexpr,
    LOADS: tl.constexpr,
    STORES: tl.constexpr,
):
    """The same of both halves of `out`, the gradient of x."""
    blocks = tl.cdiv(columns, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = at < columns
    line = x + row * 2 * columns
    gate = tl.load(line + at, mask=inside, eviction_policy=LOADS).to(tl.float32)
    up = tl.load(line + columns + at, mask=inside, eviction_policy=LOADS).to(tl.float32)
    given = tl.load(grad + row * columns + at, mask=inside, eviction_policy=LOADS).to(tl.float32)
    share = 1 / (1 + tl.exp(-gate))
    for_silu = given * share
    for_gate = for_silu * up * (1 + gate * (1 - share))
    made = out + row * 2 * columns
    tl.store(made + at, for_gate.to(out.dtype.element_ty), mask=inside, cache_modifier=STORES)
    tl.store(made + columns + at, (for_silu * gate).to(out.dtype.element_ty), mask=inside, cache_modifier=STORES)


launchers = {kernel: Launcher(kernel, all_at_once=False) for kernel in (forward, backward)}


class Plan(NamedTuple):
    """The launch of a call."""

    step: ShapedLaunch
    backward: bool

    def compile(self) -> Any:
        """The kernel for the dtypes it is called with; fills Triton's cache."""
        return self.step.compile((torch.bfloat16,) * (3 if self.backward else 2))


def shape_of(x_M2F: Tensor) -> tuple[int, int]:
    """Rows and columns of the result."""
    return x_M2F.shape[0], x_M2F.shape[1] // 2


@cache
def plan_of(device: torch.device, shape: tuple[int, int], is_backward: bool) -> Plan:
    """The plan by the table."""
    chip = chip_of(device)
    return make_plan(nearest([row for row in TABLE if row.backward == is_backward], chip.name, shape), chip, shape)


def make_plan(row: Row, chip: Chip, shape: tuple[int, int]) -> Plan:
    programs = shape[0] * triton.cdiv(shape[1], row.block)
    constants = {"BLOCK": row.block, "LOADS": row.loads, "STORES": row.stores}
    launcher, options = launchers[backward if row.backward else forward], {"num_warps": warps_of(row.threads)}
    return Plan(ShapedLaunch(launcher, programs, shape[1:], constants, options), row.backward)


def by_plan(plan: Plan, data: input_t) -> output_t:
    x_M2F, grad_MF = data
    if grad_MF is None:
        output = x_M2F.new_empty(shape_of(x_M2F))
        plan.step((x_M2F, output))
    else:
        output = torch.empty_like(x_M2F)
        plan.step((x_M2F, grad_MF, output))
    return output


# ---- CPUs ------------------------------------------------------------------------------------------------------------


def rows_at_a_time(x_M2F: Tensor) -> int:
    return max(1, CACHED_BYTES // (4 * x_M2F.shape[1]))


def forward_on_cpu(x_M2F: Tensor) -> Tensor:
    """silu is rounded, as the reference rounds it; the product is made in its place."""
    rows, columns = x_M2F.shape[0], x_M2F.shape[1] // 2
    out_MF = x_M2F.new_empty(rows, columns)
    step = rows_at_a_time(x_M2F)
    for x_m2F, out_mF in zip(x_M2F.split(step), out_MF.split(step), strict=True):
        torch.ops.aten.silu.out(x_m2F[:, :columns], out=out_mF)
        out_mF.mul_(x_m2F[:, columns:])
    return out_MF


def backward_on_cpu(x_M2F: Tensor, grad_MF: Tensor) -> Tensor:
    """In float32, a few rows at a time."""
    columns = grad_MF.shape[1]
    out_M2F = torch.empty_like(x_M2F)
    step = rows_at_a_time(x_M2F)
    for x_m2F, grad_mF, out_m2F in zip(x_M2F.split(step), grad_MF.split(step), out_M2F.split(step), strict=True):
        gate, up = x_m2F.float().split(columns, 1)
        share = torch.sigmoid(gate)
        for_silu = grad_mF * share
        out_m2F[:, columns:] = for_silu * gate
        slope = torch.addcmul(gate, gate, share, value=-1).add_(1)  # 1 + gate (1 - share)
        out_m2F[:, :columns] = for_silu.mul_(up).mul_(slope)
    return out_M2F
