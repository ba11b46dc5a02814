"""gemm_rs on Hopper by explicit warps: one loads, two warpgroups multiply, one warp sends, and two may fetch.

A program multiplies the tiles of other ranks first. What becomes of them is one of two ways, and only warps that do not
multiply wait for links:

- sent: the sending warp copies a tile from shared memory into the other rank's memory and sets a flag when it has
  arrived. It keeps at most WINDOW copies in flight: when stores to a saturated link back up into the multiprocessor,
  its loads wait behind them;
- fetched (WINDOW 0): it copies the tile into the rank's own memory and sets a flag at the tile's owner, which reads it
  over the link.

The rank's own tiles come last. During the product of such a tile, the sending warp waits for the flags of the other
ranks' partial products and loads each into the output buffer. The multiplying warpgroups add it in registers. Only
partial products that went over a link are rounded to bf16.

The output buffer of a warpgroup has two barriers and alternates between the warpgroup and the sending warp. `given`
(sending warp to warpgroup): the buffer is empty, or holds a partial product. `taken` (warpgroup to sending warp): it
holds a result, or the partial product in it has been read.

With FETCHERS, a warp for each warpgroup brings what is fetched, by ordinary loads and few at a time: the operands' bulk
copies would wait behind bulk copies that take so long, and the more are under way, the longer. Two more barriers tell
of where they bring it: `free` that it is empty, `come` that it holds a partial product. Tiles of at most 128 columns
leave room for a buffer of its own (AHEAD), so that a partial product is fetched while the tile before its own is
multiplied. Of wider tiles it is the output buffer, which the sending warp says is `free`.

No program waits for another rank before it has sent all that others wait for, so none waits in a circle. A tile has
rows of one rank only.
"""

from common.bulk import bulk_load, bulk_store, bulk_view, partition_barrier
from common.warps import (
    FLAG_BYTES,
    GROUPS,
    bf16_behind,
    finish_copies,
    made_ring,
    multiplied,
    next_stage,
    set_flag,
    wait_for,
    wait_until_under_way,
)
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

FETCHED_ROWS = gl.constexpr(32)  # of at most 64 columns, which a fetching warp has under way


@gluon.jit
def place(
    tile, M, N, rank, WORLD: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GROUP: gl.constexpr
):  # fmt: skip
    """Row and column where a tile begins, its number among those of its owner, and whether that is this rank.

    The other ranks' tiles take turns, so that all links are busy, and the rank's own follow. Within a rank's rows they
    go column by column within GROUP rows of tiles: the tiles that are multiplied at the same time share operands."""
    m = M // WORLD
    tiles_n = gl.cdiv(N, BLOCK_N)
    tiles_m = gl.cdiv(m, BLOCK_M)
    remote = (WORLD - 1) * tiles_m * tiles_n
    own = tile >= remote
    turn = tile // (WORLD - 1)  # not inside of the next line, where ptxas spills it
    inside = gl.where(own, tile - remote, turn)
    owner = gl.where(own, rank, (rank + 1 + tile % (WORLD - 1)) % WORLD)
    first = inside // (GROUP * tiles_n) * GROUP
    rows = gl.minimum(tiles_m - first, GROUP)
    behind = inside % (GROUP * tiles_n)
    tile_m = first + behind % rows
    tile_n = behind // rows
    row = owner * m + gl.minimum(tile_m * BLOCK_M, m - BLOCK_M)  # see common.gemm.first_row
    return row, tile_n * BLOCK_N, tile_m * tiles_n + tile_n, own


@gluon.jit
def load_tiles(
    a_desc,
    b_desc,
    sizes,
    ring,
    WORLD: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
):
    """The loading warp."""
    M, N, K, rank = sizes
    a_ring, b_ring, filled, emptied = ring
    HALF: gl.constexpr = BLOCK_M // GROUPS
    steps = gl.cdiv(K, BLOCK_K)
    tiles = WORLD * gl.cdiv(M // WORLD, BLOCK_M) * gl.cdiv(N, BLOCK_N)
    slot = 0
    turn = 1  # of a ring that is empty
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, column, _, _ = place(tile, M, N, rank, WORLD, BLOCK_M, BLOCK_N, GROUP)
        for step in range(steps):
            mbarrier.wait(emptied.index(slot), turn)
            mbarrier.expect(filled.index(slot), (BLOCK_M + BLOCK_N) * BLOCK_K * 2)
            bulk_load(b_desc, [column, step * BLOCK_K], filled.index(slot), b_ring.index(slot))
            for group in gl.static_range(GROUPS):
                part_s = a_ring.index(slot * GROUPS + group)
                bulk_load(a_desc, [row + group * HALF, step * BLOCK_K], filled.index(slot), part_s)
            slot, turn = next_stage(slot, turn, STAGES)


@gluon.jit
def multiply_tiles(
    bias_ptr,
    sizes,
    ring,
    leaving,
    coming,
    MINE: gl.constexpr,  # which of the groups this is
    WORLD: gl.constexpr,
    HAS_BIAS: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    FETCHERS: gl.constexpr,
    AHEAD: gl.constexpr,
):
    """A warpgroup: its part of every tile's rows."""
    M, N, K, rank = sizes
    a_ring, b_ring, filled, emptied = ring
    out_s, given, taken = leaving
    in_s, free, come = coming
    HALF: gl.constexpr = BLOCK_M // GROUPS
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BLOCK_N, 16]
    )
    steps = gl.cdiv(K, BLOCK_K)
    places = gl.arange(0, BLOCK_N, gl.SliceLayout(0, layout))
    slot = 0
    turn = 0
    handed = 0  # the turn of the memory that is sent from
    fetched = 0  # that of fetched partial products
    tiles = WORLD * gl.cdiv(M // WORLD, BLOCK_M) * gl.cdiv(N, BLOCK_N)
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        _, column, _, own = place(tile, M, N, rank, WORLD, BLOCK_M, BLOCK_N, GROUP)
        acc = gl.zeros((HALF, BLOCK_N), gl.float32, layout)
        if HAS_BIAS:  # first: it would take more registers last
            bias = gl.load(bias_ptr + column + places, mask=own & (column + places < N), other=0.0)
            acc += WORLD * bias.to(gl.float32)[None, :]
        acc, slot, turn = multiplied(a_ring, b_ring, filled, emptied, acc, steps, slot, turn, MINE, STAGES)
        if not own:
            mbarrier.wait(given.index(MINE), handed)
            out_s.index(MINE).store(acc.to(gl.bfloat16))
            fence_async_shared()
            mbarrier.arrive(taken.index(MINE), count=1)
            handed ^= 1
        if own:
            if FETCHERS:
                for source in range(WORLD - 1):  # not unrolled, which would take too many registers
                    mbarrier.wait(come.index(MINE), fetched)
                    acc += in_s.index(MINE).load(layout).to(gl.float32)
                    partition_barrier()  # all threads have read what is overwritten now
                    mbarrier.arrive(free.index(MINE), count=1, pred=AHEAD | (source < WORLD - 2))
                    fetched ^= 1
                if AHEAD:
                    mbarrier.wait(given.index(MINE), handed)
                    handed ^= 1
            else:
                for _ in range(WORLD - 2):  # likewise
                    mbarrier.wait(given.index(MINE), handed)
                    acc += out_s.index(MINE).load(layout).to(gl.float32)
                    # Without the fence, the next bulk copy may overwrite what ordinary loads have yet to read.
                    fence_async_shared()
                    mbarrier.arrive(taken.index(MINE), count=1)
                    handed ^= 1
                mbarrier.wait(given.index(MINE), handed)
                acc += out_s.index(MINE).load(layout).to(gl.float32)
                partition_barrier()  # all threads have read what is overwritten now
                handed ^= 1
            out_s.index(MINE).store(acc.to(gl.bfloat16))
            fence_async_shared()
            mbarrier.arrive(taken.index(MINE), count=1)


@gluon.jit
def flag_tile(
    blocks, flags, row, number, owned, m, rank, epoch, WORLD: gl.constexpr, BLOCK_M: gl.constexpr
):  # fmt: skip
    """Waits until a tile has arrived, and sets its flag at the rank that owns it."""
    finish_copies()
    flag = flags + (rank * owned + number).to(gl.int64) * FLAG_BYTES
    for step in gl.static_range(1, WORLD):
        owner = (rank + step) % WORLD
        if (owner >= row // m) & (owner * m < row + BLOCK_M):
            set_flag(blocks[step - 1] + flag, epoch)


@gluon.jit
def send_tiles(
    out_ptr,
    sizes,
    heap,
    leaving,
    free,
    WORLD: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    WINDOW: gl.constexpr,  # pieces of a warpgroup's rows and at most 64 columns under way to another rank; 0: fetched
    GROUP: gl.constexpr,
    FETCHERS: gl.constexpr,
    AHEAD: gl.constexpr,
):
    """The sending warp: copies tiles to where their owners have them, loads the partial products of the rank's own
    tiles, and stores these into the output."""
    M, N, _, rank = sizes
    blocks_ptr, epoch, flags, slots = heap
    out_s, given, taken = leaving
    HALF: gl.constexpr = BLOCK_M // GROUPS
    COLUMNS: gl.constexpr = 64 if BLOCK_N >= 64 else BLOCK_N
    PARTS: gl.constexpr = BLOCK_N // COLUMNS  # blocks of columns, which lie one behind the other
    m = M // WORLD
    tiles_n = gl.cdiv(N, BLOCK_N)
    owned = gl.cdiv(m, BLOCK_M) * tiles_n  # tiles with rows of one rank
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([HALF, COLUMNS], gl.bfloat16)
    parts_s = bulk_view(out_s, gl.bfloat16, [GROUPS * PARTS, HALF, COLUMNS], layout)
    own_block = gl.load(blocks_ptr + rank)
    own_desc = tma.make_tensor_descriptor(
        bf16_behind(own_block, slots), [M, N], [N, 1], [HALF, COLUMNS], layout
    )  # fmt: skip
    blocks = ()
    peer_descs = ()  # all that a peer has, or the place in it for what this rank sends
    for step in gl.static_range(1, WORLD):
        block = gl.load(blocks_ptr + (rank + step) % WORLD)
        blocks += (block,)
        if WINDOW:
            to_ptr = bf16_behind(block, slots + rank * m * N * 2)
            peer_descs += (tma.make_tensor_descriptor(to_ptr, [m, N], [N, 1], [HALF, COLUMNS], layout),)
        elif not FETCHERS:
            from_ptr = bf16_behind(block, slots)
            peer_descs += (tma.make_tensor_descriptor(from_ptr, [M, N], [N, 1], [HALF, COLUMNS], layout),)
    out_desc = tma.make_tensor_descriptor(out_ptr, [m, N], [N, 1], [HALF, COLUMNS], layout)
    turn = 0
    sent = rank * 0 - 1  # the row and number of a tile that is not flagged yet
    sent_number = rank * 0
    for tile in range(gl.program_id(0), WORLD * owned, gl.num_programs(0)):
        row, column, number, own = place(tile, M, N, rank, WORLD, BLOCK_M, BLOCK_N, GROUP)
        if not own:
            for group in gl.static_range(GROUPS):
                mbarrier.arrive(given.index(group), count=1)
            if sent >= 0:  # while this tile is multiplied
                flag_tile(blocks, flags, sent, sent_number, owned, m, rank, epoch, WORLD, BLOCK_M)
            for group in gl.static_range(GROUPS):
                mbarrier.wait(taken.index(group), turn)
                from_row = row + group * HALF
                if WINDOW:
                    for step in gl.static_range(1, WORLD):
                        owner = (rank + step) % WORLD
                        if from_row // m == owner:
                            for part in gl.static_range(PARTS):
                                to = [from_row - owner * m, column + part * COLUMNS]
                                bulk_store(peer_descs[step - 1], to, parts_s.index(group * PARTS + part))
                                wait_until_under_way(WINDOW - 1)
                else:
                    for part in gl.static_range(PARTS):
                        bulk_store(own_desc, [from_row, column + part * COLUMNS], parts_s.index(group * PARTS + part))
            turn ^= 1
            if WINDOW:
                tma.store_wait(0)
                sent = row
                sent_number = number
            else:
                flag_tile(blocks, flags, row, number, owned, m, rank, epoch, WORLD, BLOCK_M)
        if own:
            if sent >= 0:
                flag_tile(blocks, flags, sent, sent_number, owned, m, rank, epoch, WORLD, BLOCK_M)
                sent = rank * 0 - 1
            if FETCHERS:
                for group in gl.static_range(GROUPS):
                    mbarrier.arrive((given if AHEAD else free).index(group), count=1)
                for group in gl.static_range(GROUPS):
                    mbarrier.wait(taken.index(group), turn)
                    for part in gl.static_range(PARTS):
                        to = [row + group * HALF - rank * m, column + part * COLUMNS]
                        bulk_store(out_desc, to, parts_s.index(group * PARTS + part))
                turn ^= 1
            else:
                for step in gl.static_range(1, WORLD):
                    source = (rank + WORLD - step) % WORLD  # the rank before this one has sent to it first
                    wait_for(own_block + flags + (source * owned + number).to(gl.int64) * FLAG_BYTES, epoch)
                    for group in gl.static_range(GROUPS):
                        from_row = row + group * HALF
                        mbarrier.expect(given.index(group), HALF * BLOCK_N * 2)
                        for part in gl.static_range(PARTS):
                            part_s, at = parts_s.index(group * PARTS + part), column + part * COLUMNS
                            if WINDOW:
                                bulk_load(own_desc, [(source - rank) * m + from_row, at], given.index(group), part_s)
                            else:
                                bulk_load(peer_descs[WORLD - 1 - step], [from_row, at], given.index(group), part_s)
                    for group in gl.static_range(GROUPS):
                        mbarrier.wait(taken.index(group), turn)
                        if step == WORLD - 1:
                            from_row = row + group * HALF
                            if from_row // m == rank:
                                for part in gl.static_range(PARTS):
                                    to = [from_row - rank * m, column + part * COLUMNS]
                                    bulk_store(out_desc, to, parts_s.index(group * PARTS + part))
                    turn ^= 1
            tma.store_wait(0)
    if sent >= 0:
        flag_tile(blocks, flags, sent, sent_number, owned, m, rank, epoch, WORLD, BLOCK_M)


@gluon.jit
def fetch_tiles(
    sizes,
    heap,
    coming,
    MINE: gl.constexpr,
    WORLD: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    GROUP: gl.constexpr,
    AHEAD: gl.constexpr,
):
    """The fetching warp of a warpgroup: brings the other ranks' partial products of the rank's own tiles."""
    M, N, _, rank = sizes
    blocks_ptr, epoch, flags, slots = heap
    in_s, free, come = coming
    HALF: gl.constexpr = BLOCK_M // GROUPS
    COLUMNS: gl.constexpr = 64 if BLOCK_N >= 64 else BLOCK_N
    PARTS: gl.constexpr = BLOCK_N // COLUMNS
    PIECES: gl.constexpr = HALF // FETCHED_ROWS  # of each
    m = M // WORLD
    owned = gl.cdiv(m, BLOCK_M) * gl.cdiv(N, BLOCK_N)
    fewer: gl.constexpr = gl.NVMMASharedLayout.get_default_for([FETCHED_ROWS, COLUMNS], gl.bfloat16)
    pieces_s = bulk_view(in_s, gl.bfloat16, [GROUPS * PARTS * PIECES, FETCHED_ROWS, COLUMNS], fewer)
    threads: gl.constexpr = gl.BlockedLayout([1, 8], [256 // COLUMNS, COLUMNS // 8], [1, 1], [1, 0])
    stride = N // 8 * 8  # N, and the compiler sees that vectors of 8 divide it
    columns = gl.arange(0, COLUMNS, gl.SliceLayout(0, threads))[None, :]
    places = gl.arange(0, FETCHED_ROWS, gl.SliceLayout(1, threads))[:, None] * stride + columns
    own_block = gl.load(blocks_ptr + rank)
    turn = rank * 0 + (1 if AHEAD else 0)  # 1: of memory that is empty
    for tile in range(gl.program_id(0), WORLD * owned, gl.num_programs(0)):
        row, column, number, own = place(tile, M, N, rank, WORLD, BLOCK_M, BLOCK_N, GROUP)
        row += MINE * HALF
        if own:
            for step in gl.static_range(1, WORLD):
                source = (rank + WORLD - step) % WORLD  # the rank before this one has sent to it first
                wait_for(own_block + flags + (source * owned + number).to(gl.int64) * FLAG_BYTES, epoch)
                mbarrier.wait(free.index(MINE), turn)
                turn ^= 1
                block = gl.load(blocks_ptr + source) + slots
                # not bf16_behind, since Triton 3.6 forgets what is known of a function's result
                from_ptr = gl.multiple_of(block.to(gl.pointer_type(gl.bfloat16)), 16)
                for piece in range(PARTS * PIECES):
                    at = column + piece // PIECES * COLUMNS
                    first = (row + piece % PIECES * FETCHED_ROWS).to(gl.int64) * stride + at
                    values = gl.load(
                        from_ptr + first + places, mask=at + columns < stride, other=0.0, cache_modifier=".cg"
                    )
                    pieces_s.index(MINE * PARTS * PIECES + piece).store(values)
                partition_barrier()  # all threads have stored
                mbarrier.arrive(come.index(MINE), count=1)


@gluon.jit(do_not_specialize=["rank", "epoch", "flags"])
def warps_kernel(
    a_desc,  # of bf16 [M, K] in blocks of a warpgroup's rows, [BLOCK_M / 2, BLOCK_K], laid out as the ring is
    b_desc,  # of bf16 [N, K] in blocks of [BLOCK_N, BLOCK_K], likewise
    bias_ptr,  # all as in gemm_rs_kernel
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
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    WINDOW: gl.constexpr,  # see send_tiles
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    FETCHERS: gl.constexpr,
):
    HALF: gl.constexpr = BLOCK_M // GROUPS
    AHEAD: gl.constexpr = FETCHERS and BLOCK_N <= 128
    out_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([HALF, BLOCK_N], gl.bfloat16)
    ring = made_ring(BLOCK_M, BLOCK_N, BLOCK_K, STAGES)
    out_s = gl.allocate_shared_memory(gl.bfloat16, [GROUPS, HALF, BLOCK_N], out_layout)
    given = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], mbarrier.MBarrierLayout())
    taken = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], mbarrier.MBarrierLayout())
    in_s = out_s
    free = given
    come = taken
    if AHEAD:
        in_s = gl.allocate_shared_memory(gl.bfloat16, [GROUPS, HALF, BLOCK_N], out_layout)
    if FETCHERS:
        free = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], mbarrier.MBarrierLayout())
        come = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], mbarrier.MBarrierLayout())
    for group in gl.static_range(GROUPS):
        mbarrier.init(given.index(group), count=1)
        mbarrier.init(taken.index(group), count=1)
        if FETCHERS:
            mbarrier.init(free.index(group), count=1)
            mbarrier.init(come.index(group), count=1)
    fence_async_shared()
    sizes = (M, N, K, rank)
    heap = (blocks_ptr, epoch, flags, slots)
    leaving = (out_s, given, taken)
    coming = (in_s, free, come)
    # Each list as it stands, since Triton makes numbers of constants that are kept under a name.
    # fmt: off
    if FETCHERS:
        gl.warp_specialize(
            [
                (multiply_tiles, (
                    bias_ptr, sizes, ring, leaving, coming, 0, WORLD, HAS_BIAS, BLOCK_M, BLOCK_N, BLOCK_K, STAGES,
                    GROUP, FETCHERS, AHEAD,
                )),
                (multiply_tiles, (
                    bias_ptr, sizes, ring, leaving, coming, 1, WORLD, HAS_BIAS, BLOCK_M, BLOCK_N, BLOCK_K, STAGES,
                    GROUP, FETCHERS, AHEAD,
                )),
                (load_tiles, (a_desc, b_desc, sizes, ring, WORLD, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, GROUP)),
                (send_tiles, (
                    out_ptr, sizes, heap, leaving, free, WORLD, BLOCK_M, BLOCK_N, WINDOW, GROUP, FETCHERS, AHEAD,
                )),
                (fetch_tiles, (sizes, heap, coming, 0, WORLD, BLOCK_M, BLOCK_N, GROUP, AHEAD)),
                (fetch_tiles, (sizes, heap, coming, 1, WORLD, BLOCK_M, BLOCK_N, GROUP, AHEAD)),
            ],
            [4, 1, 1, 1, 1],
            [208, 56, 80, 96, 96],
        )
    else:
        gl.warp_specialize(
            [
                (multiply_tiles, (
                    bias_ptr, sizes, ring, leaving, coming, 0, WORLD, HAS_BIAS, BLOCK_M, BLOCK_N, BLOCK_K, STAGES,
                    GROUP, FETCHERS, AHEAD,
                )),
                (multiply_tiles, (
                    bias_ptr, sizes, ring, leaving, coming, 1, WORLD, HAS_BIAS, BLOCK_M, BLOCK_N, BLOCK_K, STAGES,
                    GROUP, FETCHERS, AHEAD,
                )),
                (load_tiles, (a_desc, b_desc, sizes, ring, WORLD, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, GROUP)),
                (send_tiles, (
                    out_ptr, sizes, heap, leaving, free, WORLD, BLOCK_M, BLOCK_N, WINDOW, GROUP, FETCHERS, AHEAD,
                )),
            ],
            [4, 1, 1],
            [208, 56, 80],
        )
    # fmt: on
