"""Causal attention forward on Hopper by explicit warps, after FlashAttention-3 (Shah et al., 2024, arXiv 2407.08608).

A program goes from tile to tile of queries, the longest rows first. One warp loads queries, keys and values by bulk
copies, across tiles. Two warpgroups have half of a tile's queries each. The next block's scores are multiplied while
the softmax of this block goes on, and the other warpgroup's products fill what is left of the tensor cores' time.
"""

from common.bulk import bulk_load, bulk_store
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.jit
def place(tile, heads, S, BLOCK_M: gl.constexpr):
    """The head and the first query of a tile: the tiles with the most keys first, so that all programs end together."""
    blocks = S // BLOCK_M
    return tile % heads, (blocks - 1 - tile // heads) * BLOCK_M


@gluon.jit
def load_forward(
    descs,
    rings,
    barriers,
    heads,
    S,
    SHARE: gl.constexpr,
    HALF: gl.constexpr,
    BLOCK_N: gl.constexpr,
    DIM: gl.constexpr,
    STAGES: gl.constexpr,
):
    """The loading warp."""
    q_desc, k_desc, v_desc = descs
    q_top, q_low, k_ring, v_ring = rings
    q_filled, q_emptied, k_filled, k_emptied, v_filled, v_emptied = barriers
    tiles = heads * (S // (2 * HALF))
    slot = 0
    phase = 1  # of rings that are empty
    q_phase = 1
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        head, query = place(tile, heads, S, 2 * HALF)
        row = head * S + query
        mbarrier.wait(q_emptied, q_phase)
        mbarrier.expect(q_filled, 2 * HALF * DIM * 2)
        bulk_load(q_desc, [row, 0], q_filled, q_top)
        bulk_load(q_desc, [row + HALF, 0], q_filled, q_low)
        q_phase ^= 1
        first = head // SHARE * S
        last = query + 2 * HALF - BLOCK_N
        for behind in range(0, query + 2 * HALF, BLOCK_N):
            key = first + last - behind
            mbarrier.wait(k_emptied.index(slot), phase)
            mbarrier.expect(k_filled.index(slot), BLOCK_N * DIM * 2)
            bulk_load(k_desc, [key, 0], k_filled.index(slot), k_ring.index(slot))
            mbarrier.wait(v_emptied.index(slot), phase)
            mbarrier.expect(v_filled.index(slot), BLOCK_N * DIM * 2)
            bulk_load(v_desc, [key, 0], v_filled.index(slot), v_ring.index(slot))
            slot += 1
            if slot == STAGES:
                slot = 0
                phase ^= 1


@gluon.jit
def attend(
    q_s,
    k_ring,
    v_ring,
    barriers,
    out_desc,
    out_s,
    heads,
    S,
    FACTOR: gl.constexpr,
    OFFSET: gl.constexpr,
    HALF: gl.constexpr,
    BLOCK_N: gl.constexpr,
    DIM: gl.constexpr,
    STAGES: gl.constexpr,
):
    """A warpgroup: its half of every tile's queries, which begins OFFSET behind the tile."""
    q_filled, q_emptied, k_filled, k_emptied, v_filled, v_emptied = barriers
    s_layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BLOCK_N, 16]
    )
    o_layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, DIM, 16])
    p_layout: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=o_layout, k_width=2)
    s_rows: gl.constexpr = gl.SliceLayout(1, s_layout)
    o_rows: gl.constexpr = gl.SliceLayout(1, o_layout)
    tiles = heads * (S // (2 * HALF))
    slot = 0
    phase = 0
    q_phase = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        head, query = place(tile, heads, S, 2 * HALF)
        keys = query + 2 * HALF
        zeros = gl.zeros((HALF, BLOCK_N), gl.float32, s_layout)
        # The block of keys that holds the diagonal comes first, and so every row has its first maximum.
        mbarrier.wait(q_filled, q_phase)
        mbarrier.wait(k_filled.index(slot), phase)
        scores = warpgroup_mma(q_s, k_ring.index(slot).permute((1, 0)), zeros, use_acc=False)
        mbarrier.arrive(k_emptied.index(slot), count=1)
        rows = query + OFFSET + gl.arange(0, HALF, s_rows)
        columns = keys - BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, s_layout))
        scores = gl.where(rows[:, None] >= columns[None, :], scores, float("-inf"))
        peak = gl.max(scores, axis=1)
        p = gl.exp2(scores * FACTOR - (peak * FACTOR)[:, None])
        total = gl.sum(p, axis=1)
        p_bf16 = gl.convert_layout(p.to(gl.bfloat16), p_layout)
        acc = gl.zeros((HALF, DIM), gl.float32, o_layout)
        for _ in range(BLOCK_N, keys, BLOCK_N):
            v_slot = slot
            v_phase = phase
            slot += 1
            if slot == STAGES:
                slot = 0
                phase ^= 1
            mbarrier.wait(k_filled.index(slot), phase)
            scores_made = warpgroup_mma(q_s, k_ring.index(slot).permute((1, 0)), zeros, use_acc=False, is_async=True)
            mbarrier.wait(v_filled.index(v_slot), v_phase)
            acc_made = warpgroup_mma(p_bf16, v_ring.index(v_slot), acc, is_async=True)
            scores = warpgroup_mma_wait(1, deps=(scores_made,))
            mbarrier.arrive(k_emptied.index(slot), count=1)
            higher = gl.maximum(peak, gl.max(scores, axis=1))
            fade = gl.exp2((peak - higher) * FACTOR)
            p = gl.exp2(scores * FACTOR - (higher * FACTOR)[:, None])
            total = total * fade + gl.sum(p, axis=1)
            peak = higher
            acc = warpgroup_mma_wait(0, deps=(acc_made,))
            mbarrier.arrive(v_emptied.index(v_slot), count=1)
            acc = acc * gl.convert_layout(fade, o_rows)[:, None]
            p_bf16 = gl.convert_layout(p.to(gl.bfloat16), p_layout)
        mbarrier.arrive(q_emptied, count=1)
        q_phase ^= 1
        mbarrier.wait(v_filled.index(slot), phase)
        acc = warpgroup_mma(p_bf16, v_ring.index(slot), acc)
        mbarrier.arrive(v_emptied.index(slot), count=1)
        slot += 1
        if slot == STAGES:
            slot = 0
            phase ^= 1
        out = acc * gl.convert_layout(1.0 / total, o_rows)[:, None]
        tma.store_wait(0)
        out_s.store(out.to(gl.bfloat16))
        fence_async_shared()
        bulk_store(out_desc, [head * S + query + OFFSET, 0], out_s)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["heads"])  # 1 would be no parameter
def forward_kernel(
    q_ptr,  # bf16 [heads, S, DIM]
    k_ptr,  # bf16 [heads / SHARE, S, DIM]
    v_ptr,  # the same
    out_ptr,  # bf16 [heads, S, DIM]
    heads,
    S,
    SHARE: gl.constexpr,  # heads of queries that share one of keys
    FACTOR: gl.constexpr,  # of scores, log2(e) in it
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    DIM: gl.constexpr,
    STAGES: gl.constexpr,
):
    HALF: gl.constexpr = BLOCK_M // 2
    q_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([HALF, DIM], gl.bfloat16)
    k_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_N, DIM], gl.bfloat16)
    q_desc = tma.make_tensor_descriptor(q_ptr, [heads * S, DIM], [DIM, 1], [HALF, DIM], q_layout)
    k_desc = tma.make_tensor_descriptor(k_ptr, [heads // SHARE * S, DIM], [DIM, 1], [BLOCK_N, DIM], k_layout)
    v_desc = tma.make_tensor_descriptor(v_ptr, [heads // SHARE * S, DIM], [DIM, 1], [BLOCK_N, DIM], k_layout)
    out_desc = tma.make_tensor_descriptor(out_ptr, [heads * S, DIM], [DIM, 1], [HALF, DIM], q_layout)
    q_top = gl.allocate_shared_memory(gl.bfloat16, [HALF, DIM], q_layout)
    q_low = gl.allocate_shared_memory(gl.bfloat16, [HALF, DIM], q_layout)
    out_top = gl.allocate_shared_memory(gl.bfloat16, [HALF, DIM], q_layout)
    out_low = gl.allocate_shared_memory(gl.bfloat16, [HALF, DIM], q_layout)
    k_ring = gl.allocate_shared_memory(gl.bfloat16, [STAGES, BLOCK_N, DIM], k_layout)
    v_ring = gl.allocate_shared_memory(gl.bfloat16, [STAGES, BLOCK_N, DIM], k_layout)
    q_filled = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    q_emptied = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    k_filled = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_emptied = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_filled = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_emptied = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(q_filled, count=1)
    mbarrier.init(q_emptied, count=2)
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_filled.index(stage), count=1)
        mbarrier.init(k_emptied.index(stage), count=2)
        mbarrier.init(v_filled.index(stage), count=1)
        mbarrier.init(v_emptied.index(stage), count=2)
    fence_async_shared()
    barriers = (q_filled, q_emptied, k_filled, k_emptied, v_filled, v_emptied)
    gl.warp_specialize(
        [
            (
                attend,
                (
                    q_top,
                    k_ring,
                    v_ring,
                    barriers,
                    out_desc,
                    out_top,
                    heads,
                    S,
                    FACTOR,
                    0,
                    HALF,
                    BLOCK_N,
                    DIM,
                    STAGES,
                ),
            ),
            (
                attend,
                (
                    q_low,
                    k_ring,
                    v_ring,
                    barriers,
                    out_desc,
                    out_low,
                    heads,
                    S,
                    FACTOR,
                    HALF,
                    HALF,
                    BLOCK_N,
                    DIM,
                    STAGES,
                ),
            ),
            (
                load_forward,
                (
                    (q_desc, k_desc, v_desc),
                    (q_top, q_low, k_ring, v_ring),
                    barriers,
                    heads,
                    S,
                    SHARE,
                    HALF,
                    BLOCK_N,
                    DIM,
                    STAGES,
                ),
            ),
        ],
        [4, 1],
        [240, 24],
    )
