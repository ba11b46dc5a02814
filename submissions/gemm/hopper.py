"""The product on Hopper by explicit warps: one loads, two warpgroups multiply, and their results leave beside the next
tile's product.

A program multiplies tile after tile. Its loading warp fills a ring of stages by bulk copies, as far ahead as the ring
is long, also across tiles. Each warpgroup owns half of a tile's rows. It rounds its half and puts it into memory of its
own, and a bulk copy takes it away while the other warpgroup still multiplies and the next tile's operands arrive.
Barriers in shared memory are all that couples the three.
"""

from common.bulk import bulk_load, bulk_store
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
def place(tile, M, N, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GROUP: gl.constexpr):
    """Row and column of a tile: column by column within GROUP rows of tiles, so that the tiles that are multiplied at
    the same time share operands in the L2."""
    tiles_m = gl.cdiv(M, BLOCK_M)
    in_group = GROUP * gl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP
    rows = gl.minimum(tiles_m - first, GROUP)
    inside = tile % in_group
    return (first + inside % rows) * BLOCK_M, inside // rows * BLOCK_N


@gluon.jit
def load_tiles(
    a_desc,
    b_desc,
    a_top,
    a_low,
    b_ring,
    filled,
    emptied,
    M,
    N,
    K,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    HALF: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
):
    """The loading warp."""
    tiles = gl.cdiv(M, 2 * HALF) * gl.cdiv(N, BLOCK_N)
    slot = 0
    phase = 1  # of a ring that is empty
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, column = place(tile, M, N, 2 * HALF, BLOCK_N, GROUP)
        for depth in range(0, K, BLOCK_K):
            full = filled.index(slot)
            mbarrier.wait(emptied.index(slot), phase)
            mbarrier.expect(full, (2 * HALF + BLOCK_N) * BLOCK_K * 2)
            bulk_load(a_desc, [row, depth], full, a_top.index(slot))
            bulk_load(b_desc, [column, depth], full, b_ring.index(slot))
            bulk_load(a_desc, [row + HALF, depth], full, a_low.index(slot))
            slot += 1
            if slot == STAGES:
                slot = 0
                phase ^= 1


@gluon.jit
def multiply_tiles(
    a_ring,
    b_ring,
    filled,
    emptied,
    out_desc,
    out_s,
    M,
    N,
    K,
    offset,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    HALF: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    layout: gl.constexpr,
):
    """A warpgroup: its half of every tile's rows, which begins `offset` rows behind the tile."""
    tiles = gl.cdiv(M, 2 * HALF) * gl.cdiv(N, BLOCK_N)
    slot = 0
    phase = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, column = place(tile, M, N, 2 * HALF, BLOCK_N, GROUP)
        acc = warpgroup_mma_init(gl.zeros((HALF, BLOCK_N), gl.float32, layout))
        for depth in range(0, K, BLOCK_K):
            mbarrier.wait(filled.index(slot), phase)
            acc = warpgroup_mma(a_ring.index(slot), b_ring.index(slot).permute((1, 0)), acc, is_async=True)
            # At most this product is under way now: the stage of the one before it may be filled again.
            acc = warpgroup_mma_init(warpgroup_mma_wait(1, deps=(acc,)))
            mbarrier.arrive(emptied.index((slot + STAGES - 1) % STAGES), count=1, pred=depth > 0)
            slot += 1
            if slot == STAGES:
                slot = 0
                phase ^= 1
        product = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(emptied.index((slot + STAGES - 1) % STAGES), count=1)
        rounded = product.to(gl.bfloat16)
        tma.store_wait(0)
        out_s.store(rounded)
        fence_async_shared()
        bulk_store(out_desc, [row + offset, column], out_s)
    tma.store_wait(0)


@gluon.jit
def product_kernel(
    a_ptr,  # bf16 [M, K]
    b_ptr,  # bf16 [N, K]
    out_ptr,  # bf16 [M, N]
    M,
    N,
    K,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
):
    HALF: gl.constexpr = BLOCK_M // 2
    a_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([HALF, BLOCK_K], gl.bfloat16)
    b_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_N, BLOCK_K], gl.bfloat16)
    out_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([HALF, BLOCK_N], gl.bfloat16)
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BLOCK_N, 16]
    )
    a_desc = tma.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [HALF, BLOCK_K], a_layout)
    b_desc = tma.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BLOCK_N, BLOCK_K], b_layout)
    out_desc = tma.make_tensor_descriptor(out_ptr, [M, N], [N, 1], [HALF, BLOCK_N], out_layout)
    a_top = gl.allocate_shared_memory(gl.bfloat16, [STAGES, HALF, BLOCK_K], a_layout)
    a_low = gl.allocate_shared_memory(gl.bfloat16, [STAGES, HALF, BLOCK_K], a_layout)
    b_ring = gl.allocate_shared_memory(gl.bfloat16, [STAGES, BLOCK_N, BLOCK_K], b_layout)
    out_top = gl.allocate_shared_memory(gl.bfloat16, [HALF, BLOCK_N], out_layout)
    out_low = gl.allocate_shared_memory(gl.bfloat16, [HALF, BLOCK_N], out_layout)
    filled = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    emptied = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(filled.index(stage), count=1)
        mbarrier.init(emptied.index(stage), count=2)
    fence_async_shared()
    gl.warp_specialize(
        [
            (
                multiply_tiles,
                (
                    a_top,
                    b_ring,
                    filled,
                    emptied,
                    out_desc,
                    out_top,
                    M,
                    N,
                    K,
                    0,
                    BLOCK_N,
                    BLOCK_K,
                    HALF,
                    STAGES,
                    GROUP,
                    layout,
                ),
            ),
            (
                multiply_tiles,
                (
                    a_low,
                    b_ring,
                    filled,
                    emptied,
                    out_desc,
                    out_low,
                    M,
                    N,
                    K,
                    HALF,
                    BLOCK_N,
                    BLOCK_K,
                    HALF,
                    STAGES,
                    GROUP,
                    layout,
                ),
            ),
            (
                load_tiles,
                (
                    a_desc,
                    b_desc,
                    a_top,
                    a_low,
                    b_ring,
                    filled,
                    emptied,
                    M,
                    N,
                    K,
                    BLOCK_N,
                    BLOCK_K,
                    HALF,
                    STAGES,
                    GROUP,
                ),
            ),
        ],
        [4, 1],
        [240, 24],
    )
