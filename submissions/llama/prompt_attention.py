"""A prompt's causal attention on Hopper by explicit warps, after submissions/attention/hopper_forward.py: one warp
loads, and two warpgroups have one head each of two query heads that share keys and values.

A tile is 64 queries of both heads. Programs go from tile to tile, the longest tiles first, and every second round
backwards, so that all end together. The next block's scores are multiplied during the softmax of this one.

Legend: T tokens of all prompts, P of one, H query heads, G key heads, D head_dim.
"""

from typing import Any

import triton
from common.bulk import bulk_load, bulk_store
from common.warps import next_stage
from prompt_warps import bulk_descriptor, launch_next, wait_for_kernel_before
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

LOG2E = 1.4426950408889634
QUERIES = gl.constexpr(64)  # of a tile, what a warpgroup multiplies at once
HEADS = gl.constexpr(2)  # of a tile, one for each warpgroup
AHEAD = gl.constexpr(2)  # tiles whose queries have room


@gluon.jit
def count_tiles(tiles):
    """How many of the tiles this program has: one of each full round, and its part of the last one."""
    programs, program = gl.num_programs(0), gl.program_id(0)
    rounds = tiles // programs
    forwards = rounds % 2 == 0
    place = gl.where(forwards, program, programs - 1 - program)
    return rounds + (place < tiles % programs).to(gl.int32)


@gluon.jit
def place(turn, P, pairs, H: gl.constexpr, G: gl.constexpr):
    """Of this program's tile of that round: the first query, its row in [T, H D], its sequence, the first of its heads,
    and that sequence's and head's number in [B, G]."""
    programs, program = gl.num_programs(0), gl.program_id(0)
    tile = turn * programs + gl.where(turn % 2 == 0, program, programs - 1 - program)
    block = gl.cdiv(P, QUERIES) - 1 - tile // pairs
    pair = tile % pairs
    sequence, head = pair // (H // HEADS), pair % (H // HEADS) * HEADS
    query = block * QUERIES
    return query, sequence * P + query, head, sequence * G + head // (H // G)


@gluon.jit
def load_blocks(
    descs,
    rings,
    barriers,
    P,
    pairs,
    H: gl.constexpr,
    G: gl.constexpr,
    D: gl.constexpr,
    LENGTH: gl.constexpr,
    BLOCK: gl.constexpr,
    STAGES: gl.constexpr,
):
    """The loading warp: a tile's blocks of keys from the last to the first."""
    q_desc, k_desc, v_desc = descs
    q_s, k_ring, v_ring = rings
    q_filled, q_emptied, k_filled, k_emptied, v_filled, v_emptied = barriers
    wait_for_kernel_before()
    slot, phase = gl.program_id(0) * 0, gl.program_id(0) * 0 + 1  # of rings that are empty
    for turn in range(count_tiles(gl.cdiv(P, QUERIES) * pairs)):
        query, row, head, key_head = place(turn, P, pairs, H, G)
        q_slot = turn % AHEAD
        mbarrier.wait(q_emptied.index(q_slot), turn // AHEAD % 2 ^ 1)
        mbarrier.expect(q_filled.index(q_slot), HEADS * QUERIES * D * 2)
        for mine in gl.static_range(HEADS):
            bulk_load(q_desc, [row, (head + mine) * D], q_filled.index(q_slot), q_s.index(q_slot * HEADS + mine))
        blocks = query // BLOCK + 1
        for behind in range(blocks):
            key = key_head * LENGTH + (blocks - 1 - behind) * BLOCK
            mbarrier.wait(k_emptied.index(slot), phase)
            mbarrier.expect(k_filled.index(slot), BLOCK * D * 2)
            bulk_load(k_desc, [key, 0], k_filled.index(slot), k_ring.index(slot))
            mbarrier.wait(v_emptied.index(slot), phase)
            mbarrier.expect(v_filled.index(slot), BLOCK * D * 2)
            bulk_load(v_desc, [key, 0], v_filled.index(slot), v_ring.index(slot))
            slot, phase = next_stage(slot, phase, STAGES)


@gluon.jit
def attend_blocks(
    rings,
    barriers,
    out_desc,
    out_s,
    P,
    pairs,
    scale,
    H: gl.constexpr,
    G: gl.constexpr,
    D: gl.constexpr,
    BLOCK: gl.constexpr,
    STAGES: gl.constexpr,
    MINE: gl.constexpr,
):
    """A warpgroup: one of every tile's heads."""
    q_s, k_ring, v_ring = rings
    q_filled, q_emptied, k_filled, k_emptied, v_filled, v_emptied = barriers
    s_layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BLOCK, 16]
    )
    o_layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, D, 16])
    p_layout: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=o_layout, k_width=2)
    s_rows: gl.constexpr = gl.SliceLayout(1, s_layout)
    o_rows: gl.constexpr = gl.SliceLayout(1, o_layout)
    slot, phase = gl.program_id(0) * 0, gl.program_id(0) * 0
    for turn in range(count_tiles(gl.cdiv(P, QUERIES) * pairs)):
        query, row, head, _ = place(turn, P, pairs, H, G)
        blocks = query // BLOCK + 1
        zeros = gl.zeros((QUERIES, BLOCK), gl.float32, s_layout)
        # The block of keys that holds the diagonal comes first, and so every row has its first maximum.
        q_slot = turn % AHEAD
        mine = q_s.index(q_slot * HEADS + MINE)
        mbarrier.wait(q_filled.index(q_slot), turn // AHEAD % 2)
        mbarrier.wait(k_filled.index(slot), phase)
        scores = warpgroup_mma(mine, k_ring.index(slot).permute((1, 0)), zeros, use_acc=False)
        mbarrier.arrive(k_emptied.index(slot), count=1)
        rows = query + gl.arange(0, QUERIES, layout=s_rows)
        columns = (blocks - 1) * BLOCK + gl.arange(0, BLOCK, layout=gl.SliceLayout(0, s_layout))
        scores = gl.where(gl.expand_dims(rows, 1) >= gl.expand_dims(columns, 0), scores, float("-inf"))
        peak = gl.max(scores, axis=1) * scale
        p = gl.exp2(scores * scale - gl.expand_dims(peak, 1))
        total = gl.sum(p, axis=1)
        p_bf16 = gl.convert_layout(p.to(gl.bfloat16), p_layout)
        acc = gl.zeros((QUERIES, D), gl.float32, o_layout)
        for _ in range(1, blocks):
            v_slot, v_phase = slot, phase
            slot, phase = next_stage(slot, phase, STAGES)
            mbarrier.wait(k_filled.index(slot), phase)
            made = warpgroup_mma(mine, k_ring.index(slot).permute((1, 0)), zeros, use_acc=False, is_async=True)
            mbarrier.wait(v_filled.index(v_slot), v_phase)
            added = warpgroup_mma(p_bf16, v_ring.index(v_slot), acc, is_async=True)
            scores = warpgroup_mma_wait(1, deps=(made,))
            mbarrier.arrive(k_emptied.index(slot), count=1)
            higher = gl.maximum(peak, gl.max(scores, axis=1) * scale)
            fade = gl.exp2(peak - higher)
            p = gl.exp2(scores * scale - gl.expand_dims(higher, 1))
            total = total * fade + gl.sum(p, axis=1)
            peak = higher
            acc = warpgroup_mma_wait(0, deps=(added,))
            mbarrier.arrive(v_emptied.index(v_slot), count=1)
            acc = acc * gl.expand_dims(gl.convert_layout(fade, o_rows), 1)
            p_bf16 = gl.convert_layout(p.to(gl.bfloat16), p_layout)
        mbarrier.arrive(q_emptied.index(q_slot), count=1)
        mbarrier.wait(v_filled.index(slot), phase)
        acc = warpgroup_mma(p_bf16, v_ring.index(slot), acc)
        mbarrier.arrive(v_emptied.index(slot), count=1)
        slot, phase = next_stage(slot, phase, STAGES)
        out = acc * gl.expand_dims(gl.convert_layout(1.0 / total, o_rows), 1)
        tma.store_wait(0)
        out_s.store(out.to(gl.bfloat16))
        fence_async_shared()
        bulk_store(out_desc, [row, (head + MINE) * D], out_s)
    tma.store_wait(0)


@gluon.jit
def attend_warps(
    q_desc,  # bf16 [T, H D], in blocks [64, D], as out
    k_desc,  # bf16 [B G LENGTH, D], in blocks [BLOCK, D], as v
    v_desc,
    out_desc,
    P,  # a multiple of 64, where there are several sequences
    pairs,  # B H / 2
    scale,  # of scores, log2(e) in it
    H: gl.constexpr,
    G: gl.constexpr,
    D: gl.constexpr,
    LENGTH: gl.constexpr,
    BLOCK: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Causal attention of every token to those before. Keys behind the prompt are loaded as well: there are numbers in
    any case, which the mask leaves out."""
    launch_next()
    q_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([QUERIES, D], gl.bfloat16)
    k_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK, D], gl.bfloat16)
    q_s = gl.allocate_shared_memory(gl.bfloat16, [AHEAD * HEADS, QUERIES, D], q_layout)
    out_s = gl.allocate_shared_memory(gl.bfloat16, [HEADS, QUERIES, D], q_layout)
    k_ring = gl.allocate_shared_memory(gl.bfloat16, [STAGES, BLOCK, D], k_layout)
    v_ring = gl.allocate_shared_memory(gl.bfloat16, [STAGES, BLOCK, D], k_layout)
    q_filled = gl.allocate_shared_memory(gl.int64, [AHEAD, 1], mbarrier.MBarrierLayout())
    q_emptied = gl.allocate_shared_memory(gl.int64, [AHEAD, 1], mbarrier.MBarrierLayout())
    k_filled = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_emptied = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_filled = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_emptied = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for ahead in gl.static_range(AHEAD):
        mbarrier.init(q_filled.index(ahead), count=1)
        mbarrier.init(q_emptied.index(ahead), count=HEADS)
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_filled.index(stage), count=1)
        mbarrier.init(k_emptied.index(stage), count=HEADS)
        mbarrier.init(v_filled.index(stage), count=1)
        mbarrier.init(v_emptied.index(stage), count=HEADS)
    fence_async_shared()
    rings = (q_s, k_ring, v_ring)
    barriers = (q_filled, q_emptied, k_filled, k_emptied, v_filled, v_emptied)
    gl.warp_specialize(
        [
            (attend_blocks, (
                rings, barriers, out_desc, out_s.index(0), P, pairs, scale, H, G, D, BLOCK, STAGES, 0,
            )),
            (attend_blocks, (
                rings, barriers, out_desc, out_s.index(1), P, pairs, scale, H, G, D, BLOCK, STAGES, 1,
            )),
            (load_blocks, ((q_desc, k_desc, v_desc), rings, barriers, P, pairs, H, G, D, LENGTH, BLOCK, STAGES)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip


def attend_by_warps(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    out: Tensor,
    length: int,
    config: Any,
    block: Any,
    programs: int,
    early: bool,
) -> None:
    """Causal attention of prompts of that many tokens each: query and out [T, H D], keys and values [B G LENGTH, D],
    all bfloat16."""
    pairs = len(query) // length * config.heads // 2
    rows, key_rows = [64, config.head_dim], [block.keys, config.head_dim]
    attend_warps[(min(programs, triton.cdiv(length, 64) * pairs),)](
        bulk_descriptor(query, rows), bulk_descriptor(keys, key_rows), bulk_descriptor(values, key_rows),
        bulk_descriptor(out, rows), length, pairs, LOG2E * config.head_dim**-0.5, H=config.heads, G=config.kv_heads,
        D=config.head_dim, LENGTH=config.max_length, BLOCK=block.keys, STAGES=block.stages, num_warps=4,
        launch_pdl=early,
    )  # fmt: skip
