#!POPCORN leaderboard amd-gemm-rs
#!POPCORN gpus MI300
"""gemm_rs as a product whose parts go straight to the ranks that own their rows, and are summed up there.

In one kernel, where products are small: every program multiplies tile after tile. Neighbours multiply the same tile of
different ranks' rows, and a program goes round the ranks, its own among them. So all links are busy from the first tile
on, and get time while a program works for its own rank. A tile for another rank goes into that rank's memory while the
next tile is multiplied, and is flagged one tile later, when it has long arrived. A tile of its own rank's rows is
summed up two tiles later, when the others' partial products have come: added up in float32, with W times the bias, and
rounded once. So hardly any program waits for a link. Where a tile is as wide as several ranks' rows (few rows), or
programs share a tile's depth so that all multiprocessors have work, the sums are made at the end, by all programs. Who
has the last part of a shared tile adds up all parts in float32 first (the table's `split`).

On Hopper also by a kernel with explicit warps, for loads, products and sends (hopper.py).

Where products are the largest, beside a copy engine: a kernel leaves the products of one rank's rows after another's in
its own memory and counts their tiles; the engine sends a piece once its count is full, while the next is multiplied.
Last come the rank's own rows, whose tiles add in float32 what the others have sent, before they are rounded. No program
ever waits for a link's stores. The tuning table says which way a shape goes.

When it wins: against the reference and torch's fused operators everywhere on 4x H200 (docs/kernels.md). The reference's
product has to be finished before its reduce-scatter begins, which then takes as long as a link does; here the links
work while the multiprocessors do, and nothing is read or written only to be summed up.
What it costs: memory for W partial products of the rank's rows, twice, and for those on their way; one rounding of each
partial product to bf16, as in the reference.
Where its time goes: docs/kernels.md. Known techniques in it: products fused with scattered writes to a symmetric heap
and flags a tile (winners of the AMD Developer Challenge 2025; Flux, arXiv 2406.06858), destinations in rotated order;
products in parts, sent by copy engines (torch's asynchronous tensor parallelism). Its own: flags one tile and sums two
tiles later; a copy engine that follows the counts of a kernel; own rows last, whose tiles are the sums; epochs and two
sets of flags in place of resets.

On CPU ranks each rank multiplies straight into memory that all map (bias included, one rounding to bf16); after one
barrier it sums up its rows of all W products. Why it wins there: gloo's reduce-scatter takes 13 to 18 ms for 8 ranks
on 2 cores, whatever the size; the products themselves take 0.1 to 0.3 ms a rank.
Measured on CPU ranks, speedup over the reference in the geometric mean: 5 to 7 (docs/measurements.md).
Tried and lost:
- on CPU ranks, gloo's all_to_all of bf16 partial rows and a local float32 sum: 2.0; only the bias fused: 0.98;
- on 4x H200 through NCCL: bias fused 0.8 to 1.03; rows in 2 chunks, the reduce-scatter of one beside the product of the
  next: 0.4 to 0.96, in 4 chunks: 0.2 to 0.9. Launching more collectives costs more than they hide;
- the library's products, a rank's rows after another's, each sent by a copy engine: 351 us where the kernel takes 388,
  but twelve calls of the host instead of one, 774 us for 503 by the hosts' clock (4x H200, shape 5; shape 6: 1583, one
  kernel 1559, the kernel beside the engine 1491). Written straight into their owners' memory: 437 us, since the
  library's stores then wait for links;
- the kernel beside a copy engine where products are smaller: 539 us by the hosts' clock for 503 (shape 5);
- copies of small products: 118 us where the kernel takes 110 (shape 4), 64 for 51 (shape 3);
- a product split over K whose parts are sent each by itself: rounded to bf16 each, which the strict verdict refuses on
  2 and 4 ranks (a simulation: all of 40 seeds, and 16 to 26 of 40);
- all tiles of one rank's rows after another's, its own last, each of those summed up at once: 401 us where it is now
  391 with the same blocks (4x H200, shape 5, in one run), and 117.8 where it is 110.8 (shape 4, in two);
- each tile flagged at once: the fence before the flag waits until the tile has arrived, 8 to 13 us a tile where all
  programs send at the same time; 4 to 17 % slower (41 51 64 132 461 1538 us, now 35 44 55 127 406 1469; 3 to 7 us of
  the difference are the clock's, which has lined the devices up since).

Legend: M rows and N columns of the product, W ranks, k = K / W, m = M / W: this rank's.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from common.engine import copy_engine
from common.gemm import (
    as_bf16,
    bf16_at,
    bias_row,
    joined,
    multiply,
    product,
    share_of,
    shared,
    spread_over_dies,
    swizzled,
    workspace,
)
from common.heap import Heap, open_heap
from common.launch import INTERPRETED, Launcher, make_ahead, new_output
from common.signals import count_up, finish_bulk_stores, flag_pointers, order_bulk_loads, signal, wait
from common.tuning import Chip, chip_of, dividing, nearest
from hopper import warps_kernel
from task import input_t, output_t
from torch import Tensor
from tuning import TABLE, Row

WARPS_ROWS = 128  # of a tile of the kernel with explicit warps: 64 for each of two warpgroups
MOST_PIECES = 8  # in which a copy engine sends a rank's rows

reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor  # older name


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
    wait(flag_pointers(own_block + flags, peers * (m // BLOCK_M) * tiles_n + tile), epoch, peers != rank)
    for piece in range(BLOCK_M // SUM_M * (BLOCK_N // SUM_N)):
        sum_parts(
            bf16_at(own_block, slots),
            bias_ptr,
            out_ptr,
            tile // tiles_n * BLOCK_M + piece // (BLOCK_N // SUM_N) * SUM_M,
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
    a_ptr,  # bf16 [M, K]
    b_ptr,  # bf16 [N, K]
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
    OWNERS: tl.constexpr,  # of a tile's rows
    FUSED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT: tl.constexpr,  # programs that share a tile's depth
    GROUP: tl.constexpr,
    SUM_M: tl.constexpr,
    SUM_N: tl.constexpr,
    SUM_LATE: tl.constexpr,  # sum up a tile behind the store of another, not before it
    DIES: tl.constexpr,
    AMD: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    b_desc = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BLOCK_N, BLOCK_K])
    m = M // WORLD
    peers = tl.arange(0, WORLD)
    blocks = tl.load(blocks_ptr + peers)
    own_block = tl.load(blocks_ptr + rank)
    own_rows = (own_block, flags, slots, epoch, rank, bias_ptr, out_ptr, m, N)
    # A chunk of tiles holds the rows of one rank, or a row of tiles those of several.
    chunk_m = max(m, BLOCK_M)
    chunks = tl.cdiv(M, chunk_m)
    tiles_m = chunk_m // BLOCK_M
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
        row = chunk * chunk_m + tile_m * BLOCK_M
        column = tile_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        first, last = share_of(split, steps, SPLIT)
        acc = product(a_desc, b_desc, row, column, first, last, acc, BLOCK_K, INTERPRET)

        complete = True
        if SPLIT > 1:
            acc, complete = joined(
                acc, chunk * (tiles_m * tiles_n) + inside // SPLIT, split, work_ptr, SPLIT, BLOCK_M, BLOCK_N, AMD
            )
        index = (rank * tiles_m + tile_m) * tiles_n + tile_n
        rows = row + tl.arange(0, BLOCK_M)
        columns = column + tl.arange(0, BLOCK_N)
        own = FUSED and chunk == rank
        if OWNERS == 1:  # before this program waits for anything: others wait for it
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
            elif OWNERS == 1:
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
                touched = (peers >= row // m) & (peers <= (row + BLOCK_M - 1) // m)
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
        for piece in range(program, m // SUM_M * sums_n, programs):
            sum_m = piece // sums_n * SUM_M
            sum_n = piece % sums_n * SUM_N
            index = (peers * tiles_m + sum_m // BLOCK_M) * tiles_n + sum_n // BLOCK_N
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
    a_ptr,  # all as in gemm_rs_kernel
    b_ptr,
    bias_ptr,
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
    tiles_m = m // BLOCK_M
    tiles_n = tl.cdiv(N, BLOCK_N)
    rank_tiles = tiles_m * tiles_n
    programs = tl.num_programs(0)
    program = spread_over_dies(tl.program_id(0), programs, DIES)
    stored = tl.full((), -1, tl.int32)
    for tile in range(program, WORLD * rank_tiles, programs):
        step = tile // rank_tiles
        tile_m, tile_n = swizzled(tile % rank_tiles, tiles_m, tiles_n, GROUP)
        row = tile_m * BLOCK_M
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
            wait(flag_pointers(own_block + flags, peers * PIECES + piece), epoch, peers != rank)
            order_bulk_loads(BULK)
            for other in tl.range(1, WORLD, num_stages=3):  # not unrolled, which would take too many registers
                acc += parts_desc.load([(rank + other) % WORLD * m + row, column]).to(tl.float32)
            if HAS_BIAS:  # last: added first, it would take another 80 registers
                acc += WORLD * bias_row(bias_ptr, column, N, BLOCK_N)
            out_desc.store([row, column], as_bf16(acc, INTERPRET))
    count_tile(counts_ptr, stored, BULK)  # where there are fewer tiles than programs


launch = Launcher(gemm_rs_kernel)
launch_beside_engine = Launcher(beside_engine_kernel)
kernels = {"plain": gemm_rs_kernel, "engine": beside_engine_kernel, "warps": warps_kernel}
launchers = {"plain": launch, "engine": launch_beside_engine, "warps": Launcher(warps_kernel)}


class Plan(NamedTuple):
    """Everything about a call that depends on shapes only."""

    kernel: str  # of the tuning table
    launch: Launcher  # of that kernel
    sizes: tuple[int, int, int]  # M, N, k
    output: tuple[int, int]  # m, N
    programs: int
    nbytes: int  # of the heap
    flags: int
    work: int  # float32 of the workspace
    constants: dict[str, Any]
    options: dict[str, Any]

    def example_arguments(self) -> tuple[torch.dtype | int, ...]:
        """What its kernel is called with, for compiling it: in place of tensors their dtypes."""
        rank, epoch, flags, slots = 1, 2, 1 << 14, 1 << 20
        more = {"plain": (torch.float32,), "engine": (torch.bfloat16, torch.int32), "warps": ()}[self.kernel]
        return (*[torch.bfloat16] * 4, torch.int64, *more, *self.sizes, rank, epoch, flags, slots)


def custom_kernel(data: input_t) -> output_t:
    input_Mk, weight_Nk, bias_N = data
    dtypes, shapes = (input_Mk.dtype, weight_Nk.dtype), (input_Mk.shape, weight_Nk.shape)
    return way_of(input_Mk.device, dtypes, shapes, bias_N is not None)(input_Mk, weight_Nk, bias_N)


@cache
def way_of(device: torch.device, dtypes: tuple[Any, ...], shapes: tuple[Any, ...], bias: bool) -> Callable[..., Tensor]:
    """The way that a call with such tensors goes. The first call is collective."""
    heap, ((rows, depth), (columns, _)) = open_heap(device), shapes
    if heap and heap.world_size == 1:  # nobody to exchange anything with
        return torch.nn.functional.linear
    if heap and not heap.kernels:
        return partial(on_cpu, heap=heap)
    if heap and set(dtypes) == {torch.bfloat16}:
        plan = plan_of(device, heap.world_size, rows, columns, depth, bias)
        if plan:
            return partial(as_planned, heap=heap, plan=plan)
    return through_collectives


def plan_of(device: torch.device, world_size: int, rows: int, columns: int, depth: int, bias: bool) -> Plan | None:
    """The plan by the table."""
    chip = chip_of(device)
    return make_plan(nearest(TABLE, chip.name, (rows, columns, depth)), chip, world_size, rows, columns, depth, bias)


def make_plan(row: Row, chip: Chip, world_size: int, rows: int, columns: int, depth: int, bias: bool) -> Plan | None:
    """The plan with the blocks of `row`. None for shapes that the kernel cannot do: it needs ranks' rows in powers of
    two, vectors of 16 bytes, and a power of two of ranks."""
    m = rows // world_size
    block_m, sum_m = dividing(row.block_m, m), 1 << min(row.sum_m.bit_length(), (m & -m).bit_length()) - 1
    sum_m = min(sum_m, block_m)
    if row.kernel == "engine":
        block_m = min(block_m, m)
    if row.kernel == "warps" and not by_warps(row, chip, block_m, m):
        row = row._replace(kernel="plain")
    if block_m < 16 or depth % 8 or columns % 8 or world_size & world_size - 1:
        return None
    programs = chip.multiprocessors * row.per_sm
    options = {"num_warps": row.warps, "num_stages": row.stages}
    if row.kernel == "warps":
        options = {"num_warps": 4}  # of the first warpgroup; the kernel asks for the others
    tiles_m, tiles_n = max(1, m // block_m), -(-columns // row.block_n)
    tiles = -(-rows // max(m, block_m)) * tiles_m * tiles_n
    split, work = shared(row.split, tiles, block_m, row.block_n)
    piece_tiles = row.group * -(-tiles_m // (row.group * MOST_PIECES))
    pieces = -(-tiles_m // piece_tiles)
    constants = {  # of each kernel, in the order of its parameters
        "WORLD": world_size,
        "HAS_BIAS": bias,
        "OWNERS": max(1, block_m // m),
        "FUSED": split == 1 and m >= block_m,
        "MIXED": m < block_m,
        "BLOCK_M": block_m,
        "BLOCK_N": row.block_n,
        "BLOCK_K": row.block_k,
        "SPLIT": split,
        "WINDOW": -(-row.window // (WARPS_ROWS // 2 * min(64, row.block_n) * 2)),
        "STAGES": row.stages,
        "GROUP": row.group,
        "SUM_M": sum_m,
        "SUM_N": min(row.sum_n, row.block_n),
        "SUM_LATE": row.sum_late,
        "PIECES": pieces,
        "PIECE_TILES": piece_tiles,
        "DIES": chip.dies,
        "BULK": chip.name.startswith("sm_"),
        "AMD": chip.name.startswith("gfx"),
        "INTERPRET": INTERPRETED,
    }
    launcher, flags = launchers[row.kernel], world_size * (pieces if row.kernel == "engine" else tiles_m * tiles_n)
    constants = {name: value for name, value in constants.items() if name in kernels[row.kernel].arg_names}
    sizes, nbytes = (rows, columns, depth), rows * columns * 2
    return Plan(row.kernel, launcher, sizes, (m, columns), programs, nbytes, flags, work, constants, options)


def by_warps(row: Row, chip: Chip, block_m: int, m: int) -> bool:
    """Whether the kernel with explicit warps can have these blocks: two warpgroups' rows, all of one rank."""
    return chip.name == "sm_90" and block_m == WARPS_ROWS <= m


def as_planned(input_Mk: Tensor, weight_Nk: Tensor, bias_N: Tensor | None, heap: Heap, plan: Plan) -> Tensor:
    if plan.kernel == "engine":
        return beside_engine(input_Mk, weight_Nk, bias_N, heap, plan)
    output_mN = new_output(plan.output, input_Mk)
    turn = heap.turn(plan.nbytes, plan.flags)
    bias = output_mN if bias_N is None else bias_N
    tensors: tuple[Tensor, ...] = (input_Mk, weight_Nk, bias, output_mN, heap.pointers)
    if plan.kernel == "plain":
        tensors += (workspace(heap.device, plan.work),)
    numbers = (*plan.sizes, heap.rank, turn.epoch, turn.flags, turn.offset)
    plan.launch(plan.programs, tensors, numbers, plan.constants, plan.options)
    make_ahead(output_mN)
    return output_mN


def beside_engine(input_Mk: Tensor, weight_Nk: Tensor, bias_N: Tensor | None, heap: Heap, plan: Plan) -> Tensor:
    """The products of the other ranks' rows are sent while the kernel works on the next."""
    turn, engine = heap.turn(plan.nbytes, plan.flags), copy_engine(heap)
    products_smN = input_Mk.new_empty(heap.world_size - 1, *plan.output)
    output_mN = input_Mk.new_empty(*plan.output)
    bias = output_mN if bias_N is None else bias_N
    tensors = (input_Mk, weight_Nk, bias, output_mN, heap.pointers, products_smN, engine.counts)
    numbers = (*plan.sizes, heap.rank, turn.epoch, turn.flags, turn.offset)

    def send() -> None:
        tiles_n, block_m = -(-plan.output[1] // plan.constants["BLOCK_N"]), plan.constants["BLOCK_M"]
        for step, product_mN in enumerate(products_smN):
            owner, offset = (heap.rank + 1 + step) % heap.world_size, heap.rank * product_mN.nbytes
            pieces = product_mN.split(plan.constants["PIECE_TILES"] * block_m)
            for number, piece_pN in enumerate(pieces):
                engine.follow_count(step * len(pieces) + number, len(piece_pN) // block_m * tiles_n)
                engine.send(piece_pN, owner, turn, offset, heap.rank * len(pieces) + number)
                offset += piece_pN.nbytes

    engine.overlap(partial(plan.launch, plan.programs, tensors, numbers, plan.constants, plan.options), send)
    return output_mN


def on_cpu(input_Mk: Tensor, weight_Nk: Tensor, bias_N: Tensor | None, heap: Heap) -> Tensor:
    """Every rank multiplies straight into memory that all map, then sums up its rows of all products."""
    world_size, rows, columns = heap.world_size, len(input_Mk), len(weight_Nk)
    turn = heap.turn(world_size * rows * columns * input_Mk.itemsize)
    partial_WMN = heap.view(0, turn.offset, input_Mk.dtype, (world_size, rows, columns))
    multiply(input_Mk, weight_Nk, bias_N, partial_WMN[heap.rank])
    heap.barrier()  # for every rank's product
    mine = slice(heap.rank * rows // world_size, (heap.rank + 1) * rows // world_size)
    return partial_WMN[:, mine].sum(0)  # torch adds bf16 up in float32 and rounds once


def through_collectives(input_Mk: Tensor, weight_Nk: Tensor, bias_N: Tensor | None) -> Tensor:
    """Where ranks share no memory, or a shape is not the kernel's."""
    partial_MN = input_Mk.new_empty(len(input_Mk), len(weight_Nk))
    multiply(input_Mk, weight_Nk, bias_N, partial_MN)
    output_mN = partial_MN.new_empty(len(partial_MN) // dist.get_world_size(), partial_MN.shape[1])
    reduce_scatter_single(output_mN, partial_MN)
    return output_mN
