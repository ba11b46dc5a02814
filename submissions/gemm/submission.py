#!POPCORN leaderboard gemm
"""gemm as a persistent kernel with explicit warps on Hopper, and as a plain Triton kernel elsewhere.

On Hopper (hopper.py) a program has one warp that loads, and two warpgroups that multiply half of a tile's rows each.
The ring of operands runs on across tiles, and a result leaves by bulk copies beside the next product, so that the
tensor cores have no reason to wait. Other GPUs run `plain_kernel`, on which the interpreter runs too. Which kernel
with which blocks, the table says (tuning.py).

On CPU cores the product is torch's. Without instructions for bf16 it is made in float32 and rounded once: torch's
product in bf16 converts the operands too, and more slowly.

Known techniques in it: persistent programs with grouped order, warp specialisation, cooperative warpgroups (CUTLASS).

Legend: M rows and N columns of the product, K its depth.
"""

from functools import cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from common.gemm import as_bf16, product, spread_over_dies, swizzled, workspace
from common.launch import INTERPRETED, Launcher, current_stream, make_ahead, new_output
from common.tuning import Chip, chip_of, nearest
from hopper import COUNTERS, product_kernel
from task import input_t, output_t
from torch import Tensor
from tuning import TABLE, Row


@triton.jit
def plain_kernel(
    a_ptr,  # bf16 [M, K]
    b_ptr,  # bf16 [N, K]
    out_ptr,  # bf16 [M, N]
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    DIES: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    """Every program multiplies tile after tile."""
    a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    b_desc = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BLOCK_N, BLOCK_K])
    out_desc = tl.make_tensor_descriptor(out_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    programs = tl.num_programs(0)
    for tile in range(spread_over_dies(tl.program_id(0), programs, DIES), tiles_m * tiles_n, programs):
        tile_m, tile_n = swizzled(tile, tiles_m, tiles_n, GROUP)
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        row, column = tile_m * BLOCK_M, tile_n * BLOCK_N
        acc = product(a_desc, b_desc, row, column, 0, tl.cdiv(K, BLOCK_K), acc, BLOCK_K, INTERPRET)
        out_desc.store([row, column], as_bf16(acc, INTERPRET))


# With them a product in bf16 took 0.3 to 0.5 times as long as one in float32 (AMD EPYC, torch 2.13, 4 shapes).
MULTIPLIES_BF16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()

launchers = {"warps": Launcher(product_kernel), "plain": Launcher(plain_kernel)}


class Plan(NamedTuple):
    """Everything about a call that depends on shapes only. `work`: float32 of the workspace, of the kernel with
    explicit warps, which has none where no tiles are shared."""

    launch: Launcher
    sizes: tuple[int, int, int]
    programs: int
    work: int | None
    constants: dict[str, Any]
    options: dict[str, Any]

    def example_arguments(self) -> tuple[torch.dtype | int, ...]:
        """What its kernel is called with, for compiling it: in place of tensors their dtypes."""
        work = () if self.work is None else (torch.float32,)
        return (*[torch.bfloat16] * 3, *work, *self.sizes)


def custom_kernel(data: input_t) -> output_t:
    input_MK, weight_NK = data
    if input_MK.is_cpu and not INTERPRETED:  # nothing is looked up first: caches are cold
        if MULTIPLIES_BF16:
            return torch.nn.functional.linear(input_MK, weight_NK)
        return torch.mm(input_MK.float(), weight_NK.float().T).to(input_MK.dtype)
    plan = plan_of(input_MK.device, len(input_MK), len(weight_NK), input_MK.shape[1])
    return as_planned(input_MK, weight_NK, plan) if plan else torch.nn.functional.linear(input_MK, weight_NK)


@cache
def plan_of(device: torch.device, rows: int, columns: int, depth: int) -> Plan | None:
    """The plan by the table; None for the library."""
    chip = chip_of(device)
    return make_plan(nearest(TABLE, chip.name, (rows, columns, depth)), chip, rows, columns, depth)


def make_plan(row: Row, chip: Chip, rows: int, columns: int, depth: int) -> Plan | None:
    """The plan with the blocks of `row`. None for shapes that no kernel can do: rows of less than vectors of 16
    bytes."""
    if depth % 8 or columns % 8:
        return None
    tiles = -(-rows // row.block_m) * -(-columns // row.block_n)
    programs, work = min(chip.multiprocessors, tiles), None
    shared = {"BLOCK_M": row.block_m, "BLOCK_N": row.block_n, "BLOCK_K": row.block_k}
    if row.kernel == "warps":
        is_shared, work = can_share(row, tiles, chip.multiprocessors, depth), 0
        if is_shared:
            programs = chip.multiprocessors
            work = COUNTERS.value + (tiles % programs + programs) * row.block_m * row.block_n
        constants = {
            **shared,
            "STAGES": row.stages,
            "GROUP": row.group,
            "SHARED": is_shared,
            "PARTS": row.parts,
        }
        options = {"num_warps": 4}  # of the first warpgroup; the kernel asks for the others
    else:
        constants = {**shared, "GROUP": row.group, "DIES": chip.dies, "INTERPRET": INTERPRETED}
        options = {"num_warps": row.warps, "num_stages": row.stages}
    return Plan(launchers[row.kernel], (rows, columns, depth), programs, work, constants, options)


def can_share(row: Row, tiles: int, programs: int, depth: int) -> bool:
    """Whether programs share the last round: each has a step there, and numbers of steps times programs fit 32 bits."""
    steps, last = -(-depth // row.block_k), tiles % programs
    fits = 2 * last <= COUNTERS.value and (last + 1) * steps * programs < 2**31
    return row.shared and fits and programs <= last * steps


def as_planned(input_MK: Tensor, weight_NK: Tensor, plan: Plan) -> Tensor:
    output_MN = new_output(plan.sizes[:2], input_MK)
    tensors: tuple[Tensor, ...] = (input_MK, weight_NK, output_MN)
    if plan.work is not None:
        tensors += (workspace(input_MK.device, plan.work, current_stream()),)
    plan.launch(plan.programs, tensors, plan.sizes, plan.constants, plan.options)
    make_ahead(output_MN)
    return output_MN
