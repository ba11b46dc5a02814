"""ag_gemm's kernel for any GPU; submission.py says how it works."""

import triton
import triton.language as tl
from common.gemm import (
    as_bf16,
    bf16_at,
    bias_row,
    first_row,
    joined,
    prefetch_rows,
    product,
    share_of,
    spread_over_dies,
    swizzled,
)
from common.signals import flag_pointers, order_bulk_loads, signal, wait_beyond


@triton.jit
def send(
    a_ptr,
    blocks_ptr,
    m,
    K,
    rank,
    epoch,
    flags,
    gathered,
    senders,
    send_group,
    WORLD: tl.constexpr,
    TO_ITSELF: tl.constexpr,
    FLAG_M: tl.constexpr,
    FLAG_K: tl.constexpr,
    FLAGS_K: tl.constexpr,
    SEND_M: tl.constexpr,
    AMD: tl.constexpr,
):
    """This program's part of the rank's rows to every other rank, SEND_M rows at a time. A flag is set when the rows
    after those that it tells of have been asked for: one wait does for its fence and for them."""
    peers = tl.arange(0, WORLD)
    blocks = tl.load(blocks_ptr + peers)
    told = TO_ITSELF | (peers != rank)
    flags_m = m // FLAG_M
    sent = tl.full((), -1, tl.int32)
    for piece in range(tl.program_id(0), flags_m * FLAGS_K, senders):
        flag_m, flag_k = swizzled(piece, flags_m, FLAGS_K, send_group)
        columns = flag_k * FLAG_K + tl.arange(0, FLAG_K)
        mask = tl.broadcast_to((columns < K)[None, :], (SEND_M, FLAG_K))
        for part in range(tl.cdiv(FLAG_M, SEND_M)):
            within = part * SEND_M + tl.arange(0, SEND_M)
            if FLAG_M % SEND_M:
                mask = (within < FLAG_M)[:, None] & (columns < K)[None, :]
            inside = (flag_m * FLAG_M + within)[:, None] * K + columns[None, :]
            values = tl.load(a_ptr + inside, mask=mask)
            if part == 0 and sent >= 0:
                signal(flag_pointers(blocks + flags, sent), epoch, told, AMD)
            for step in tl.static_range(0 if TO_ITSELF else 1, WORLD):  # the next rank first: all links are busy
                block = tl.load(blocks_ptr + (rank + step) % WORLD)
                tl.store(bf16_at(block, gathered) + (rank * m).to(tl.int64) * K + inside, values, mask=mask)
        sent = (rank * flags_m + flag_m) * FLAGS_K + flag_k
    if sent >= 0:
        signal(flag_pointers(blocks + flags, sent), epoch, told, AMD)


@triton.jit
def finish(
    acc,
    tile,
    ends,  # what the kernel knows of the output
    row,
    column,
    SPLIT: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    AMD: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    """The tile's part of the output, and the bias; where its depth is shared, by the last who has a part."""
    work_ptr, out_desc, bias_ptr, n = ends
    complete = True
    if SPLIT > 1:
        acc, complete = joined(acc, tile // SPLIT, tile % SPLIT, work_ptr, SPLIT, BLOCK_M, BLOCK_N, AMD)
    if complete:
        if HAS_BIAS:
            acc += bias_row(bias_ptr, column, n, BLOCK_N)
        out_desc.store([row, column], as_bf16(acc, INTERPRET))


@triton.jit
def following(tile, place, shared_out, programs, senders):
    """The program's next tile: the first `shared_out` are for those that do not send, the rest for all."""
    if tile >= shared_out:
        after = tile + programs
    else:
        after = tile + programs - senders
        if after >= shared_out:
            after = shared_out + place
    return after


@triton.jit(do_not_specialize=["rank", "epoch", "flags", "senders", "send_group", "lead", "prefetch"])
def ag_gemm_kernel(
    a_ptr,  # bf16 [m, K]
    a,  # its descriptor, for blocks of [BLOCK_M, BLOCK_K]; on AMD a pointer, as the next ones
    b_ptr,  # bf16 [n, K]
    b,  # its descriptor, for blocks of [BLOCK_N, BLOCK_K]; with READ_ONCE a pointer, too
    whole,  # that of bf16 [M, K] in this rank's block, where the other ranks' rows arrive, for blocks as of `a`
    bias_ptr,  # bf16 [n], or anything
    out,  # the descriptor of bf16 [M, n], for blocks of [BLOCK_M, BLOCK_N]
    blocks_ptr,  # int64 [W], the addresses of every rank's block of the heap
    work_ptr,  # see common.gemm.joined
    m,
    n,
    K,
    rank,
    epoch,
    flags,  # where this call's flags begin in a block, bytes
    gathered,  # where these begin in every block, bytes
    senders,  # programs that send before they multiply
    send_group,  # rows of flags that they send column by column
    lead,  # rounds of tiles that the others do meanwhile
    prefetch,  # elements of a weight's row, while a rank that has hardly any rows waits for the others'
    WORLD: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    MIXED: tl.constexpr,  # a tile holds rows of several ranks
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT: tl.constexpr,  # programs that share a tile's depth
    GROUP: tl.constexpr,
    FLAG_M: tl.constexpr,  # rows and columns of what one flag says the arrival of; at most a tile's, divides a rank's
    FLAG_K: tl.constexpr,
    FLAGS_M: tl.constexpr,  # flags below each other that say all of a tile's, rounded up to a power of two
    FLAGS_K: tl.constexpr,  # flags of a row, and that rounded up to a power of two
    FLAGS_K2: tl.constexpr,
    SEND_M: tl.constexpr,  # rows sent at once
    READ_ONCE: tl.constexpr,  # see common.gemm.product
    DIES: tl.constexpr,
    BULK: tl.constexpr,
    AMD: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    own_block = tl.load(blocks_ptr + rank)
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    if program < senders:
        send(
            a_ptr,
            blocks_ptr,
            m,
            K,
            rank,
            epoch,
            flags,
            gathered,
            senders,
            send_group,
            WORLD,
            MIXED,
            FLAG_M,
            FLAG_K,
            FLAGS_K,
            SEND_M,
            AMD,
        )

    M = m * WORLD
    a_desc, b_desc, out_desc, all_desc = a, b, out, whole
    if AMD:  # see gemm_rs_kernel
        a_desc = tl.make_tensor_descriptor(a, [m, K], [K, 1], [BLOCK_M, BLOCK_K])
        b_desc = tl.make_tensor_descriptor(b, [n, K], [K, 1], [BLOCK_N, BLOCK_K])
        out_desc = tl.make_tensor_descriptor(out, [M, n], [n, 1], [BLOCK_M, BLOCK_N])
        all_desc = tl.make_tensor_descriptor(whole, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    ends = (work_ptr, out_desc, bias_ptr, n)
    tiles_n = tl.cdiv(n, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    own_tiles_m = 0 if MIXED else tl.cdiv(m, BLOCK_M)
    # From here on a tile is one program's share of it.
    own_tiles = own_tiles_m * tiles_n * SPLIT
    # Senders come lead rounds later; from then on all programs take tiles in turn.
    shared_out = lead * (programs - senders)
    place = spread_over_dies(program, programs, DIES)
    tile = shared_out + place
    if program >= senders and lead > 0:
        tile = spread_over_dies(program - senders, programs - senders, DIES)

    # This rank's rows come first ...
    if not MIXED:
        while tile < own_tiles:
            tile_m, tile_n = swizzled(tile // SPLIT, own_tiles_m, tiles_n, GROUP)
            row = first_row(tile_m, m, BLOCK_M)
            column = tile_n * BLOCK_N
            first, last = share_of(tile % SPLIT, steps, SPLIT)
            acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            acc = product(a_desc, b_desc, row, column, first, last, acc, BLOCK_K, INTERPRET, READ_ONCE, n, K)
            finish(acc, tile, ends, rank * m + row, column, SPLIT, HAS_BIAS, BLOCK_M, BLOCK_N, AMD, INTERPRET)
            tile = following(tile, place, shared_out, programs, senders)

    # ... then those of the others as they arrive: block of rows after block of rows, one rank after the other in each.
    tiles_m = tl.cdiv(M, BLOCK_M) if MIXED else (WORLD - 1) * own_tiles_m
    while tile - own_tiles < tiles_m * tiles_n * SPLIT:
        arrival, tile_n = swizzled((tile - own_tiles) // SPLIT, tiles_m, tiles_n, GROUP)
        column = tile_n * BLOCK_N
        first, end = share_of(tile % SPLIT, steps, SPLIT)
        if MIXED:
            ahead = min(first * BLOCK_K, K - 8)  # where more programs share a tile's depth than it has steps
            prefetch_rows(b_ptr, column, n, ahead, K, prefetch, BLOCK_N, BULK)
            row = arrival * BLOCK_M
        else:
            source = (rank + 1 + arrival % (WORLD - 1)) % WORLD
            row = source * m + first_row(arrival // (WORLD - 1), m, BLOCK_M)
        rows = row // FLAG_M + tl.arange(0, FLAGS_M)[:, None]
        places = tl.broadcast_to(tl.arange(0, FLAGS_K2)[None, :], (FLAGS_M, FLAGS_K2))
        last_flag = FLAGS_K
        if SPLIT > 1:
            last_flag = min(FLAGS_K, tl.cdiv(end * BLOCK_K, FLAG_K))
        needed = (places < last_flag) & (rows < tl.cdiv(min(row + BLOCK_M, M), FLAG_M))
        index = rows * FLAGS_K + places
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        arrived = first * BLOCK_K // FLAG_K
        while arrived < last_flag:  # what has arrived is multiplied while the rest is on its way
            arrived = wait_beyond(flag_pointers(own_block + flags, index), epoch, needed, places, arrived, last_flag)
            order_bulk_loads(BULK)
            last = arrived * FLAG_K // BLOCK_K if arrived < last_flag else end
            acc = product(all_desc, b_desc, row, column, first, last, acc, BLOCK_K, INTERPRET, READ_ONCE, n, K)
            first = last
        finish(acc, tile, ends, row, column, SPLIT, HAS_BIAS, BLOCK_M, BLOCK_N, AMD, INTERPRET)
        tile = following(tile, place, shared_out, programs, senders)
