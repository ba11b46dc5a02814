"""The product on Hopper by explicit warps: one loads, two warpgroups multiply, and their results leave beside the next
tile's product.

A program multiplies tile after tile. Its loading warp fills a ring of stages by bulk copies, as far ahead as the ring
is long, also across tiles. Each warpgroup owns half of a tile's rows. It rounds its half and puts it into memory of its
own, and a bulk copy takes it away while the other warpgroup still multiplies and the next tile's operands arrive.
Barriers in shared memory are all that couples the three.

SHARED: all programs share the tiles of the last round, of which there are fewer than programs (stream-K). The steps of
these tiles (blocks of the depth) form one line, and each program takes a run of it, all equally long; a run lies in
two tiles at most. A warpgroup writes its sums over its part of a tile to memory and counts itself. The one that comes
last adds the parts up in the order of the depth, so results do not depend on who that is. No program waits for another.
"""

from common.bulk import bulk_load, bulk_store, partition_barrier
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

COUNTERS = gl.constexpr(1024)  # two for each shared tile, 4 bytes each, ahead of the sums


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
def whole_tiles(M, N, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, SHARED: gl.constexpr):
    """How many tiles one program multiplies alone, and how many there are."""
    tiles = gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N)
    whole = tiles
    if SHARED:
        whole = tiles // gl.num_programs(0) * gl.num_programs(0)
    return whole, tiles


@gluon.jit
def run_of(shared, steps):
    """This program's run of the steps of all shared tiles: the first one, and the one behind the last."""
    first = gl.program_id(0) * (shared * steps) // gl.num_programs(0)
    last = (gl.program_id(0) + 1) * (shared * steps) // gl.num_programs(0)
    return first, last


@gluon.jit
def program_of(step, shared, steps):
    """The program whose run has that step."""
    return ((step + 1) * gl.num_programs(0) - 1) // (shared * steps)


@gluon.jit
def load_tile(descs, ring, row, column, first, last, slot, phase, HALF: gl.constexpr, BLOCK_N: gl.constexpr,
              BLOCK_K: gl.constexpr, STAGES: gl.constexpr):  # fmt: skip
    """Loads a tile's operands from depth `first` to depth `last`. Returns the stage behind them, and its phase."""
    a_desc, b_desc = descs
    a_top, a_low, b_ring, filled, emptied = ring
    for depth in range(first, last, BLOCK_K):
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
    return slot, phase


@gluon.jit
def load_tiles(descs, ring, sizes, HALF: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
               STAGES: gl.constexpr, GROUP: gl.constexpr, SHARED: gl.constexpr):  # fmt: skip
    """The loading warp."""
    M, N, K = sizes
    whole, tiles = whole_tiles(M, N, 2 * HALF, BLOCK_N, SHARED)
    slot = 0
    phase = 1  # of a ring that is empty
    for tile in range(gl.program_id(0), whole, gl.num_programs(0)):
        row, column = place(tile, M, N, 2 * HALF, BLOCK_N, GROUP)
        slot, phase = load_tile(descs, ring, row, column, 0, K, slot, phase, HALF, BLOCK_N, BLOCK_K, STAGES)
    if SHARED:
        steps = gl.cdiv(K, BLOCK_K)
        begin, end = run_of(tiles - whole, steps)
        for tile in range(begin // steps, gl.cdiv(end, steps)):
            row, column = place(whole + tile, M, N, 2 * HALF, BLOCK_N, GROUP)
            first = gl.maximum(begin - tile * steps, 0) * BLOCK_K
            last = gl.minimum(end - tile * steps, steps) * BLOCK_K
            slot, phase = load_tile(descs, ring, row, column, first, last, slot, phase, HALF, BLOCK_N, BLOCK_K, STAGES)


@gluon.jit
def multiply_tile(ring, before, tile, sizes, first, last, slot, phase, HALF: gl.constexpr, BLOCK_N: gl.constexpr,
                  BLOCK_K: gl.constexpr, STAGES: gl.constexpr, GROUP: gl.constexpr, AHEAD: gl.constexpr,
                  layout: gl.constexpr):  # fmt: skip
    """A warpgroup's part of a tile's product over depths `first` to `last`; the tile's row and column; the stage
    behind, and its phase. AHEAD: the first product goes over `before`, the sums of the tile before, which need not be
    cleared then; and the tile's place is worked out while the last product is under way."""
    M, N, _ = sizes
    a_ring, b_ring, filled, emptied = ring
    if AHEAD:
        acc = warpgroup_mma_init(before)
    else:
        row, column = place(tile, M, N, 2 * HALF, BLOCK_N, GROUP)
        acc = warpgroup_mma_init(gl.zeros((HALF, BLOCK_N), gl.float32, layout))
    for depth in range(first, last, BLOCK_K):
        mbarrier.wait(filled.index(slot), phase)
        a = a_ring.index(slot)
        b = b_ring.index(slot).permute((1, 0))
        if AHEAD:
            acc = warpgroup_mma(a, b, acc, use_acc=depth > first, is_async=True)
        else:
            acc = warpgroup_mma(a, b, acc, is_async=True)
        # At most this product is under way now: the stage of the one before it may be filled again.
        acc = warpgroup_mma_init(warpgroup_mma_wait(1, deps=(acc,)))
        mbarrier.arrive(emptied.index((slot + STAGES - 1) % STAGES), count=1, pred=depth > first)
        slot += 1
        if slot == STAGES:
            slot = 0
            phase ^= 1
    if AHEAD:
        row, column = place(tile, M, N, 2 * HALF, BLOCK_N, GROUP)
    product = warpgroup_mma_wait(0, deps=(acc,))
    mbarrier.arrive(emptied.index((slot + STAGES - 1) % STAGES), count=1)
    return product, row, column, slot, phase


@gluon.jit
def store_tile(product, leaving, row, column, PARTS: gl.constexpr):
    """Rounds a warpgroup's half of a tile and has it copied away, in PARTS of its columns one after the other."""
    out_desc, out_s = leaving
    rounded = product.to(gl.bfloat16)
    if PARTS == 1:
        tma.store_wait(0)
        out_s.store(rounded)
        fence_async_shared()
        bulk_store(out_desc, [row, column], out_s)
    else:
        rows: gl.constexpr = rounded.shape[0]
        columns: gl.constexpr = rounded.shape[1] // 2
        left, right = gl.split(rounded.reshape((rows, 2, columns)).permute((0, 2, 1)))
        tma.store_wait(0)
        out_s.store(left)
        fence_async_shared()
        bulk_store(out_desc, [row, column], out_s)
        tma.store_wait(0)
        out_s.store(right)
        fence_async_shared()
        bulk_store(out_desc, [row, column + columns], out_s)


@gluon.jit
def add_parts(product, work_ptr, tile, shared, steps, MINE: gl.constexpr, HALF: gl.constexpr, BLOCK_N: gl.constexpr,
              layout: gl.constexpr):  # fmt: skip
    """Adds up the parts of a shared tile, if this warpgroup comes last; says whether it does. `product`: its part of
    tile number `tile` of the shared ones. A part lies in slot tile + program: along the line of steps one of both
    grows from part to part, so no two parts have one slot."""
    size: gl.constexpr = HALF * BLOCK_N
    # 8 columns one behind the other: a thread's addresses then differ by constants, which take no registers.
    row = gl.arange(0, HALF, gl.SliceLayout(1, layout))[:, None]
    column = gl.arange(0, BLOCK_N, gl.SliceLayout(0, layout))[None, :]
    inside = column // 8 * (8 * HALF) + row * 8 + column % 8
    sums_ptr = work_ptr + (COUNTERS + (2 * tile + MINE) * size)
    counter = work_ptr.to(gl.pointer_type(gl.int32), bitcast=True) + (2 * tile + MINE)
    gl.store(sums_ptr + gl.program_id(0) * (2 * size) + inside, product)
    partition_barrier()  # all of the warpgroup's threads have stored
    before = gl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
    first = program_of(tile * steps, shared, steps)
    last = program_of((tile + 1) * steps - 1, shared, steps)
    complete = before == last - first
    if complete:
        gl.store(counter, 0)  # for the next launch
        product = gl.zeros((HALF, BLOCK_N), gl.float32, layout)
        for program in range(first, last + 1):
            product += gl.load(sums_ptr + program * (2 * size) + inside)
    return product, complete


@gluon.jit
def multiply_tiles(ring, leaving, work_ptr, sizes, MINE: gl.constexpr, HALF: gl.constexpr, BLOCK_N: gl.constexpr,
                   BLOCK_K: gl.constexpr, STAGES: gl.constexpr, GROUP: gl.constexpr, SHARED: gl.constexpr,
                   PARTS: gl.constexpr, layout: gl.constexpr):  # fmt: skip
    """A warpgroup: the upper (MINE 0) or lower (1) half of every tile's rows."""
    M, N, K = sizes
    whole, tiles = whole_tiles(M, N, 2 * HALF, BLOCK_N, SHARED)
    product = gl.zeros((HALF, BLOCK_N), gl.float32, layout)
    slot = 0
    phase = 0
    for tile in range(gl.program_id(0), whole, gl.num_programs(0)):
        product, row, column, slot, phase = multiply_tile(
            ring, product, tile, sizes, 0, K, slot, phase, HALF, BLOCK_N, BLOCK_K, STAGES, GROUP, True, layout
        )
        store_tile(product, leaving, row + MINE * HALF, column, PARTS)
    if SHARED:
        steps = gl.cdiv(K, BLOCK_K)
        begin, end = run_of(tiles - whole, steps)
        for tile in range(begin // steps, gl.cdiv(end, steps)):
            first = gl.maximum(begin - tile * steps, 0) * BLOCK_K
            last = gl.minimum(end - tile * steps, steps) * BLOCK_K
            # Not AHEAD: sums of the tile before would take registers beside those of all its parts.
            part, row, column, slot, phase = multiply_tile(
                ring, 0, whole + tile, sizes, first, last, slot, phase, HALF, BLOCK_N, BLOCK_K, STAGES, GROUP, False,
                layout
            )  # fmt: skip
            total, complete = add_parts(part, work_ptr, tile, tiles - whole, steps, MINE, HALF, BLOCK_N, layout)
            if complete:
                store_tile(total, leaving, row + MINE * HALF, column, PARTS)
    tma.store_wait(0)


@gluon.jit
def product_kernel(
    a_ptr,  # bf16 [M, K]
    b_ptr,  # bf16 [N, K]
    out_ptr,  # bf16 [M, N]
    work_ptr,  # SHARED: float32, as int32 [COUNTERS] of 0, and behind them [slots, 2, BLOCK_M / 2, BLOCK_N]
    M,
    N,
    K,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    SHARED: gl.constexpr,
    PARTS: gl.constexpr,  # in which a warpgroup's half of a tile leaves: 1 or 2
):
    HALF: gl.constexpr = BLOCK_M // 2
    a_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([HALF, BLOCK_K], gl.bfloat16)
    b_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_N, BLOCK_K], gl.bfloat16)
    out_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([HALF, BLOCK_N // PARTS], gl.bfloat16)
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BLOCK_N, 16]
    )
    a_desc = tma.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [HALF, BLOCK_K], a_layout)
    b_desc = tma.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BLOCK_N, BLOCK_K], b_layout)
    out_desc = tma.make_tensor_descriptor(out_ptr, [M, N], [N, 1], [HALF, BLOCK_N // PARTS], out_layout)
    a_top = gl.allocate_shared_memory(gl.bfloat16, [STAGES, HALF, BLOCK_K], a_layout)
    a_low = gl.allocate_shared_memory(gl.bfloat16, [STAGES, HALF, BLOCK_K], a_layout)
    b_ring = gl.allocate_shared_memory(gl.bfloat16, [STAGES, BLOCK_N, BLOCK_K], b_layout)
    out_top = gl.allocate_shared_memory(gl.bfloat16, [HALF, BLOCK_N // PARTS], out_layout)
    out_low = gl.allocate_shared_memory(gl.bfloat16, [HALF, BLOCK_N // PARTS], out_layout)
    filled = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    emptied = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(filled.index(stage), count=1)
        mbarrier.init(emptied.index(stage), count=2)
    fence_async_shared()
    sizes = (M, N, K)
    top = (a_top, b_ring, filled, emptied)
    low = (a_low, b_ring, filled, emptied)
    ring = (a_top, a_low, b_ring, filled, emptied)
    # fmt: off
    gl.warp_specialize(
        [
            (multiply_tiles, (
                top, (out_desc, out_top), work_ptr, sizes, 0, HALF, BLOCK_N, BLOCK_K, STAGES, GROUP, SHARED, PARTS,
                layout,
            )),
            (multiply_tiles, (
                low, (out_desc, out_low), work_ptr, sizes, 1, HALF, BLOCK_N, BLOCK_K, STAGES, GROUP, SHARED, PARTS,
                layout,
            )),
            (load_tiles, (
                (a_desc, b_desc), ring, sizes, HALF, BLOCK_N, BLOCK_K, STAGES, GROUP, SHARED,
            )),
        ],
        [4, 1],
        [240, 24],
    )
    # fmt: on
