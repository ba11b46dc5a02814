"""Causal attention backward on Hopper by explicit warps, after FlashAttention-3 (Shah et al., 2024, arXiv 2407.08608).

A program has a block of keys and values in shared memory, and the sums of their gradients in registers. It meets all
queries behind the block, of all heads that share these keys, so nothing of dk and dv is ever added up in memory. One
warp loads queries and the output's gradients by bulk copies; two warpgroups multiply, each with half of the keys.
Scores are made transposed, keys by queries: so the two sums take their left operand from registers.

The queries' gradient needs the scores' gradients of all keys, which the warpgroups hand each other through shared
memory, and of which each multiplies half of the columns, added up in float32 in global memory. That is all they wait
for each other for, and while one waits its own sums are multiplied. So one's softmax runs beside the other's products.
"""

from common.bulk import bulk_add, bulk_load, bulk_store, bulk_view
from common.warps import GROUPS, next_stage
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)


@gluon.jit
def block_of_keys(S, SHARE: gl.constexpr, SECTION: gl.constexpr, BLOCK_N: gl.constexpr):
    """The program's head of keys, where its block of them begins, and with which of its SHARE heads of queries it
    begins: the longest first, within SECTION heads of keys. Programs whose blocks are later are through with a head
    sooner, so they begin further back: most of those that run meet the same heads at a time, which then are in the
    L2."""
    blocks = S // BLOCK_N
    heads = gl.num_programs(0) // blocks
    first = gl.program_id(0) // (SECTION * blocks) * SECTION
    together = gl.minimum(heads - first, SECTION)
    inside = gl.program_id(0) - first * blocks
    block = inside // together
    return first + inside % together, block * BLOCK_N, (SHARE - block * SHARE // blocks) % SHARE


@gluon.jit
def load_backward(
    descs,
    fixed,
    rings,
    barriers,
    S,
    SHARE: gl.constexpr,
    SECTION: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    DIM: gl.constexpr,
    STAGES: gl.constexpr,
):
    """The loading warp."""
    q_desc, k_desc, v_desc, dout_desc, lse_desc, delta_desc = descs
    k_s, v_s = fixed
    q_ring, dout_ring, lse_ring, delta_ring = rings
    kv_filled, q_filled, dout_filled, emptied = barriers
    HALF: gl.constexpr = BLOCK_N // GROUPS
    head, key, share = block_of_keys(S, SHARE, SECTION, BLOCK_N)
    mbarrier.expect(kv_filled, 2 * BLOCK_N * DIM * 2)
    for group in gl.static_range(GROUPS):
        bulk_load(k_desc, [head * S + key + group * HALF, 0], kv_filled, k_s.index(group))
        bulk_load(v_desc, [head * S + key + group * HALF, 0], kv_filled, v_s.index(group))
    slot = 0
    phase = 1
    for _ in range(SHARE):
        for query in range(key, S, BLOCK_M):
            row = (head * SHARE + share) * S + query
            mbarrier.wait(emptied.index(slot), phase)
            full = q_filled.index(slot)
            mbarrier.expect(full, BLOCK_M * DIM * 2 + BLOCK_M * 4)
            bulk_load(q_desc, [row, 0], full, q_ring.index(slot))
            bulk_load(lse_desc, [row], full, lse_ring.index(slot))
            full = dout_filled.index(slot)
            mbarrier.expect(full, BLOCK_M * DIM * 2 + BLOCK_M * 4)
            bulk_load(dout_desc, [row, 0], full, dout_ring.index(slot))
            bulk_load(delta_desc, [row], full, delta_ring.index(slot))
            slot, phase = next_stage(slot, phase, STAGES)
        share = (share + 1) % SHARE


@gluon.jit
def differentiate(
    fixed,
    rings,
    barriers,
    handed,
    dq_ring,
    outs,
    S,
    MINE: gl.constexpr,  # which of the groups this is
    SHARE: gl.constexpr,
    SECTION: gl.constexpr,
    FACTOR: gl.constexpr,
    SCALE: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    DIM: gl.constexpr,
    STAGES: gl.constexpr,
):
    """A warpgroup: its half of the keys, and of the columns of the queries' gradient."""
    k_s, v_s = fixed
    q_ring, dout_ring, lse_ring, delta_ring = rings
    kv_filled, q_filled, dout_filled, emptied = barriers
    ds_ring, ds_filled, over = handed
    dq_desc, dk_desc, dv_desc = outs
    HALF: gl.constexpr = BLOCK_N // GROUPS
    COLUMNS: gl.constexpr = DIM // GROUPS
    s_layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BLOCK_M, 16]
    )  # keys by queries
    k_layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, DIM, 16])
    q_layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, COLUMNS, 16]
    )
    a_layout: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=k_layout, k_width=2)
    row_layout: gl.constexpr = gl.SliceLayout(0, s_layout)
    part_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([HALF, COLUMNS], gl.bfloat16)
    k_parts = bulk_view(k_s, gl.bfloat16, [GROUPS * GROUPS, HALF, COLUMNS], part_layout)  # columns lie behind others
    head, key, share = block_of_keys(S, SHARE, SECTION, BLOCK_N)
    blocks = (S - key) // BLOCK_M

    zeros = gl.zeros((HALF, BLOCK_M), gl.float32, s_layout)
    q_zeros = gl.zeros((BLOCK_M, COLUMNS), gl.float32, q_layout)
    dk = warpgroup_mma_init(gl.zeros((HALF, DIM), gl.float32, k_layout))
    dv = warpgroup_mma_init(gl.zeros((HALF, DIM), gl.float32, k_layout))
    keys = MINE * HALF + gl.arange(0, HALF, gl.SliceLayout(1, s_layout))

    slot = 0
    phase = 0
    block = 0
    row = (head * SHARE + share) * S + key  # of the queries, among all heads'
    mbarrier.wait(kv_filled, 0)
    for step in range(SHARE * blocks):
        mbarrier.wait(q_filled.index(slot), phase)
        q_s = q_ring.index(slot)
        scores_made = warpgroup_mma(k_s.index(MINE), q_s.permute((1, 0)), zeros, use_acc=False, is_async=True)
        mbarrier.wait(dout_filled.index(slot), phase)
        dout_s = dout_ring.index(slot)
        dp_made = warpgroup_mma(v_s.index(MINE), dout_s.permute((1, 0)), zeros, use_acc=False, is_async=True)
        scores = warpgroup_mma_wait(1, deps=(scores_made,))
        lse = lse_ring.index(slot).load(row_layout)
        p = gl.exp2(scores * FACTOR - lse[None, :])
        if block * BLOCK_M < (MINE + 1) * HALF:
            queries = block * BLOCK_M + gl.arange(0, BLOCK_M, row_layout)
            p = gl.where(queries[None, :] >= keys[:, None], p, 0.0)
        dp = warpgroup_mma_wait(0, deps=(dp_made,))
        delta = delta_ring.index(slot).load(row_layout)
        ds = (p * (dp - delta[None, :])).to(gl.bfloat16)
        dv = warpgroup_mma(gl.convert_layout(p.to(gl.bfloat16), a_layout), dout_s, dv, is_async=True)
        # The other warpgroup has read what was there: it has handed over that of a step since.
        turn = step % 2
        ds_ring.index(turn * GROUPS + MINE).store(ds)
        fence_async_shared()
        mbarrier.arrive(ds_filled.index(turn), count=1)
        dk = warpgroup_mma(gl.convert_layout(ds, a_layout), q_s, dk, is_async=True)
        mbarrier.wait(ds_filled.index(turn), step // 2 % 2)
        dq_made = q_zeros
        for group in gl.static_range(GROUPS):
            ds_s, k_part = ds_ring.index(turn * GROUPS + group), k_parts.index(group * GROUPS + MINE)
            dq_made = warpgroup_mma(ds_s.permute((1, 0)), k_part, dq_made, use_acc=group > 0, is_async=True)
        dk_done, dv_done = warpgroup_mma_wait(GROUPS, deps=(dk, dv))
        dk = warpgroup_mma_init(dk_done)
        dv = warpgroup_mma_init(dv_done)
        mbarrier.arrive(emptied.index(slot), count=1)
        dq = warpgroup_mma_wait(0, deps=(dq_made,))
        tma.store_wait(0)
        dq_ring.index(MINE).store(dq)
        fence_async_shared()
        bulk_add(dq_desc, [row, MINE * COLUMNS], dq_ring.index(MINE))
        slot, phase = next_stage(slot, phase, STAGES)
        block += 1
        row += BLOCK_M
        if block == blocks:
            block = 0
            share = (share + 1) % SHARE
            row = (head * SHARE + share) * S + key
    dk_done, dv_done = warpgroup_mma_wait(0, deps=(dk, dv))
    mbarrier.arrive(over, count=1)
    mbarrier.wait(over, 0)  # nobody needs the keys any more
    k_s.index(MINE).store((dk_done * SCALE).to(gl.bfloat16))
    v_s.index(MINE).store(dv_done.to(gl.bfloat16))
    fence_async_shared()
    bulk_store(dk_desc, [head * S + key + MINE * HALF, 0], k_s.index(MINE))
    bulk_store(dv_desc, [head * S + key + MINE * HALF, 0], v_s.index(MINE))
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["heads"])  # 1 would be no parameter
def backward_kernel(
    q_ptr,  # bf16 [heads * SHARE, S, DIM]
    k_ptr,  # bf16 [heads, S, DIM]
    v_ptr,  # the same
    dout_ptr,  # bf16 [heads * SHARE, S, DIM]
    lse_ptr,  # float32 [heads * SHARE, S]: times log2(e)
    delta_ptr,  # float32 [heads * SHARE, S]: the sum of output times gradient
    dq_ptr,  # float32 [heads * SHARE, S, DIM], 0
    dk_ptr,  # as k_ptr
    dv_ptr,  # the same
    heads,
    S,
    SHARE: gl.constexpr,  # heads of queries that share one of keys
    FACTOR: gl.constexpr,  # of scores, log2(e) in it
    SCALE: gl.constexpr,  # without
    SECTION: gl.constexpr,  # heads of keys that are worked on together
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    DIM: gl.constexpr,
    STAGES: gl.constexpr,
):
    HALF: gl.constexpr = BLOCK_N // GROUPS
    COLUMNS: gl.constexpr = DIM // GROUPS
    q_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_M, DIM], gl.bfloat16)
    k_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([HALF, DIM], gl.bfloat16)
    ds_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([HALF, BLOCK_M], gl.bfloat16)
    dq_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_M, COLUMNS], gl.float32)
    row_layout: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=1)
    rows = heads * SHARE * S
    q_desc = tma.make_tensor_descriptor(q_ptr, [rows, DIM], [DIM, 1], [BLOCK_M, DIM], q_layout)
    dout_desc = tma.make_tensor_descriptor(dout_ptr, [rows, DIM], [DIM, 1], [BLOCK_M, DIM], q_layout)
    lse_desc = tma.make_tensor_descriptor(lse_ptr, [rows], [1], [BLOCK_M], row_layout)
    delta_desc = tma.make_tensor_descriptor(delta_ptr, [rows], [1], [BLOCK_M], row_layout)
    k_desc = tma.make_tensor_descriptor(k_ptr, [heads * S, DIM], [DIM, 1], [HALF, DIM], k_layout)
    v_desc = tma.make_tensor_descriptor(v_ptr, [heads * S, DIM], [DIM, 1], [HALF, DIM], k_layout)
    dq_desc = tma.make_tensor_descriptor(dq_ptr, [rows, DIM], [DIM, 1], [BLOCK_M, COLUMNS], dq_layout)
    dk_desc = tma.make_tensor_descriptor(dk_ptr, [heads * S, DIM], [DIM, 1], [HALF, DIM], k_layout)
    dv_desc = tma.make_tensor_descriptor(dv_ptr, [heads * S, DIM], [DIM, 1], [HALF, DIM], k_layout)
    k_s = gl.allocate_shared_memory(gl.bfloat16, [GROUPS, HALF, DIM], k_layout)
    v_s = gl.allocate_shared_memory(gl.bfloat16, [GROUPS, HALF, DIM], k_layout)
    ds_ring = gl.allocate_shared_memory(gl.bfloat16, [2 * GROUPS, HALF, BLOCK_M], ds_layout)
    dq_ring = gl.allocate_shared_memory(gl.float32, [GROUPS, BLOCK_M, COLUMNS], dq_layout)
    q_ring = gl.allocate_shared_memory(gl.bfloat16, [STAGES, BLOCK_M, DIM], q_layout)
    dout_ring = gl.allocate_shared_memory(gl.bfloat16, [STAGES, BLOCK_M, DIM], q_layout)
    lse_ring = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK_M], row_layout)
    delta_ring = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK_M], row_layout)
    kv_filled = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    over = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    ds_filled = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    q_filled = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    dout_filled = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    emptied = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(kv_filled, count=1)
    mbarrier.init(over, count=GROUPS)
    for turn in gl.static_range(2):
        mbarrier.init(ds_filled.index(turn), count=GROUPS)
    for stage in gl.static_range(STAGES):
        mbarrier.init(q_filled.index(stage), count=1)
        mbarrier.init(dout_filled.index(stage), count=1)
        mbarrier.init(emptied.index(stage), count=GROUPS)
    fence_async_shared()
    fixed = (k_s, v_s)
    rings = (q_ring, dout_ring, lse_ring, delta_ring)
    barriers = (kv_filled, q_filled, dout_filled, emptied)
    handed = (ds_ring, ds_filled, over)
    outs = (dq_desc, dk_desc, dv_desc)
    # fmt: off
    gl.warp_specialize(
        [
            (differentiate, (
                fixed, rings, barriers, handed, dq_ring, outs, S, 0, SHARE, SECTION, FACTOR, SCALE,
                BLOCK_M, BLOCK_N, DIM, STAGES,
            )),
            (differentiate, (
                fixed, rings, barriers, handed, dq_ring, outs, S, 1, SHARE, SECTION, FACTOR, SCALE,
                BLOCK_M, BLOCK_N, DIM, STAGES,
            )),
            (load_backward, (
                (q_desc, k_desc, v_desc, dout_desc, lse_desc, delta_desc), fixed, rings, barriers, S, SHARE, SECTION,
                BLOCK_M, BLOCK_N, DIM, STAGES,
            )),
        ],
        [4, 1],
        [240, 24],
    )
    # fmt: on
