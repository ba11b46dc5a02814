"""gemm_rs on Hopper by explicit warps: one loads, one or two warpgroups multiply, one warp sends.

A program multiplies the other ranks' rows first, which the sending warp copies into their memory out of shared memory
and flags as soon as they have arrived there; only that warp waits for links. The rank's own rows come last. Behind
their operands the loading warp puts the other ranks' partial products of the tile into the same ring, as soon as their
flags say that they have come. So they lie in shared memory when the product is done, and the multipliers add them to
it in registers: each partial product is rounded to bf16 but the rank's own.

No program waits for another rank before it has multiplied all that others wait for, so none waits in a circle. Where a
tile holds rows of several ranks, each rank comes to the same tile in the same round.
"""

from common.bulk import bulk_load, bulk_store, bulk_view
from common.warps import (
    FLAG_BYTES,
    bf16_behind,
    finish_copies,
    hand_over,
    made_ring,
    multiplied,
    next_stage,
    set_flag,
    wait_for,
)
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma


@gluon.jit
def place(
    tile, M, N, rank, WORLD: gl.constexpr, MIXED: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
    GROUP: gl.constexpr,
):  # fmt: skip
    """Row and column where a tile begins, its number among those of its owner, and whether the rank owns rows of it.

    The other ranks' tiles take turns, so that all links are busy, and the rank's own follow. Within a rank's rows they
    go column by column within GROUP rows of tiles: the tiles that are multiplied at the same time share operands."""
    m = M // WORLD
    tiles_n = gl.cdiv(N, BLOCK_N)
    if MIXED:
        row = tile // tiles_n * BLOCK_M
        number = tile % tiles_n
        column = number * BLOCK_N
        own = (row <= rank * m) & (rank * m < row + BLOCK_M)
    else:
        tiles_m = m // BLOCK_M
        remote = (WORLD - 1) * tiles_m * tiles_n
        own = tile >= remote
        inside = gl.where(own, tile - remote, tile // (WORLD - 1))
        owner = gl.where(own, rank, (rank + 1 + tile % (WORLD - 1)) % WORLD)
        first = inside // (GROUP * tiles_n) * GROUP
        rows = gl.minimum(tiles_m - first, GROUP)
        behind = inside % (GROUP * tiles_n)
        tile_m = first + behind % rows
        tile_n = behind // rows
        row = owner * m + tile_m * BLOCK_M
        column = tile_n * BLOCK_N
        number = tile_m * tiles_n + tile_n
    return row, column, number, own


@gluon.jit
def load_tiles(
    a_ptr,
    b_ptr,
    sizes,
    heap,
    ring,
    WORLD: gl.constexpr,
    MIXED: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    GROUPS: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
):
    """The loading warp: operands, and the other ranks' parts of the rank's own tiles."""
    M, N, K, rank = sizes
    blocks_ptr, epoch, flags, slots = heap
    a_ring, b_ring, filled, emptied = ring
    HALF: gl.constexpr = BLOCK_M // GROUPS
    part_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([HALF, BLOCK_N], gl.bfloat16)
    a_desc = tma.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [HALF, BLOCK_K], a_ring.layout)
    b_desc = tma.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BLOCK_N, BLOCK_K], b_ring.layout)
    own_block = gl.load(blocks_ptr + rank)
    parts_ptr = bf16_behind(own_block, slots)
    parts_desc = tma.make_tensor_descriptor(parts_ptr, [M, N], [N, 1], [HALF, BLOCK_N], part_layout)
    m = M // WORLD
    tiles_n = gl.cdiv(N, BLOCK_N)
    owned = gl.maximum(m // BLOCK_M, 1) * tiles_n  # tiles with rows of one rank
    slot = 0
    phase = 1  # of a ring that is empty
    for tile in range(gl.program_id(0), gl.cdiv(M, BLOCK_M) * tiles_n, gl.num_programs(0)):
        row, column, number, own = place(tile, M, N, rank, WORLD, MIXED, BLOCK_M, BLOCK_N, GROUP)
        for depth in range(0, K, BLOCK_K):
            mbarrier.wait(emptied.index(slot), phase)
            mbarrier.expect(filled.index(slot), (BLOCK_M + BLOCK_N) * BLOCK_K * 2)
            bulk_load(b_desc, [column, depth], filled.index(slot), b_ring.index(slot))
            for group in gl.static_range(GROUPS):
                part_s = a_ring.index(slot * GROUPS + group)
                bulk_load(a_desc, [row + group * HALF, depth], filled.index(slot), part_s)
            slot, phase = next_stage(slot, phase, STAGES)
        if own:
            for step in range(1, WORLD):
                source = (rank + WORLD - step) % WORLD  # the rank before this one has sent to it first
                wait_for(own_block + flags + (source * owned + number).to(gl.int64) * FLAG_BYTES, epoch)
                for group in gl.static_range(GROUPS):
                    mbarrier.wait(emptied.index(slot), phase)
                    mbarrier.expect(filled.index(slot), HALF * BLOCK_N * 2)
                    part_s = bulk_view(b_ring.index(slot), gl.bfloat16, [HALF, BLOCK_N], part_layout)
                    # Where the tile has other ranks' rows too, what is read of them means nothing.
                    from_row = (source - rank) * m + row + group * HALF
                    bulk_load(parts_desc, [from_row, column], filled.index(slot), part_s)
                    slot, phase = next_stage(slot, phase, STAGES)


@gluon.jit
def multiply_tiles(
    bias_ptr,
    sizes,
    ring,
    leaving,
    MINE: gl.constexpr,  # which of the groups this is
    WORLD: gl.constexpr,
    MIXED: gl.constexpr,
    HAS_BIAS: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    GROUPS: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
):
    """A warpgroup: its part of every tile's rows."""
    M, N, K, rank = sizes
    a_ring, b_ring, filled, emptied = ring
    out_s, full, free = leaving
    HALF: gl.constexpr = BLOCK_M // GROUPS
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BLOCK_N, 16]
    )
    part_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([HALF, BLOCK_N], gl.bfloat16)
    m = M // WORLD
    steps = gl.cdiv(K, BLOCK_K)
    places = gl.arange(0, BLOCK_N, gl.SliceLayout(0, layout))
    rows = MINE * HALF + gl.arange(0, HALF, gl.SliceLayout(1, layout))
    slot = 0
    phase = 0
    sent = 0  # the phase of the buffer that is sent from
    for tile in range(gl.program_id(0), gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N), gl.num_programs(0)):
        row, column, _, own = place(tile, M, N, rank, WORLD, MIXED, BLOCK_M, BLOCK_N, GROUP)
        acc = gl.zeros((HALF, BLOCK_N), gl.float32, layout)
        if HAS_BIAS:  # first: it would take more registers last
            bias = gl.load(bias_ptr + column + places, mask=own & (column + places < N), other=0.0)
            acc += WORLD * bias.to(gl.float32)[None, :]
        acc, slot, phase = multiplied(a_ring, b_ring, filled, emptied, acc, steps, slot, phase, MINE, GROUPS, STAGES)
        if MIXED or not own:
            sent = hand_over(acc, out_s.index(MINE), full.index(MINE), free.index(MINE), sent)
        if own:
            for _ in range(1, WORLD):
                for group in gl.static_range(GROUPS):
                    mbarrier.wait(filled.index(slot), phase)
                    if group == MINE:
                        part_s = bulk_view(b_ring.index(slot), gl.bfloat16, [HALF, BLOCK_N], part_layout)
                        part = part_s.load(layout).to(gl.float32)
                        if MIXED:
                            mine = (row + rows) // m == rank
                            part = gl.where(mine[:, None], part, 0.0)
                        acc += part
                        # Ordinary loads that are still under way do not hold up the bulk copy that fills this next.
                        fence_async_shared()
                    mbarrier.arrive(emptied.index(slot), count=1)
                    slot, phase = next_stage(slot, phase, STAGES)
            sent = hand_over(acc, out_s.index(MINE), full.index(MINE), free.index(MINE), sent)


@gluon.jit
def send_tiles(
    out_ptr,
    sizes,
    heap,
    leaving,
    WORLD: gl.constexpr,
    MIXED: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    GROUPS: gl.constexpr,
    PIECE: gl.constexpr,  # rows that are sent at once: a warpgroup's, or as many of them as a rank owns
    GROUP: gl.constexpr,
):
    """The sending warp: other ranks' rows into their memory, own rows into the output."""
    M, N, _, rank = sizes
    blocks_ptr, epoch, flags, slots = heap
    out_s, full, free = leaving
    HALF: gl.constexpr = BLOCK_M // GROUPS
    m = M // WORLD
    tiles_n = gl.cdiv(N, BLOCK_N)
    owned = gl.maximum(m // BLOCK_M, 1) * tiles_n
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([PIECE, BLOCK_N], gl.bfloat16)
    out_desc = tma.make_tensor_descriptor(out_ptr, [m, N], [N, 1], [PIECE, BLOCK_N], layout)
    blocks = ()
    peer_descs = ()
    for step in gl.static_range(1, WORLD):
        block = gl.load(blocks_ptr + (rank + step) % WORLD)
        blocks += (block,)
        to_ptr = bf16_behind(block, slots + rank * m * N * 2)
        peer_descs += (tma.make_tensor_descriptor(to_ptr, [m, N], [N, 1], [PIECE, BLOCK_N], layout),)
    phase = 0
    for tile in range(gl.program_id(0), gl.cdiv(M, BLOCK_M) * tiles_n, gl.num_programs(0)):
        row, column, number, own = place(tile, M, N, rank, WORLD, MIXED, BLOCK_M, BLOCK_N, GROUP)
        if MIXED or not own:
            for group in gl.static_range(GROUPS):
                mbarrier.wait(full.index(group), phase)
                for piece in gl.static_range(HALF // PIECE):
                    from_row = row + group * HALF + piece * PIECE
                    piece_s = out_s.index(group).slice(piece * PIECE, PIECE)
                    for step in gl.static_range(1, WORLD):
                        if from_row // m == (rank + step) % WORLD:
                            bulk_store(peer_descs[step - 1], [from_row % m, column], piece_s)
            tma.store_wait(0)
            for group in gl.static_range(GROUPS):
                mbarrier.arrive(free.index(group), count=1)
            phase ^= 1
            finish_copies()
            flag = flags + (rank * owned + number).to(gl.int64) * FLAG_BYTES
            for step in gl.static_range(1, WORLD):
                owner = (rank + step) % WORLD
                if (owner >= row // m) & (owner * m < row + BLOCK_M):
                    set_flag(blocks[step - 1] + flag, epoch)
        if own:
            for group in gl.static_range(GROUPS):
                mbarrier.wait(full.index(group), phase)
                for piece in gl.static_range(HALF // PIECE):
                    from_row = row + group * HALF + piece * PIECE
                    if from_row // m == rank:
                        bulk_store(out_desc, [from_row % m, column], out_s.index(group).slice(piece * PIECE, PIECE))
            tma.store_wait(0)
            for group in gl.static_range(GROUPS):
                mbarrier.arrive(free.index(group), count=1)
            phase ^= 1


@gluon.jit(do_not_specialize=["rank", "epoch", "flags"])
def warps_kernel(
    a_ptr,  # all as in gemm_rs_kernel
    b_ptr,
    bias_ptr,
    out_ptr,
    blocks_ptr,
    M,
    N,
    K,
    rank,
    epoch,
    flags,
    slots,
    WORLD: gl.constexpr,
    HAS_BIAS: gl.constexpr,
    MIXED: gl.constexpr,  # a tile holds rows of several ranks
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    GROUPS: gl.constexpr,  # warpgroups that multiply
    PIECE: gl.constexpr,  # see send_tiles
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
):
    HALF: gl.constexpr = BLOCK_M // GROUPS
    out_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([HALF, BLOCK_N], gl.bfloat16)
    ring = made_ring(BLOCK_M, BLOCK_N, BLOCK_K, GROUPS, STAGES)
    out_s = gl.allocate_shared_memory(gl.bfloat16, [GROUPS, HALF, BLOCK_N], out_layout)
    full = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], mbarrier.MBarrierLayout())
    for group in gl.static_range(GROUPS):
        mbarrier.init(full.index(group), count=1)
        mbarrier.init(free.index(group), count=1)
    fence_async_shared()
    sizes = (M, N, K, rank)
    heap = (blocks_ptr, epoch, flags, slots)
    leaving = (out_s, full, free)
    # fmt: off
    if GROUPS == 1:
        gl.warp_specialize(
            [
                (multiply_tiles, (
                    bias_ptr, sizes, ring, leaving, 0, WORLD, MIXED, HAS_BIAS, BLOCK_M, BLOCK_N, BLOCK_K, GROUPS,
                    STAGES, GROUP,
                )),
                (load_tiles, (
                    a_ptr, b_ptr, sizes, heap, ring, WORLD, MIXED, BLOCK_M, BLOCK_N, BLOCK_K, GROUPS, STAGES, GROUP,
                )),
                (send_tiles, (
                    out_ptr, sizes, heap, leaving, WORLD, MIXED, BLOCK_M, BLOCK_N, GROUPS, PIECE, GROUP,
                )),
            ],
            [1, 1],
            [56, 56],
        )
    else:
        gl.warp_specialize(
            [
                (multiply_tiles, (
                    bias_ptr, sizes, ring, leaving, 0, WORLD, MIXED, HAS_BIAS, BLOCK_M, BLOCK_N, BLOCK_K, GROUPS,
                    STAGES, GROUP,
                )),
                (multiply_tiles, (
                    bias_ptr, sizes, ring, leaving, 1, WORLD, MIXED, HAS_BIAS, BLOCK_M, BLOCK_N, BLOCK_K, GROUPS,
                    STAGES, GROUP,
                )),
                (load_tiles, (
                    a_ptr, b_ptr, sizes, heap, ring, WORLD, MIXED, BLOCK_M, BLOCK_N, BLOCK_K, GROUPS, STAGES, GROUP,
                )),
                (send_tiles, (
                    out_ptr, sizes, heap, leaving, WORLD, MIXED, BLOCK_M, BLOCK_N, GROUPS, PIECE, GROUP,
                )),
            ],
            [4, 1, 1],
            [224, 56, 56],
        )
    # fmt: on
