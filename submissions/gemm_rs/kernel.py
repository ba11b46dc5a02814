"""gemm_rs's kernels for any GPU, and beside a copy engine; submission.py says how they work."""

import triton
import triton.language as tl
from common.gemm import (
    as_bf16,
    bf16_at,
    bias_row,
    first_row,
    joined,
    product,
    share_of,
    spread_over_dies,
    swizzled,
)
from common.signals import count_up, finish_bulk_stores, flag_pointers, order_bulk_loads, signal, wait


@triton.jit
def sum_parts(
    partials,
    bias_ptr,
    out_ptr,
    row,
    column,
    m,
    N,
    WORLD: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    SUM_M: tl.constexpr,
    SUM_N: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    """One block of the output: the sum of all ranks' partial products [W, m, N], in float32, and W times the bias."""
    columns = column + tl.arange(0, SUM_N)
    mask = tl.broadcast_to((columns < N)[None, :], (SUM_M, SUM_N))
    inside = (row + tl.arange(0, SUM_M))[:, None] * N + columns[None, :]
    total = tl.zeros((SUM_M, SUM_N), tl.float32)
    if HAS_BIAS:
        total += WORLD * bias_row(bias_ptr, column, N, SUM_N)
    for part in tl.static_range(WORLD):
        total += tl.load(partials + part * m * N + inside, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + inside, as_bf16(total, INTERPRET), mask=mask)


@triton.jit
def sum_tile(
    tile,
    own_rows,  # what the kernel knows of this rank's
    WORLD: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SUM_M: tl.constexpr,
    SUM_N: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    """The part of the output that this tile of this rank's rows is, once the other ranks' have come. This program has
    stored its own product of it."""
    own_block, flags, slots, epoch, rank, bias_ptr, out_ptr, m, N = own_rows
    peers = tl.arange(0, WORLD)
    tiles_n = tl.cdiv(N, BLOCK_N)
    # The wait also makes what this program has stored seen by all its threads.
    wait(flag_pointers(own_block + flags, peers * tl.cdiv(m, BLOCK_M) * tiles_n + tile), epoch, peers != rank)
    row = first_row(tile // tiles_n, m, BLOCK_M)
    for piece in range(BLOCK_M // SUM_M * (BLOCK_N // SUM_N)):
        sum_parts(
            bf16_at(own_block, slots),
            bias_ptr,
            out_ptr,
            row + piece // (BLOCK_N // SUM_N) * SUM_M,
            tile % tiles_n * BLOCK_N + piece % (BLOCK_N // SUM_N) * SUM_N,
            m,
            N,
            WORLD,
            HAS_BIAS,
            SUM_M,
            SUM_N,
            INTERPRET,
        )


@triton.jit
def signal_sent(flags, index, epoch, AMD: tl.constexpr):
    """Tells the rank with those flags that the tile has arrived; none has where `index` is below 0."""
    if index >= 0:
        signal(flag_pointers(flags, index), epoch, AMD=AMD)


@triton.jit(do_not_specialize=["rank", "epoch", "flags"])
def gemm_rs_kernel(
    a,  # the descriptor of bf16 [M, K], for blocks of [BLOCK_M, BLOCK_K]; on AMD a pointer
    b,  # that of bf16 [N, K], for blocks of [BLOCK_N, BLOCK_K]; with READ_ONCE a pointer, too
    bias_ptr,  # bf16 [N], or anything
    out_ptr,  # bf16 [m, N]
    blocks_ptr,  # int64 [W], the addresses of every rank's block of the heap
    work_ptr,  # see common.gemm.joined
    M,
    N,
    K,
    rank,
    epoch,
    flags,  # where this call's flags begin in a block, bytes
    slots,  # where the partial products lie in a block, bytes: bf16 [W, m, N]
    WORLD: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    OWNERS: tl.constexpr,  # of a tile's rows, at most
    FUSED: tl.constexpr,
    MIXED: tl.constexpr,  # a tile has more rows than a rank
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT: tl.constexpr,  # programs that share a tile's depth
    GROUP: tl.constexpr,
    SUM_M: tl.constexpr,
    SUM_N: tl.constexpr,
    SUM_LATE: tl.constexpr,  # sum up a tile behind the store of another, not before it
    READ_ONCE: tl.constexpr,  # see common.gemm.product
    DIES: tl.constexpr,
    AMD: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    a_desc, b_desc = a, b
    if AMD:  # by ordinary loads, which are as wide as the compiler knows that pointers and strides allow
        a_desc = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
        b_desc = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BLOCK_N, BLOCK_K])
    m = M // WORLD
    peers = tl.arange(0, WORLD)
    blocks = tl.load(blocks_ptr + peers)
    own_block = tl.load(blocks_ptr + rank)
    own_rows = (own_block, flags, slots, epoch, rank, bias_ptr, out_ptr, m, N)
    # A chunk of tiles holds the rows of one rank, or one row of tiles those of several.
    chunk_m = OWNERS * m
    chunks = tl.cdiv(M, chunk_m)
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    chunk_tiles = tiles_m * tiles_n * SPLIT
    steps = tl.cdiv(K, BLOCK_K)

    programs = tl.num_programs(0)
    program = spread_over_dies(tl.program_id(0), programs, DIES)
    # A tile that was sent is signalled a tile later, when it has long arrived, and one of this rank's rows is summed up
    # two tiles later, when the other ranks' have: nobody waits for links. Nor do programs wait for each other in a
    # circle: all ranks have as many, and each signals what it sent last before it waits for anything.
    sent_to, sent = own_block, tl.full((), -1, tl.int32)
    kept, kept_for = tl.full((), -1, tl.int32), 0
    for tile in range(program, chunks * chunk_tiles, programs):
        # Neighbours multiply the same tile of different ranks' rows, and a program goes round the ranks. So every link
        # is busy all the time, and what a program does for its own rank gives them time.
        inside = tile // chunks
        chunk = (rank + 1 + tile + inside * chunks // programs) % chunks
        split = inside % SPLIT
        tile_m, tile_n = swizzled(inside // SPLIT, tiles_m, tiles_n, GROUP)
        row = chunk * chunk_m
        if not MIXED:
            row += first_row(tile_m, m, BLOCK_M)
        column = tile_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        first, last = share_of(split, steps, SPLIT)
        acc = product(a_desc, b_desc, row, column, first, last, acc, BLOCK_K, INTERPRET, READ_ONCE, N, K)

        complete = True
        if SPLIT > 1:
            acc, complete = joined(
                acc, chunk * (tiles_m * tiles_n) + inside // SPLIT, split, work_ptr, SPLIT, BLOCK_M, BLOCK_N, AMD
            )
        index = (rank * tiles_m + tile_m) * tiles_n + tile_n
        rows = row + tl.arange(0, BLOCK_M)
        columns = column + tl.arange(0, BLOCK_N)
        own = FUSED and chunk == rank
        if not MIXED:  # before this program waits for anything: others wait for it
            signal_sent(sent_to + flags, sent, epoch, AMD)
            sent = tl.full((), -1, tl.int32)
        kept_for += 1
        due = FUSED and kept >= 0 and (own or kept_for == 2)
        if not SUM_LATE and due:
            sum_tile(kept, own_rows, WORLD, HAS_BIAS, BLOCK_M, BLOCK_N, SUM_M, SUM_N, INTERPRET)
        if complete:
            if own:
                within = (rows % m)[:, None] * N + columns[None, :]
                mask = tl.broadcast_to((columns < N)[None, :], (BLOCK_M, BLOCK_N))
                partials = bf16_at(own_block, slots)
                tl.store(partials + (rank * m).to(tl.int64) * N + within, as_bf16(acc, INTERPRET), mask=mask)
            elif not MIXED:
                sent_to, sent = tl.load(blocks_ptr + row // m), index
                within = (row % m + tl.arange(0, BLOCK_M))[:, None] * N + columns[None, :]
                mask = tl.broadcast_to((columns < N)[None, :], (BLOCK_M, BLOCK_N))
                partials = bf16_at(sent_to, slots) + (rank * m).to(tl.int64) * N
                tl.store(partials + within, as_bf16(acc, INTERPRET), mask=mask)
            else:
                for next_owner in tl.static_range(OWNERS):
                    owner = row // m + next_owner
                    if owner < WORLD:
                        partials = bf16_at(tl.load(blocks_ptr + owner), slots) + (rank * m).to(tl.int64) * N
                        within = (rows % m)[:, None] * N + columns[None, :]
                        mask = (rows // m == owner)[:, None] & (columns < N)[None, :]
                        tl.store(partials + within, as_bf16(acc, INTERPRET), mask=mask)
                touched = (peers >= row // m) & (peers < row // m + OWNERS)
                signal(flag_pointers(blocks + flags, index), epoch, touched, AMD)
        if due:
            if SUM_LATE:  # when no product is in registers
                sum_tile(kept, own_rows, WORLD, HAS_BIAS, BLOCK_M, BLOCK_N, SUM_M, SUM_N, INTERPRET)
            kept = tl.full((), -1, tl.int32)
        if own:
            kept, kept_for = tile_m * tiles_n + tile_n, 0
    signal_sent(sent_to + flags, sent, epoch, AMD)
    if FUSED:
        if kept >= 0:
            sum_tile(kept, own_rows, WORLD, HAS_BIAS, BLOCK_M, BLOCK_N, SUM_M, SUM_N, INTERPRET)
    else:
        sums_n = tl.cdiv(N, SUM_N)
        for piece in range(program, tl.cdiv(m, SUM_M) * sums_n, programs):
            sum_m = first_row(piece // sums_n, m, SUM_M)
            sum_n = piece % sums_n * SUM_N
            # The last piece lies in the last tile, both of which end with the rank's rows.
            index = (peers * tiles_m + piece // sums_n * SUM_M // BLOCK_M) * tiles_n + sum_n // BLOCK_N
            wait(flag_pointers(own_block + flags, index), epoch, peers >= 0)
            sum_parts(
                bf16_at(own_block, slots),
                bias_ptr,
                out_ptr,
                sum_m,
                sum_n,
                m,
                N,
                WORLD,
                HAS_BIAS,
                SUM_M,
                SUM_N,
                INTERPRET,
            )


@triton.jit
def count_tile(counts_ptr, place, BULK: tl.constexpr):
    """Tells the copy engine that this program has stored one more tile; none where `place` is below 0."""
    if place >= 0:
        finish_bulk_stores(BULK)
        count_up(counts_ptr + place)


@triton.jit(do_not_specialize=["rank", "epoch", "flags"])
def beside_engine_kernel(
    a_ptr,  # bf16 [M, K]
    b_ptr,  # bf16 [N, K]
    bias_ptr,  # all as in gemm_rs_kernel
    out_ptr,
    blocks_ptr,
    products_ptr,  # bf16 [W - 1, m, N], for the next rank, the one after it, ...
    counts_ptr,  # int32 [W - 1, PIECES]: how many tiles of each piece of them are done
    M,
    N,
    K,
    rank,
    epoch,
    flags,  # [W, PIECES]: which pieces of this rank's rows have come from the others
    slots,  # where they lie in a block, bytes: bf16 [W, m, N]
    WORLD: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    PIECES: tl.constexpr,  # in which a rank's rows are sent
    PIECE_TILES: tl.constexpr,  # rows of tiles of a piece; a multiple of GROUP, where there are several
    DIES: tl.constexpr,
    BULK: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    """The products of the other ranks' rows, left in this rank's memory for a copy engine; then that of its own rows,
    to which each tile adds what the others have sent of it."""
    m = M // WORLD
    own_block = tl.load(blocks_ptr + rank)
    peers = tl.arange(0, WORLD)
    a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    b_desc = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BLOCK_N, BLOCK_K])
    products_desc = tl.make_tensor_descriptor(products_ptr, [M - m, N], [N, 1], [BLOCK_M, BLOCK_N])
    parts_desc = tl.make_tensor_descriptor(bf16_at(own_block, slots), [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    out_desc = tl.make_tensor_descriptor(out_ptr, [m, N], [N, 1], [BLOCK_M, BLOCK_N])
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    rank_tiles = tiles_m * tiles_n
    programs = tl.num_programs(0)
    program = spread_over_dies(tl.program_id(0), programs, DIES)
    stored = tl.full((), -1, tl.int32)
    for tile in range(program, WORLD * rank_tiles, programs):
        step = tile // rank_tiles
        tile_m, tile_n = swizzled(tile % rank_tiles, tiles_m, tiles_n, GROUP)
        row = first_row(tile_m, m, BLOCK_M)
        column = tile_n * BLOCK_N
        piece = tile_m // PIECE_TILES
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        a_row = (rank + 1 + step) % WORLD * m + row
        acc = product(a_desc, b_desc, a_row, column, 0, tl.cdiv(K, BLOCK_K), acc, BLOCK_K, INTERPRET)
        count_tile(counts_ptr, stored, BULK)
        stored = tl.full((), -1, tl.int32)
        if step < WORLD - 1:
            products_desc.store([step * m + row, column], as_bf16(acc, INTERPRET))
            # Counted a tile later, when its store is long done, but for the last ones, which others wait for soon.
            stored = step * PIECES + piece
            if step == WORLD - 2:
                count_tile(counts_ptr, stored, BULK)
                stored = tl.full((), -1, tl.int32)
        else:
            # A tile that begins in the piece before has that as well: a rank's pieces come one after the other.
            wait(flag_pointers(own_block + flags, peers * PIECES + piece), epoch, peers != rank)
            order_bulk_loads(BULK)
            for other in tl.range(1, WORLD, num_stages=3):  # not unrolled, which would take too many registers
                acc += parts_desc.load([(rank + other) % WORLD * m + row, column]).to(tl.float32)
            if HAS_BIAS:  # last: added first, it would take another 80 registers
                acc += WORLD * bias_row(bias_ptr, column, N, BLOCK_N)
            out_desc.store([row, column], as_bf16(acc, INTERPRET))
    count_tile(counts_ptr, stored, BULK)  # where there are fewer tiles than programs
