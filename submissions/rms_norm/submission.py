"""rms_norm with its residual, forward and backward: a row stays in registers from its first load to its last store.

Forward, a program does one row. In the backward pass a program takes rows one after the other, a grid apart, and loads
the next one while it works on one: it sums up the weight's gradient in registers, and a second kernel adds up what
programs have found, some megabytes that lie in the L2. Why it wins on GPUs: eager torch passes over a row several
times. CPU ranks work in rows that fit the cache.

Legend: M rows, H hidden dimension, P programs.
"""

from collections.abc import Iterator
from functools import cache

import torch
import triton
import triton.language as tl
from common.tuning import warps_of
from task import input_t, output_t
from torch import Tensor

INTERPRETED = triton.knobs.runtime.interpret  # kernels run as Python, on CPU tensors too
ELEMENTS, BACKWARD_ELEMENTS = 8, 16  # of a row that a thread holds
PROGRAM_THREADS = 512  # of a multiprocessor, in programs of the backward pass
SUMMED = 64  # columns of the weight's gradient that a program sums up
CACHED_BYTES = 8 << 20  # what CPU ranks have in the works at a time


def custom_kernel(data: input_t) -> output_t:
    x_MH, residual_MH, weight_H, grad_MH, eps = data
    on_gpu = x_MH.is_cuda or INTERPRETED
    if grad_MH is None:
        return (forward_on_gpu if on_gpu else forward_on_cpu)(x_MH, residual_MH, weight_H, eps)
    return (backward_on_gpu if on_gpu else backward_on_cpu)(x_MH, residual_MH, weight_H, grad_MH, eps)


# ---- GPUs ------------------------------------------------------------------------------------------------------------


@triton.jit
def forward(x, residual, weight, normed, total, hidden, eps, BLOCK: tl.constexpr):
    """One program: a row of `total` = x + residual, rounded, and of `normed`; one row is a block."""
    at = tl.arange(0, BLOCK)
    inside = at < hidden
    place = tl.program_id(0).to(tl.int64) * hidden + at
    left = tl.load(x + place, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
    right = tl.load(residual + place, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
    factor = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    rounded = (left + right).to(total.dtype.element_ty)
    tl.store(total + place, rounded, mask=inside)
    value = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value) / hidden + eps)
    tl.store(normed + place, (value * scale * factor).to(normed.dtype.element_ty), mask=inside)


@triton.jit
def backward(total, grad_total, weight, grad, out, partial, rows, hidden, eps, BLOCK: tl.constexpr):
    """Rows of `out`, the gradient of x and of the residual, and this program's part of the weight's gradient."""
    at = tl.arange(0, BLOCK)
    inside = at < hidden
    factor = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    found = tl.zeros((BLOCK,), tl.float32)
    first, step = tl.program_id(0), tl.num_programs(0)
    place = tl.cast(first, tl.int64) * hidden + at
    next_value = tl.load(total + place, mask=inside, other=0.0)
    next_given = tl.load(grad + place, mask=inside, other=0.0)
    next_passed = tl.load(grad_total + place, mask=inside, other=0.0)
    for row in range(first, rows, step):
        place = tl.cast(row, tl.int64) * hidden + at
        value, given, passed = next_value.to(tl.float32), next_given.to(tl.float32), next_passed.to(tl.float32)
        ahead, there = place + step * hidden, at < tl.where(row + step < rows, hidden, 0)
        next_value = tl.load(total + ahead, mask=there, other=0.0)
        next_given = tl.load(grad + ahead, mask=there, other=0.0)
        next_passed = tl.load(grad_total + ahead, mask=there, other=0.0)
        scale = tl.rsqrt(tl.sum(value * value) / hidden + eps)
        value *= scale
        found += given * value
        given *= factor
        mean = tl.sum(given * value) / hidden
        tl.store(out + place, (passed + scale * (given - value * mean)).to(out.dtype.element_ty), mask=inside)
    tl.store(partial + tl.program_id(0) * hidden + at, found, mask=inside)


@triton.jit
def sum_up(partial, out, programs, hidden, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """`out` [H] is the sum of `partial` [programs, H] over programs."""
    at = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = at < hidden
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, programs, ROWS):
        row = start + tl.arange(0, ROWS)
        mask = (row < programs)[:, None] & inside[None, :]
        total += tl.load(partial + row[:, None] * hidden + at[None, :], mask=mask, other=0.0)
    tl.store(out + at, tl.sum(total, 0).to(out.dtype.element_ty), mask=inside)


@cache
def multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


def forward_on_gpu(x_MH: Tensor, residual_MH: Tensor, weight_H: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    rows, hidden = x_MH.shape
    normed_MH, total_MH = torch.empty_like(x_MH), torch.empty_like(x_MH)
    block = triton.next_power_of_2(hidden)
    arguments = (x_MH, residual_MH, weight_H, normed_MH, total_MH, hidden, eps)
    forward[(rows,)](*arguments, block, num_warps=warps_of(block // ELEMENTS))
    return normed_MH, total_MH


def backward_on_gpu(
    total_MH: Tensor, grad_total_MH: Tensor, weight_H: Tensor, grad_MH: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    rows, hidden = total_MH.shape
    block = triton.next_power_of_2(hidden)
    threads = block // BACKWARD_ELEMENTS
    programs = min(rows, multiprocessors(total_MH.device) * max(1, PROGRAM_THREADS // threads))
    out_MH, partial_PH = torch.empty_like(total_MH), weight_H.new_empty(programs, hidden, dtype=torch.float32)
    grad_weight_H = torch.empty_like(weight_H)
    arguments = (total_MH, grad_total_MH, weight_H, grad_MH, out_MH, partial_PH, rows, hidden, eps)
    backward[(programs,)](*arguments, block, num_warps=warps_of(threads))
    sum_up[(triton.cdiv(hidden, SUMMED),)](partial_PH, grad_weight_H, programs, hidden, 32, SUMMED, num_warps=4)
    return out_MH, grad_weight_H


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
