#!POPCORN leaderboard cross-entropy
"""cross_entropy, forward and backward in one kernel: logits are read once, and the gradient is written over them.

On Hopper rows that fit are loaded into a program's registers (loaded.py), longer ones are copied ahead into shared
memory (ring.py): the next rows are under way while a program works on one. On other GPUs a row is in registers
(registers.py). A long row is cut into parts, and a part is a program's: programs tell each other their largest logit
and their sum of exponentials. Rows that do not consist of whole words of 4 or 16 bytes are read twice, which needs no
more than one program a row. The table (tuning.py) says which kernel runs with which parts.

Why it wins on GPUs: 4 bytes an element is the least that the problem needs, and eager torch moves many times as much,
in float32. CPU ranks work in rows that fit the cache.

Legend: M tokens, V classes.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import torch
import triton
from common.launch import INTERPRETED, Launcher, ShapedLaunch
from common.tuning import REGISTERS, Chip, chip_of, nearest, rows_for, warps_of
from loaded import loaded_kernel
from registers import once, twice
from ring import ring_kernel
from task import input_t, output_t
from torch import Tensor
from tuning import TABLE, Row

COUNTED = 4096  # targets that a program looks at at a time
BLOCK, THREADS = 8192, 512  # columns and threads of the kernel that reads twice
MOST_REGISTERS = 255  # of a thread
CACHED_BYTES = 8 << 20  # what CPU ranks have in the works at a time

launchers = {
    "ring": Launcher(ring_kernel, group="PARTS"),
    "loaded": Launcher(loaded_kernel, all_at_once=False),
    "registers": Launcher(once, group="PARTS"),
    "twice": Launcher(twice, all_at_once=False),
}
ALONE = ("loaded", "twice")  # kernels whose programs tell each other nothing


class Shape(NamedTuple):
    """What a plan depends on. `stride` of a row; `granule`: so many logits, at most 8, lie at a multiple of their bytes
    in every row; `smooth`: whether there is label smoothing."""

    tokens: int
    vocab: int
    stride: int
    granule: int
    smooth: bool


class Plan(NamedTuple):
    """The kernel and how it is launched. `told`: words of 64 bits that each part tells the others."""

    kernel: str
    step: ShapedLaunch
    parts: int
    told: int

    def compile(self) -> Any:
        """The kernel for the dtypes it is called with; fills Triton's cache."""
        int64, float32, bf16 = torch.int64, torch.float32, torch.bfloat16
        words, sums = (torch.int32, float32) if self.kernel == "registers" else (bf16, int64)
        between = (int64, sums) if self.kernel not in ALONE else ()
        logits = (bf16,) if self.kernel != "registers" else (words, bf16)
        return self.step.compile((*logits, int64, float32, *between), (-100, 0.1, 2.0))


def custom_kernel(data: input_t) -> output_t:
    logits_MV, targets_M, *numbers = data
    losses_M = torch.empty(len(targets_M), dtype=torch.float32, device=logits_MV.device)
    if logits_MV.is_cuda or INTERPRETED:
        by_plan(plan_of(logits_MV.device, shape_of(data)), data, losses_M)
    else:
        on_cpu(logits_MV, targets_M, losses_M, *numbers)
    return losses_M, logits_MV


# ---- GPUs ------------------------------------------------------------------------------------------------------------


def shape_of(data: input_t) -> Shape:
    logits_MV, _, _, smoothing, _ = data
    (tokens, vocab), stride = logits_MV.shape, logits_MV.stride(0)
    return Shape(tokens, vocab, stride, math.gcd(vocab, stride, logits_MV.data_ptr() // 2, 8), smoothing != 0)


def by_plan(plan: Plan, data: input_t, losses_M: Tensor) -> None:
    """Fills the losses, and writes the gradient over the logits."""
    logits_MV, targets_M, ignore_index, smoothing, loss_scale = data
    numbers = (ignore_index, float(smoothing), float(loss_scale))
    told = [targets_M, targets_M]
    if plan.told:
        told = [*torch.zeros(plan.told, len(targets_M), plan.parts, dtype=torch.int64, device=logits_MV.device)] * 2
    if plan.kernel in ALONE:
        plan.step((logits_MV, targets_M, losses_M), numbers)
    elif plan.kernel == "ring":
        plan.step((logits_MV, targets_M, losses_M, told[0], told[1]), numbers)
    else:
        sums = told[1].view(torch.float32)
        plan.step((logits_MV.view(torch.int32), logits_MV, targets_M, losses_M, told[0], sums), numbers)


@cache
def plan_of(device: torch.device, shape: Shape) -> Plan:
    """The plan by the table: by its nearest row whose kernel can do the shape."""
    chip = chip_of(device)
    rows = rows_for(TABLE, chip.name)
    able = [row for row in rows if make_plan(row, chip, shape)]
    row = nearest(able or rows, chip.name, (shape.tokens, shape.vocab))
    return make_plan(row, chip, shape) or plan_twice(row, chip, shape)


def make_plan(row: Row, chip: Chip, shape: Shape) -> Plan | None:
    """The plan by that row of the table; None where its kernel cannot do the shape."""
    return PLANS[row.kernel](row, chip, shape)


def plan_ring(row: Row, chip: Chip, shape: Shape) -> Plan | None:
    """As many parts as let each fit what the row keeps of its own shape's."""
    each = 8 * row.threads
    fitting = each * triton.next_power_of_2(triton.cdiv(row.shape[1], row.parts * each))
    parts = triton.next_power_of_2(triton.cdiv(shape.vocab, fitting))
    groups = chip.multiprocessors * row.resident // parts
    if shape.granule < 8 or not groups:
        return None
    width = 8 * triton.cdiv(shape.vocab, 8 * parts)
    constants = {
        "PARTS": parts,
        "VECTORS": triton.next_power_of_2(triton.cdiv(width, each)),
        "SLOTS": row.slots,
        "LAG": row.lag if parts > 1 else 0,
        "SMOOTH": shape.smooth,
    }
    numbers = (shape.tokens, shape.vocab, width, shape.stride // 8)
    programs = min(groups, shape.tokens) * parts
    step = ShapedLaunch(launchers["ring"], programs, numbers, constants, options_of(row))
    return Plan("ring", step, parts, (1 + shape.smooth) * (parts > 1))


def plan_loaded(row: Row, chip: Chip, shape: Shape) -> Plan | None:
    """Without smoothing, and where a thread has as many vectors as in the row's own shape: longer rows do not fit, and
    of shorter ones too little would be on its way."""
    each = 8 * row.threads
    vectors = triton.next_power_of_2(triton.cdiv(shape.vocab, each))
    if shape.smooth or shape.granule < 8 or vectors != triton.next_power_of_2(triton.cdiv(row.shape[1], each)):
        return None
    constants = {"VECTORS": vectors, "FULL": shape.vocab // each}
    numbers = (shape.tokens, shape.vocab, shape.stride // 8)
    rounds = triton.cdiv(shape.tokens, chip.multiprocessors * row.resident)
    programs = triton.cdiv(shape.tokens, rounds)  # as many as so few rounds need
    return Plan("loaded", ShapedLaunch(launchers["loaded"], programs, numbers, constants, options_of(row)), 1, 0)


def plan_registers(row: Row, chip: Chip, shape: Shape) -> Plan | None:
    """The same, of 32-bit words."""
    words = triton.next_power_of_2(triton.cdiv(row.shape[1], 2 * row.parts))
    parts = triton.next_power_of_2(triton.cdiv(shape.vocab, 2 * words))
    groups = chip.multiprocessors * row.resident // parts
    if shape.granule < 2 or not groups or (INTERPRETED and parts > 1):
        return None
    constants = {
        "PARTS": parts,
        "WORDS": words,
        "SMOOTH": shape.smooth,
        "COUNTED": COUNTED,
        "AHEAD": row.slots > 1,
    }
    width = 16 * triton.cdiv(shape.vocab, 32 * parts)  # so that every part begins where a wide load may
    numbers = (shape.tokens, shape.vocab, width, shape.stride // 2)
    programs = min(groups, shape.tokens) * parts
    step = ShapedLaunch(launchers["registers"], programs, numbers, constants, options_of(row))
    return Plan("registers", step, parts, (1 + shape.smooth) * (parts > 1))


def plan_twice(row: Row, chip: Chip, shape: Shape) -> Plan:
    """What every shape and stride can have."""
    programs = min(shape.tokens, 2 * chip.multiprocessors)
    numbers = (shape.tokens, shape.vocab, shape.stride)
    constants = {"BLOCK": BLOCK, "COUNTED": COUNTED}
    return Plan(
        "twice", ShapedLaunch(launchers["twice"], programs, numbers, constants, {"num_warps": warps_of(THREADS)}), 1, 0
    )


PLANS = {"ring": plan_ring, "loaded": plan_loaded, "registers": plan_registers, "twice": plan_twice}


def options_of(row: Row) -> dict[str, int]:
    """So many threads, and registers for as many programs as are to run on a multiprocessor."""
    registers = min(REGISTERS // (row.threads * row.resident), MOST_REGISTERS)
    threads = {"num_warps": warps_of(row.threads)}
    return threads if row.chip.startswith("gfx") else threads | {"maxnreg": registers}


# ---- CPUs ------------------------------------------------------------------------------------------------------------


def on_cpu(
    logits_MV: Tensor, targets_M: Tensor, losses_M: Tensor, ignore_index: int, smoothing: float, loss_scale: float
) -> None:
    """A few rows at a time in float32, everything in one piece of memory."""
    vocab = logits_MV.shape[1]
    ignored_M = targets_M == ignore_index
    chosen_M1 = targets_M.masked_fill(ignored_M, 0)[:, None]
    factors_M1 = torch.where(ignored_M, 0.0, loss_scale / (~ignored_M).sum())[:, None]
    step = max(1, CACHED_BYTES // (4 * vocab))
    work_mV = torch.empty(step, vocab, dtype=torch.float32)
    parts = (each.split(step) for each in (logits_MV, chosen_M1, factors_M1, ignored_M, losses_M))
    for logits_mV, chosen_m1, factor_m1, ignored_m, losses_m in zip(*parts, strict=True):
        value_mV = work_mV[: len(losses_m)].copy_(logits_mV)
        own_m, plain_m = value_mV.gather(1, chosen_m1)[:, 0], value_mV.mean(1) if smoothing else 0.0
        most_m1 = value_mV.amax(1, keepdim=True)
        total_m1 = value_mV.sub_(most_m1).exp_().sum(1, keepdim=True)
        loss_m = (most_m1 + total_m1.log())[:, 0] - (1 - smoothing) * own_m - smoothing * plain_m
        losses_m.copy_(loss_m.masked_fill_(ignored_m, 0))
        value_mV.mul_(factor_m1 / total_m1)
        if smoothing:
            value_mV.sub_(factor_m1 * (smoothing / vocab))
        logits_mV.copy_(value_mV.scatter_add_(1, chosen_m1, factor_m1 * (smoothing - 1)))
