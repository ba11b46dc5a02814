"""ag_gemm on Hopper by explicit warps: one loads, two warpgroups multiply, one warp sends.

The sending warps of the programs share the rank's rows. Each copies chunk after chunk through shared memory to every
other rank, and flags those that have arrived, several at a time; only that warp waits for links. The loading warp
begins with the rank's own rows. Of the others it loads the columns that have arrived, so that those that multiply know
of no other rank. A tile has rows of one rank only. Its columns may be a power of two and a smaller one (REST_N), with a
sum for each.
"""

from common.bulk import bulk_load, bulk_store
from common.warps import (
    FLAG_BYTES,
    GROUPS,
    bf16_behind,
    finish_copies,
    made_ring,
    multiplied,
    multiplied_in_three,
    next_stage,
    order_copies,
    read_flag,
    set_flags,
    thread_numbers,
)
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma


@gluon.jit
def in_groups(index, tiles_m, tiles_n, GROUP):
    """Row and column of the tile at `index`: column by column within GROUP rows of tiles, so that the tiles that are
    multiplied at the same time share operands in the L2."""
    first = index // (GROUP * tiles_n) * GROUP
    rows = gl.minimum(tiles_m - first, GROUP)
    inside = index % (GROUP * tiles_n)
    return first + inside % rows, inside // rows


@gluon.jit
def place(
    tile, m, n, rank, WORLD: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GROUP: gl.constexpr
):  # fmt: skip
    """Row and column where a tile begins. The rank's own rows come first, then those of the others as they arrive: row
    of tiles after row of tiles, one rank after the other in each."""
    tiles_n = gl.cdiv(n, BLOCK_N)
    tiles_m = gl.cdiv(m, BLOCK_M)
    own_tiles = tiles_m * tiles_n
    if tile < own_tiles:
        tile_m, tile_n = in_groups(tile, tiles_m, tiles_n, GROUP)
        source = rank
    else:
        arrival, tile_n = in_groups(tile - own_tiles, tiles_m * (WORLD - 1), tiles_n, GROUP)
        # The rank before this one has sent to it first.
        source = (rank + WORLD - 1 - arrival % (WORLD - 1)) % WORLD
        tile_m = arrival // (WORLD - 1)
    row = source * m + gl.minimum(tile_m * BLOCK_M, m - BLOCK_M)  # see common.gemm.first_row
    return row, tile_n * BLOCK_N


@gluon.jit
def come_to(
    flags,
    flags_m,
    row,
    epoch,
    come,
    ROWS: gl.constexpr,
    SEND_M: gl.constexpr,
    FLAGS_K: gl.constexpr,
):  # fmt: skip
    """How many of the first chunks of these ROWS rows have come, as soon as these are more than `come`; they may then
    be copied. `flags` is the address of the first flag of all, `flags_m` how many of them are below each other. It
    looks no further ahead than one flag a thread: each acquires, so a thread would read one after the other."""
    WIDTH: gl.constexpr = 32 // (ROWS // SEND_M)
    index = thread_numbers()
    before = come
    columns = gl.minimum(before + index % WIDTH, FLAGS_K - 1)
    rows = gl.minimum(row // SEND_M + index // WIDTH, flags_m - 1)
    addresses = flags + (rows * FLAGS_K + columns).to(gl.int64) * FLAG_BYTES
    while come <= before:
        missing = read_flag(addresses) < epoch
        come = gl.minimum(gl.min(gl.where(missing, columns, FLAGS_K), axis=0), before + WIDTH)
    order_copies()
    return come


@gluon.jit
def load_tiles(
    descs,
    sizes,
    heap,
    ring,
    WORLD: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    PARTS: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    SEND_M: gl.constexpr,
    SEND_K: gl.constexpr,
    FLAGS_K: gl.constexpr,
):
    """The loading warp."""
    m, n, K, rank = sizes
    blocks_ptr, epoch, flags, _ = heap
    a_ring, b_ring, filled, emptied = ring
    a_desc, b_desc, all_desc = descs
    HALF: gl.constexpr = BLOCK_M // GROUPS
    PART: gl.constexpr = BLOCK_N // PARTS
    own_block = gl.load(blocks_ptr + rank)
    slot = 0
    turn = 1  # of a ring that is empty
    tiles = WORLD * gl.cdiv(m, BLOCK_M) * gl.cdiv(n, BLOCK_N)
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, column = place(tile, m, n, rank, WORLD, BLOCK_M, BLOCK_N, GROUP)
        own = row // m == rank
        come = gl.where(own, FLAGS_K, 0)
        for step in range(gl.cdiv(K, BLOCK_K)):
            depth = step * BLOCK_K
            mbarrier.wait(emptied.index(slot), turn)
            mbarrier.expect(filled.index(slot), (BLOCK_M + BLOCK_N) * BLOCK_K * 2)
            for part in gl.static_range(PARTS):
                part_s = b_ring.index(slot * PARTS + part)
                bulk_load(b_desc, [column + part * PART, depth], filled.index(slot), part_s)
            while depth // SEND_K >= come:
                come = come_to(own_block + flags, m * WORLD // SEND_M, row, epoch, come, BLOCK_M, SEND_M, FLAGS_K)
            for group in gl.static_range(GROUPS):
                part_s = a_ring.index(slot * GROUPS + group)
                if own:
                    bulk_load(a_desc, [row - rank * m + group * HALF, depth], filled.index(slot), part_s)
                else:
                    bulk_load(all_desc, [row + group * HALF, depth], filled.index(slot), part_s)
            slot, turn = next_stage(slot, turn, STAGES)


@gluon.jit
def begun_sum(bias_ptr, column, n, HAS_BIAS: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """A sum to which the bias comes first: it would take more registers last."""
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, COLUMNS, 16]
    )
    acc = gl.zeros((ROWS, COLUMNS), gl.float32, layout)
    if HAS_BIAS:
        places = column + gl.arange(0, COLUMNS, gl.SliceLayout(0, layout))
        bias = gl.load(bias_ptr + places, mask=places < n, other=0.0)
        acc += bias.to(gl.float32)[None, :]
    return acc


@gluon.jit
def multiply_tiles(
    bias_ptr,
    out_ptr,
    sizes,
    ring,
    out_s,
    MINE: gl.constexpr,  # which of the groups this is
    WORLD: gl.constexpr,
    HAS_BIAS: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    PARTS: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
):
    """A warpgroup: its part of every tile's rows, which it stores by a bulk copy beside the next product."""
    m, n, K, rank = sizes
    a_ring, b_ring, filled, emptied = ring
    HALF: gl.constexpr = BLOCK_M // GROUPS
    PART: gl.constexpr = BLOCK_N // PARTS
    M = m * WORLD
    out_desc = tma.make_tensor_descriptor(out_ptr, [M, n], [n, 1], [HALF, PART], out_s.layout)
    steps = gl.cdiv(K, BLOCK_K)
    slot = 0
    turn = 0
    tiles = WORLD * gl.cdiv(m, BLOCK_M) * gl.cdiv(n, BLOCK_N)
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, column = place(tile, m, n, rank, WORLD, BLOCK_M, BLOCK_N, GROUP)
        acc = begun_sum(bias_ptr, column, n, HAS_BIAS, HALF, PART)
        if PARTS == 3:
            second = begun_sum(bias_ptr, column + PART, n, HAS_BIAS, HALF, PART)
            third = begun_sum(bias_ptr, column + 2 * PART, n, HAS_BIAS, HALF, PART)
            acc, second, third, slot, turn = multiplied_in_three(
                a_ring, b_ring, filled, emptied, acc, second, third, steps, slot, turn, MINE, STAGES
            )
            second_rounded = second.to(gl.bfloat16)
            third_rounded = third.to(gl.bfloat16)
        else:
            acc, slot, turn = multiplied(a_ring, b_ring, filled, emptied, acc, steps, slot, turn, MINE, STAGES)
        rounded = acc.to(gl.bfloat16)
        tma.store_wait(0)
        out_s.index(MINE * PARTS).store(rounded)
        if PARTS == 3:
            out_s.index(MINE * PARTS + 1).store(second_rounded)
            out_s.index(MINE * PARTS + 2).store(third_rounded)
        fence_async_shared()
        for part in gl.static_range(PARTS):
            bulk_store(out_desc, [row + MINE * HALF, column + part * PART], out_s.index(MINE * PARTS + part))
    tma.store_wait(0)


@gluon.jit
def sender_number(m, n, WORLD: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr):
    """This program's place among those that send: first come those that have a tile less than others, since whoever
    sends multiplies more slowly."""
    tiles = WORLD * gl.cdiv(m, BLOCK_M) * gl.cdiv(n, BLOCK_N)
    programs = gl.num_programs(0)
    return (gl.program_id(0) + programs - tiles % programs) % programs


@gluon.jit
def flag_chunks(
    blocks, first, last, rank, mine, senders, flags_m, flags, epoch, WORLD: gl.constexpr, FLAGS_K: gl.constexpr,
    SEND_GROUP: gl.constexpr
):  # fmt: skip
    """Waits until the program's chunks number `first` to `last` have arrived, and all before them, and sets their flags
    at all other ranks, one by each thread."""
    threads = thread_numbers()
    number = gl.minimum(first + threads, last - 1)
    chunk_m, chunk_k = in_groups(mine + number * senders, flags_m, FLAGS_K, SEND_GROUP)
    flag = flags + ((rank * flags_m + chunk_m) * FLAGS_K + chunk_k).to(gl.int64) * FLAG_BYTES
    finish_copies()
    for step in gl.static_range(WORLD - 1):
        set_flags(blocks[step] + flag, epoch, threads < last - first)


@gluon.jit
def send_rows(
    own_desc,
    senders,
    sizes,
    heap,
    chunks,
    loaded,
    WORLD: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    SEND_M: gl.constexpr,
    SEND_K: gl.constexpr,
    FLAGS_K: gl.constexpr,
    SEND_GROUP: gl.constexpr,
    BUFFERS: gl.constexpr,
    AT_ONCE: gl.constexpr,
):
    """The sending warp: this program's part of the rank's rows to every other rank, the next chunk from memory while
    this one is on its way. A flag's fence waits for all that is on its way, so several chunks share one; the first
    ones do not, as others wait for them."""
    m, n, K, rank = sizes
    blocks_ptr, epoch, flags, gathered = heap
    flags_m = m // SEND_M
    count = flags_m * FLAGS_K
    mine = sender_number(m, n, WORLD, BLOCK_M, BLOCK_N)
    if mine < gl.minimum(senders, count):
        chunk_m, chunk_k = in_groups(mine, flags_m, FLAGS_K, SEND_GROUP)
        mbarrier.expect(loaded.index(0), SEND_M * SEND_K * 2)
        bulk_load(own_desc, [chunk_m * SEND_M, chunk_k * SEND_K], loaded.index(0), chunks.index(0))
    blocks = ()
    peer_descs = ()
    for step in gl.static_range(1, WORLD):  # the next rank first: all links are busy
        block = gl.load(blocks_ptr + (rank + step) % WORLD)
        blocks += (block,)
        to_ptr = bf16_behind(block, gathered + rank * m * K * 2)
        peer_descs += (tma.make_tensor_descriptor(to_ptr, [m, K], [K, 1], [SEND_M, SEND_K], chunks.layout),)
    slot = 0
    phase = 0
    sent = 0  # chunks, and how many of them are flagged
    flagged = 0
    if mine < senders:
        for chunk in range(mine, count, senders):
            chunk_m, chunk_k = in_groups(chunk, flags_m, FLAGS_K, SEND_GROUP)
            mbarrier.wait(loaded.index(slot), phase)
            for step in gl.static_range(WORLD - 1):
                bulk_store(peer_descs[step], [chunk_m * SEND_M, chunk_k * SEND_K], chunks.index(slot))
            slot, phase = next_stage(slot, phase, BUFFERS)
            tma.store_wait((BUFFERS - 1) * (WORLD - 1))  # what is loaded next lies where another chunk has been read
            after = chunk + senders
            if after < count:
                after_m, after_k = in_groups(after, flags_m, FLAGS_K, SEND_GROUP)
                mbarrier.expect(loaded.index(slot), SEND_M * SEND_K * 2)
                bulk_load(own_desc, [after_m * SEND_M, after_k * SEND_K], loaded.index(slot), chunks.index(slot))
            sent += 1
            if (sent - flagged >= gl.minimum(AT_ONCE, flagged + 1)) | (after >= count):
                flag_chunks(
                    blocks, flagged, sent, rank, mine, senders, flags_m, flags, epoch, WORLD, FLAGS_K, SEND_GROUP
                )  # fmt: skip
                flagged = sent


@gluon.jit(do_not_specialize=["rank", "epoch", "flags", "senders"])
def warps_kernel(
    a_desc,  # of bf16 [m, K] in blocks of a warpgroup's rows, [BLOCK_M / 2, BLOCK_K]; blocks are laid out as in rings
    own_desc,  # of the same in chunks of [SEND_M, SEND_K]
    b_desc,  # of bf16 [n, K] in blocks of [BLOCK_N / PARTS, BLOCK_K]
    all_desc,  # of bf16 [M, K] in this rank's block, where the other ranks' rows arrive, in blocks as of a_desc
    bias_ptr,  # all as in ag_gemm_kernel
    out_ptr,  # bf16 [M, n]
    blocks_ptr,
    m,
    n,
    K,
    rank,
    epoch,
    flags,
    gathered,
    senders,  # programs whose sending warp has something to do
    WORLD: gl.constexpr,
    HAS_BIAS: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    PARTS: gl.constexpr,  # of a tile's columns, each a power of two: 1 or 3
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    SEND_M: gl.constexpr,  # rows and columns of a chunk, of which one flag says that it has arrived
    SEND_K: gl.constexpr,
    FLAGS_K: gl.constexpr,  # flags of a row
    SEND_GROUP: gl.constexpr,  # rows of chunks that are sent column by column
    BUFFERS: gl.constexpr,  # for chunks: 1 or 2
    AT_ONCE: gl.constexpr,  # chunks that share a fence, at most 32
):
    HALF: gl.constexpr = BLOCK_M // GROUPS
    PART: gl.constexpr = BLOCK_N // PARTS
    out_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([HALF, PART], gl.bfloat16)
    chunk_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([SEND_M, SEND_K], gl.bfloat16)
    ring = made_ring(BLOCK_M, PART, BLOCK_K, STAGES, PARTS)
    out_s = gl.allocate_shared_memory(gl.bfloat16, [GROUPS * PARTS, HALF, PART], out_layout)
    chunks = gl.allocate_shared_memory(gl.bfloat16, [BUFFERS, SEND_M, SEND_K], chunk_layout)
    loaded = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    for buffer in gl.static_range(BUFFERS):
        mbarrier.init(loaded.index(buffer), count=1)
    fence_async_shared()
    sizes = (m, n, K, rank)
    heap = (blocks_ptr, epoch, flags, gathered)
    # Names for these tuples would make tensors of the constants in them.
    # fmt: off
    gl.warp_specialize(
        [
            (multiply_tiles, (
                bias_ptr, out_ptr, sizes, ring, out_s, 0, WORLD, HAS_BIAS, BLOCK_M, BLOCK_N, PARTS, BLOCK_K,
                STAGES, GROUP,
            )),
            (multiply_tiles, (
                bias_ptr, out_ptr, sizes, ring, out_s, 1, WORLD, HAS_BIAS, BLOCK_M, BLOCK_N, PARTS, BLOCK_K,
                STAGES, GROUP,
            )),
            (load_tiles, (
                (a_desc, b_desc, all_desc), sizes, heap, ring, WORLD, BLOCK_M, BLOCK_N, PARTS, BLOCK_K, STAGES,
                GROUP, SEND_M, SEND_K, FLAGS_K,
            )),
            (send_rows, (
                own_desc, senders, sizes, heap, chunks, loaded, WORLD, BLOCK_M, BLOCK_N, SEND_M, SEND_K, FLAGS_K,
                SEND_GROUP, BUFFERS, AT_ONCE,
            )),
        ],
        [4, 1, 1],
        [224, 56, 56],
    )
    # fmt: on
