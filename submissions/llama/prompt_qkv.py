"""Queries, keys and values of a prompt on Hopper by explicit warps: three heads a tile, so that 1024 tokens of a 1B are
128 tiles, one for each multiprocessor; turned in registers, and stored where attention reads them.

A tile is 128 tokens and 192 columns: in each of two warpgroups a sum a head, all by one instruction (common/merged.py).
Rotations and sums of squares are loaded ahead of the product. prompt_warps.py has the other products.

Legend: M tokens, P of one prompt, K hidden, H query heads, G key heads; a head has 64 columns.
"""

from typing import Any

import triton
from common.bulk import bulk_load, bulk_store
from common.merged import merging
from common.warps import GROUPS, multiplied_in_three, next_stage
from prompt_warps import bulk_descriptor, launch_next, squares_layout, wait_for_kernel_before
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
)

ROWS = gl.constexpr(64)  # of a warpgroup
HEAD = gl.constexpr(64)  # columns
HEADS_OF_TILE = gl.constexpr(3)
# Of rotations: both numbers of a pair are in the thread that has the pair's columns of a product.
TURN_LAYOUT = gl.constexpr(gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 32, 16]))


@gluon.jit
def load_weights_of_heads(b_desc, column, depth, full, b_ring, slot):
    """Those of a tile's heads, into a stage of the ring."""
    for head in gl.static_range(HEADS_OF_TILE):
        bulk_load(b_desc, [column + head * HEAD, depth], full, b_ring.index(slot * HEADS_OF_TILE + head))


@gluon.jit
def load_heads(descs, rings, M, N: gl.constexpr, K: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr):
    """The loading warp."""
    a_desc, b_desc = descs
    a_ring, b_ring, filled, emptied = rings
    tiles_m = gl.cdiv(M, ROWS * GROUPS)
    columns: gl.constexpr = HEADS_OF_TILE * HEAD
    nbytes: gl.constexpr = (ROWS * GROUPS + columns) * BLOCK_K * 2
    for stage in gl.static_range(STAGES):
        mbarrier.expect(filled.index(stage), nbytes)
        column = gl.program_id(0) // tiles_m * columns
        load_weights_of_heads(b_desc, column, stage * BLOCK_K, filled.index(stage), b_ring, stage)
    wait_for_kernel_before()
    slot, phase, count = gl.program_id(0) * 0, gl.program_id(0) * 0 + 1, gl.program_id(0) * 0
    for tile in range(gl.program_id(0), tiles_m * (N // columns), gl.num_programs(0)):
        row, column = tile % tiles_m * (ROWS * GROUPS), tile // tiles_m * columns
        for depth in range(0, K, BLOCK_K):
            full = filled.index(slot)
            if count >= STAGES:
                mbarrier.wait(emptied.index(slot), phase)
                mbarrier.expect(full, nbytes)
                load_weights_of_heads(b_desc, column, depth, full, b_ring, slot)
            for mine in gl.static_range(GROUPS):
                bulk_load(a_desc, [row + mine * ROWS, depth], full, a_ring.index(GROUPS * slot + mine))
            slot, phase = next_stage(slot, phase, STAGES)
            count += 1


@gluon.jit
def halves(both):
    """A tensor's left and right half of columns."""
    rows: gl.constexpr = both.shape[0]
    columns: gl.constexpr = both.shape[1]
    return both.reshape((rows, 2, columns // 2)).permute((0, 2, 1)).split()


@gluon.jit
def store_head(product, cos, sin, head, out_s, descs, row, P, H: gl.constexpr, G: gl.constexpr, LENGTH: gl.constexpr):
    """Turns a head of queries or keys, and stores it by one copy."""
    q_desc, k_desc, v_desc = descs
    first, second = halves(product)
    first, second = gl.convert_layout(first, TURN_LAYOUT), gl.convert_layout(second, TURN_LAYOUT)
    is_value = head >= H + G
    cos, sin = gl.where(is_value, 1.0, cos), gl.where(is_value, 0.0, sin)
    turned = gl.join(first * cos - second * sin, second * cos + first * sin)
    out_s.store(turned.permute((0, 2, 1)).reshape((ROWS, HEAD)).to(gl.bfloat16))
    fence_async_shared()
    place = row // P * G * LENGTH + row % P
    if head < H:
        bulk_store(q_desc, [row, head * HEAD], out_s)
    elif head < H + G:
        bulk_store(k_desc, [place + (head - H) * LENGTH, 0], out_s)
    else:
        bulk_store(v_desc, [place + (head - H - G) * LENGTH, 0], out_s)


@gluon.jit
def multiply_heads(
    rings,
    descs,
    out_s,
    turn_ptr,
    squares_ptr,
    M,
    P,
    eps,
    N: gl.constexpr,
    K: gl.constexpr,
    H: gl.constexpr,
    G: gl.constexpr,
    LENGTH: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    PARTS: gl.constexpr,
    PARTS_LAYOUT: gl.constexpr,
    MINE: gl.constexpr,
):
    """A warpgroup: its half of every tile's rows."""
    a_ring, b_ring, filled, emptied = rings
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16])
    tiles_m = gl.cdiv(M, ROWS * GROUPS)
    columns: gl.constexpr = HEADS_OF_TILE * HEAD
    slot, phase = gl.program_id(0) * 0, gl.program_id(0) * 0
    for tile in range(gl.program_id(0), tiles_m * (N // columns), gl.num_programs(0)):
        row, head = tile % tiles_m * (ROWS * GROUPS) + MINE * ROWS, tile // tiles_m * HEADS_OF_TILE
        m = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, TURN_LAYOUT))
        pair = gl.arange(0, HEAD // 2, layout=gl.SliceLayout(0, TURN_LAYOUT))
        turn_at = turn_ptr + (gl.expand_dims(m % P * HEAD, 1) + gl.expand_dims(pair, 0))
        cos, sin = gl.load(turn_at), gl.load(turn_at + HEAD // 2)
        wait_for_kernel_before()  # which may write what comes next; from the second tile on it has long ended
        if PARTS > 0:
            token = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, PARTS_LAYOUT))
            part = gl.arange(0, PARTS, layout=gl.SliceLayout(0, PARTS_LAYOUT))
            squares_at = gl.expand_dims(token * PARTS, 1) + gl.expand_dims(part, 0)
            squares = gl.load(squares_ptr + squares_at, mask=gl.expand_dims(token < M, 1), other=0.0)
        first = gl.zeros((ROWS, HEAD), gl.float32, layout)
        second = gl.zeros((ROWS, HEAD), gl.float32, layout)
        third = gl.zeros((ROWS, HEAD), gl.float32, layout)
        first, second, third, slot, phase = multiplied_in_three(
            a_ring, b_ring, filled, emptied, first, second, third, K // BLOCK_K, slot, phase, MINE, STAGES
        )
        if PARTS > 0:
            factor = gl.rsqrt(gl.sum(squares, 1) / K + eps)
            factor = gl.expand_dims(gl.convert_layout(factor, gl.SliceLayout(1, layout)), 1)
            first, second, third = first * factor, second * factor, third * factor
        tma.store_wait(0)
        store_head(first, cos, sin, head, out_s.index(0), descs, row, P, H, G, LENGTH)
        store_head(second, cos, sin, head + 1, out_s.index(1), descs, row, P, H, G, LENGTH)
        store_head(third, cos, sin, head + 2, out_s.index(2), descs, row, P, H, G, LENGTH)
    tma.store_wait(0)


@gluon.jit
def project_warps(
    a_desc,  # bf16 [M, K], in blocks [64, BLOCK_K]
    b_desc,  # bf16 [N, K]: weights of queries, keys, values, in blocks [64, BLOCK_K]
    q_desc,  # bf16 [M, H 64], in blocks [64, 64]
    k_desc,  # bf16 [B G LENGTH, 64], in blocks [64, 64], as v
    v_desc,
    turn_ptr,  # float32 [LENGTH, 64]: cosines, then sines, of each pair (d, d + 32)
    squares_ptr,  # float32 [M, PARTS]: sums of squares of the tokens' parts
    M,
    P,  # a multiple of 64, where there are several sequences
    eps,
    N: gl.constexpr,
    K: gl.constexpr,
    H: gl.constexpr,
    G: gl.constexpr,
    LENGTH: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    PARTS: gl.constexpr,
    PARTS_LAYOUT: gl.constexpr,  # squares_layout(PARTS)
):
    """a b^T times each token's factor of the norm, which with PARTS 0 is 1; queries and keys turned by their positions;
    keys and values into the cache. Of rows behind a prompt's end the cache gets zeros."""
    launch_next()
    a_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, BLOCK_K], gl.bfloat16)
    out_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, HEAD], gl.bfloat16)
    a_ring = gl.allocate_shared_memory(gl.bfloat16, [STAGES * GROUPS, ROWS, BLOCK_K], a_layout)
    b_ring = gl.allocate_shared_memory(gl.bfloat16, [STAGES * HEADS_OF_TILE, HEAD, BLOCK_K], a_layout)
    top = gl.allocate_shared_memory(gl.bfloat16, [HEADS_OF_TILE, ROWS, HEAD], out_layout)
    low = gl.allocate_shared_memory(gl.bfloat16, [HEADS_OF_TILE, ROWS, HEAD], out_layout)
    filled = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    emptied = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(filled.index(stage), count=1)
        mbarrier.init(emptied.index(stage), count=GROUPS)
    fence_async_shared()
    rings = (a_ring, b_ring, filled, emptied)
    descs = (q_desc, k_desc, v_desc)
    gl.warp_specialize(
        [
            (multiply_heads, (
                rings, descs, top, turn_ptr, squares_ptr, M, P, eps, N, K, H, G, LENGTH, BLOCK_K, STAGES, PARTS,
                PARTS_LAYOUT, 0,
            )),
            (multiply_heads, (
                rings, descs, low, turn_ptr, squares_ptr, M, P, eps, N, K, H, G, LENGTH, BLOCK_K, STAGES, PARTS,
                PARTS_LAYOUT, 1,
            )),
            (load_heads, ((a_desc, b_desc), rings, M, N, K, BLOCK_K, STAGES)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip


def project_by_warps(
    a: Tensor,
    weight: Tensor,
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    turns: Tensor,
    squares: Tensor,
    parts: int,
    length: int,
    config: Any,
    blocks: Any,
    programs: int,
    early: bool,
) -> None:
    """Queries [M, H D], and keys and values into [B G LENGTH, D], of prompts of that many tokens each; `squares` are
    `parts` a token."""
    (m, k), n = a.shape, len(weight)
    head = [64, 64]
    with merging():
        project_warps[(min(programs, triton.cdiv(m, 128) * (n // 192)),)](
            bulk_descriptor(a, [64, blocks.k]), bulk_descriptor(weight, [64, blocks.k]),
            bulk_descriptor(query, head), bulk_descriptor(keys, head), bulk_descriptor(values, head), turns, squares, m,
            length, config.eps, N=n, K=k, H=config.heads, G=config.kv_heads, LENGTH=config.max_length,
            BLOCK_K=blocks.k, STAGES=blocks.stages, PARTS=parts, PARTS_LAYOUT=squares_layout(parts) if parts else None,
            num_warps=4, launch_pdl=early,
        )  # fmt: skip
