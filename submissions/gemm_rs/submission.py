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

A rank may have any number of rows: where tiles do not divide them, the last tile is moved back so that it ends with
them. A tile of several ranks' rows has as many whole ranks' as fit.

On Hopper also by a kernel with explicit warps, for loads, products and sends (hopper.py), where a rank has at least 128
rows.

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
from common.engine import copy_engine
from common.gemm import multiply, shared, workspace
from common.heap import Heap, open_heap
from common.launch import INTERPRETED, Launcher, ReadOnce, Tiles, Way, arguments_of, make_ahead, new_output
from common.tuning import Chip, chip_of, largest_power_of_two, nearest, rows_of_tile
from common.warps import ring_tiles
from hopper import warps_kernel
from kernel import beside_engine_kernel, gemm_rs_kernel
from task import input_t, output_t
from torch import Tensor
from tuning import TABLE, Row

WARPS_ROWS = 128  # of a tile of the kernel with explicit warps: 64 for each of two warpgroups
MOST_PIECES = 8  # in which a copy engine sends a rank's rows

reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor  # older name

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
    tiles: tuple[Way, ...]  # of the operands, where these go as descriptors, or are read once

    def example_arguments(self) -> tuple[Any, ...]:
        """What its kernel is called with, for compiling it: in place of tensors their dtypes."""
        rank, epoch, flags, slots = 1, 2, 1 << 14, 1 << 20
        more = {"plain": (torch.float32,), "engine": (torch.bfloat16, torch.int32), "warps": ()}[self.kernel]
        tensors = arguments_of((*[torch.bfloat16] * 4, torch.int64, *more), self.tiles)
        return (*tensors, *self.sizes, rank, epoch, flags, slots)


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
    """The plan with the blocks of `row`. None where no kernel can do the shape: all need vectors of 16 bytes (depth and
    columns in multiples of 8) and a power of two of ranks."""
    if depth % 8 or columns % 8 or world_size & world_size - 1:
        return None
    m = rows // world_size
    block_m, most = rows_of_tile(row.block_m, m), largest_power_of_two(m)
    if row.kernel == "engine":
        block_m = min(block_m, most)
    if block_m < 16 or (row.kernel == "warps" and not by_warps(row, chip, block_m, m)):
        row, block_m = row._replace(kernel="plain"), rows_of_tile(row.block_m, m)
    programs = chip.multiprocessors * row.per_sm
    options = {"num_warps": row.warps, "num_stages": row.stages}
    if row.kernel == "warps":
        options = {"num_warps": 4}  # of the first warpgroup; the kernel asks for the others
    owners = max(1, min(block_m // m, world_size))
    tiles_m, tiles_n = -(-m // block_m), -(-columns // row.block_n)
    tiles = -(-world_size // owners) * tiles_m * tiles_n
    split, work = shared(row.split, tiles, block_m, row.block_n)
    piece_tiles = row.group * -(-tiles_m // (row.group * MOST_PIECES))
    pieces = -(-tiles_m // piece_tiles)
    constants = {  # of each kernel, in the order of its parameters
        "WORLD": world_size,
        "HAS_BIAS": bias,
        "OWNERS": owners,
        "FUSED": split == 1 and m >= block_m,
        "MIXED": m < block_m,
        "BLOCK_M": block_m,
        "BLOCK_N": row.block_n,
        "BLOCK_K": row.block_k,
        "SPLIT": split,
        "WINDOW": -(-row.window // (WARPS_ROWS // 2 * min(64, row.block_n) * 2)),
        "STAGES": row.stages,
        "GROUP": row.group,
        "FETCHERS": row.fetchers and not row.window,
        "SUM_M": min(largest_power_of_two(row.sum_m), block_m, most),
        "SUM_N": min(row.sum_n, row.block_n),
        "SUM_LATE": row.sum_late,
        "READ_ONCE": row.read_once and depth % row.block_k == 0,
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
    tiles = operand_tiles(row, chip, block_m, sizes, bool(constants.get("READ_ONCE")))
    return Plan(row.kernel, launcher, sizes, (m, columns), programs, nbytes, flags, work, constants, options, tiles)


def operand_tiles(row: Row, chip: Chip, block_m: int, sizes: tuple[int, int, int], read_once: bool) -> tuple[Way, ...]:
    """Of the operands, where the kernel gets descriptors of them, or the weights by their address. On AMD it makes its
    own: given ones would tell the compiler nothing about alignment."""
    if row.kernel == "engine" or chip.name.startswith("gfx"):
        return ()
    rows, columns, depth = sizes
    made, rows_each = (ring_tiles, block_m // 2) if row.kernel == "warps" else (Tiles, block_m)  # // 2: of a warpgroup
    weights = ReadOnce() if read_once else made((columns, depth), (row.block_n, row.block_k))
    return made((rows, depth), (rows_each, row.block_k)), weights


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
    plan.launch(plan.programs, tensors, numbers, plan.constants, plan.options, plan.tiles)
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
                engine.follow_count(step * len(pieces) + number, -(-len(piece_pN) // block_m) * tiles_n)
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
