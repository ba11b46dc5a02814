#!POPCORN leaderboard amd-ag-gemm
#!POPCORN gpus MI300
"""ag_gemm as a product that begins with this rank's rows and goes on with the others' as they arrive.

In one kernel, where inputs are small: the first programs copy this rank's rows into every other rank's memory, a block
of rows and columns at a time, each with a flag of its own, and join the others when they are done. All others begin
with this rank's own rows, for which nobody has to be waited for, and go on with those of the other ranks in the order
in which they arrive: block of rows after block of rows, one rank after the other in each. Of a tile's rows they
multiply the columns that have arrived while the rest is on its way. As many rows as a round of tiles needs are sent
column by column, so that all of its tiles have something to do, and the last end soon after the links do.
Where a tile holds the rows of several ranks (few rows) there is nothing of one's own to begin with; its programs ask
the L2 for their part of the weights while they wait. Where tiles are fewer than multiprocessors, several programs may
share a tile's depth; the last of them adds up all sums in float32 (the table's `split`). A rank may have any number of
rows: where tiles do not divide them, the last tile is moved back so that it ends with them.

On Hopper also by a kernel with explicit warps, for loads, products and sends (hopper.py), where a rank has at least 128
rows and these are a multiple of 16.

Where products are the largest, a copy engine sends the rows, to one rank after the other, and the library multiplies
them: those of one rank after the other's, each product behind a wait of its stream for a flag. The tuning table says
which way a shape goes.

When it wins: against the reference and torch's fused operators everywhere on 4x H200 (docs/kernels.md). The reference's
product cannot begin before its all-gather is done.
What it costs: memory for the gathered input, twice; while they send, the multiprocessors of the senders.
Where its time goes: docs/kernels.md. Known techniques in it: an all-gather by pushing into a symmetric heap, tiles
gated by flags, own tiles first (winners of the AMD Developer Challenge 2025; Flux, arXiv 2406.06858;
Triton-distributed, arXiv 2504.19442), products in parts beside copy engines (torch's asynchronous tensor parallelism).
Its own: epochs and two sets of flags in place of resets; senders that become multipliers after a number of rounds that
the tuning table has, so that no tile has to be dealt out at run time.

On CPU ranks each rank copies its rows into memory that all map; after one barrier it multiplies all rows, where they
lie, with its columns. Nobody makes a copy of the whole input. Why it wins there: gloo's all-gather takes about 10 ms
for 8 ranks on 2 cores, the product 0.1 to 0.5 ms a rank.
Measured on CPU ranks, speedup over the reference in the geometric mean: 4.5 to 6 (docs/measurements.md).
Tried and lost:
- on CPU ranks: only the bias fused: 1.0; a product per source rank, so that the first can start before the last rows
  are there: 8 products of an eighth take 2 to 7 times one product's time on a CPU core;
- on 4x H200 through NCCL: bias fused 0.9 to 1.1; own rows multiplied while the others' are gathered: 0.5 to 0.7, but
  1.04 and 1.08 at the two largest shapes; a broadcast and a product per rank: 0.3 to 0.9;
- a copy engine for small inputs: 116 us where programs send in 108 (shape 4), 65 for 52 (shape 3); one that sends to
  all ranks at once, 316 GB/s for 335 to one after the other;
- a copy engine beside the kernel: 336 us where programs that send take 371, but 556 for 485 by the hosts' clock (shape
  5); level where products are larger (shape 6: 1328 for 1331 us, 1407 for 1392);
- the library beside a copy engine where products are smaller: 776 us by the hosts' clock (shape 5), and 366 by the
  devices', 8 rounds of tiles for 7;
- few programs that send blocks of 128 rows: 372.3 us for 371.0 with more of 32 (shape 5);
- a flag for every 1024 columns instead of 256, while rows were not sent by column: 53.7 us instead of 43.1 (4x H200,
  shape 2), 141 for 116 (shape 4);
- a sender that loads the next rows before it stores those at hand: 206.8 us for 166.5 with 8 senders (2x H200, shape
  4); one that sends by bulk copies: 16.8 GB/s for 16.2, and without flags 21.2 for 38.5.

Legend: M rows of the product, K its depth, W ranks, m = M / W rows and n columns: this rank's.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import triton
from common.engine import copy_engine
from common.gemm import multiply, shared, workspace
from common.heap import Heap, Turn, open_heap
from common.launch import INTERPRETED, Launcher, ReadOnce, Tiles, Way, arguments_of, make_ahead, new_output
from common.space import SHARED_BYTES
from common.tuning import Chip, chip_of, largest_power_of_two, nearest, rows_of_tile
from common.warps import ring_tiles
from hopper import warps_kernel
from kernel import ag_gemm_kernel
from task import input_t, output_t
from torch import Tensor
from torch.nn.functional import linear
from tuning import TABLE, Row

WARPS_ROWS = 128  # of a tile of the kernel with explicit warps: 64 for each of two warpgroups
OVERHEAD_BYTES = 2 << 10  # more than all barriers of a program, and what Triton takes, need of its shared memory

all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # older name

launch = Launcher(ag_gemm_kernel)
launchers = {"plain": launch, "engine": None, "warps": Launcher(warps_kernel)}


class Plan(NamedTuple):
    """Everything about a call that depends on shapes only."""

    kernel: str  # of the tuning table
    launch: Launcher | None  # of that kernel, which the rest is for; None: a copy engine sends, the library multiplies
    sizes: tuple[int, int, int]  # m, n, K
    output: tuple[int, int]  # M, n
    programs: int
    nbytes: int  # of the heap
    flags: int
    work: int  # float32 of the workspace
    sending: tuple[int, ...]  # senders, and for the plain kernel send_group, lead and prefetch
    constants: dict[str, Any]
    options: dict[str, Any]
    tiles: tuple[Way, ...]  # of the tensors that go as descriptors, or are read once

    def example_arguments(self) -> tuple[Any, ...]:
        """What its kernel is called with, for compiling it: in place of tensors their dtypes."""
        rank, epoch, flags, gathered = 1, 2, 1 << 14, 1 << 20
        bf16, more = ([torch.bfloat16] * 7, (torch.float32,)) if self.kernel == "plain" else ([torch.bfloat16] * 6, ())
        numbers = (*self.sizes, rank, epoch, flags, gathered, *self.sending)
        return (*arguments_of((*bf16, torch.int64, *more), self.tiles), *numbers)


def custom_kernel(data: input_t) -> output_t:
    input_mK, weight_nK, bias_n = data
    dtypes, shapes = (input_mK.dtype, weight_nK.dtype), (input_mK.shape, weight_nK.shape)
    return way_of(input_mK.device, dtypes, shapes, bias_n is not None)(input_mK, weight_nK, bias_n)


@cache
def way_of(device: torch.device, dtypes: tuple[Any, ...], shapes: tuple[Any, ...], bias: bool) -> Callable[..., Tensor]:
    """The way that a call with such tensors goes. The first call is collective."""
    heap, ((m, depth), (columns, _)) = open_heap(device), shapes
    if heap and heap.world_size == 1:  # nobody to exchange anything with
        return linear
    if heap and not heap.kernels:
        return partial(on_cpu, heap=heap)
    if heap and set(dtypes) == {torch.bfloat16}:
        plan = plan_of(device, heap.world_size, m * heap.world_size, columns, depth, bias)
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
    block_m = rows_of_tile(row.block_m, m)
    if row.kernel == "warps":
        if by_warps(row, chip, block_m, m):
            return plan_by_warps(row, chip, world_size, (m, columns, depth), block_m, bias)
        row = row._replace(kernel="plain", block_n=largest_power_of_two(row.block_n))  # it has one sum
    flag_m = rows_of_flag(row, min(row.flag_m, block_m, m), m)
    flags_m, flags_k = -(-block_m // flag_m) + (block_m % flag_m > 0), -(-depth // row.flag_k)
    programs = chip.multiprocessors * row.per_sm
    mixed = m < block_m
    tiles_m = -(-rows // block_m) if mixed else world_size * -(-m // block_m)
    tiles = tiles_m * -(-columns // row.block_n)
    split, work = shared(row.split, tiles, block_m, row.block_n)
    constants = {
        "WORLD": world_size,
        "HAS_BIAS": bias,
        "MIXED": mixed,
        "BLOCK_M": block_m,
        "BLOCK_N": row.block_n,
        "BLOCK_K": row.block_k,
        "SPLIT": split,
        "GROUP": row.group,
        "FLAG_M": flag_m,
        "FLAG_K": row.flag_k,
        "FLAGS_M": triton.next_power_of_2(min(flags_m, rows // flag_m)),
        "FLAGS_K": flags_k,
        "FLAGS_K2": triton.next_power_of_2(flags_k),
        "SEND_M": min(row.send_m, triton.next_power_of_2(flag_m)),
        "READ_ONCE": row.read_once and depth % row.block_k == 0,
        "DIES": chip.dies,
        "BULK": chip.name.startswith("sm_"),
        "AMD": chip.name.startswith("gfx"),
        "INTERPRET": INTERPRETED,
    }
    options = {"num_warps": row.warps, "num_stages": row.stages}
    flags = world_size if row.kernel == "engine" else world_size * (m // flag_m) * flags_k
    sizes, nbytes = (m, columns, depth), rows * depth * 2
    send_group = max(1, min(row.send_rows, m) // flag_m)
    sending = (min(row.senders, chip.multiprocessors), send_group, row.lead, row.prefetch)
    made = (row.kernel, launchers[row.kernel], sizes, (rows, columns), programs, nbytes, flags, work)
    a, gathered = (Tiles((count, depth), (block_m, row.block_k)) for count in (m, rows))
    b = ReadOnce() if constants["READ_ONCE"] else Tiles((columns, depth), (row.block_n, row.block_k))
    out = Tiles((rows, columns), (block_m, row.block_n))
    # On AMD the kernel makes its own: given ones would tell the compiler nothing about alignment.
    tiles = () if chip.name.startswith("gfx") else (None, a, None, b, gathered, None, out)
    return Plan(*made, sending, constants, options, tiles)


def rows_of_flag(row: Row, most: int, m: int) -> int:
    """How many rows a flag tells of, at most `most`: a divisor of m, as all flags tell of as many rows of one rank. A
    power of two, so that tiles begin with a flag's rows, unless even what is sent at once is more than that."""
    even = min(m & -m, most)
    return even if even >= row.send_m else next(rows for rows in range(most, 0, -1) if m % rows == 0)


def by_warps(row: Row, chip: Chip, block_m: int, m: int) -> bool:
    """Whether the kernel with explicit warps can have these blocks: two warpgroups' rows, all of one rank, and chunks
    of at least 16 rows and of whole steps of the product."""
    return chip.name == "sm_90" and block_m == WARPS_ROWS <= m and m % 16 == 0 and row.flag_k % row.block_k == 0


def plan_by_warps(row: Row, chip: Chip, world_size: int, sizes: tuple[int, int, int], block_m: int, bias: bool) -> Plan:
    """The plan of the kernel with explicit warps."""
    m, columns, depth = sizes
    send_m = min(row.send_m, m & -m)  # so that tiles begin with a chunk; of fewer rows it has more columns
    send_k = row.flag_k * row.send_m // send_m
    flags_k = -(-depth // send_k)
    ring, chunk = row.stages * (block_m + row.block_n) * row.block_k * 2, send_m * send_k * 2
    room = SHARED_BYTES - OVERHEAD_BYTES - ring - block_m * row.block_n * 2
    rows, programs = m * world_size, chip.multiprocessors
    parts = 1 if row.block_n == largest_power_of_two(row.block_n) else 3
    constants = {
        "WORLD": world_size,
        "HAS_BIAS": bias,
        "BLOCK_M": block_m,
        "BLOCK_N": row.block_n,
        "PARTS": parts,
        "BLOCK_K": row.block_k,
        "STAGES": row.stages,
        "GROUP": row.group,
        "SEND_M": send_m,
        "SEND_K": send_k,
        "FLAGS_K": flags_k,
        "SEND_GROUP": max(1, min(row.send_rows, m) // send_m),
        "BUFFERS": 2 if 2 * chunk <= room else 1,
        "AT_ONCE": max(1, min(row.lead, 32)),
    }
    flags, nbytes = rows // send_m * flags_k, rows * depth * 2
    sending = (min(row.senders, programs),)
    made = (row.kernel, launchers[row.kernel], sizes, (rows, columns), programs, nbytes, flags, 0)
    half = (block_m // 2, row.block_k)  # the rows of a warpgroup
    tiles = (
        ring_tiles((m, depth), half),
        ring_tiles((m, depth), (send_m, send_k)),
        ring_tiles((columns, depth), (row.block_n // parts, row.block_k)),
        ring_tiles((rows, depth), half),
    )
    options = {"num_warps": 4}  # of the first warpgroup; the kernel asks for the others
    return Plan(*made, sending, constants, options, tiles)


def as_planned(input_mK: Tensor, weight_nK: Tensor, bias_n: Tensor | None, heap: Heap, plan: Plan) -> Tensor:
    turn = heap.turn(plan.nbytes, plan.flags)
    if plan.launch is None:
        return beside_engine(input_mK, weight_nK, bias_n, heap, turn)
    output_Mn = new_output(plan.output, input_mK)
    bias = output_Mn if bias_n is None else bias_n
    gathered, others = heap.own_from(turn.offset), (bias, output_Mn, heap.pointers)
    tensors: tuple[Tensor, ...]
    if plan.kernel == "plain":
        work = workspace(heap.device, plan.work)
        tensors = (input_mK, input_mK, weight_nK, weight_nK, gathered, *others, work)
    else:
        tensors = (input_mK, input_mK, weight_nK, gathered, *others)
    numbers = (*plan.sizes, heap.rank, turn.epoch, turn.flags, turn.offset, *plan.sending)
    plan.launch(plan.programs, tensors, numbers, plan.constants, plan.options, plan.tiles)
    make_ahead(output_Mn)
    return output_Mn


def beside_engine(input_mK: Tensor, weight_nK: Tensor, bias_n: Tensor | None, heap: Heap, turn: Turn) -> Tensor:
    """The library multiplies this rank's rows while they are sent, then those of the others as they arrive."""
    engine, world_size = copy_engine(heap), heap.world_size
    output_Wmn = input_mK.new_empty(world_size, len(input_mK), len(weight_nK))
    engine.follow()
    multiply(input_mK, weight_nK, bias_n, output_Wmn[heap.rank])
    for step in range(1, world_size):
        engine.send(input_mK, (heap.rank + step) % world_size, turn, heap.rank * input_mK.nbytes, heap.rank)
    gathered_WmK = heap.view(heap.rank, turn.offset, input_mK.dtype, (world_size, *input_mK.shape))
    for step in range(1, world_size):
        source = (heap.rank - step) % world_size
        engine.wait(turn, source)
        multiply(gathered_WmK[source], weight_nK, bias_n, output_Wmn[source])
    engine.join()
    return output_Wmn.view(-1, len(weight_nK))


def on_cpu(input_mK: Tensor, weight_nK: Tensor, bias_n: Tensor | None, heap: Heap) -> Tensor:
    """Every rank lays its rows into memory that all map, then multiplies all of them."""
    world_size, (m, depth) = heap.world_size, input_mK.shape
    turn = heap.turn(world_size * m * depth * input_mK.itemsize)
    gathered_MK = heap.view(0, turn.offset, input_mK.dtype, (world_size * m, depth))
    gathered_MK[heap.rank * m :][:m] = input_mK
    heap.barrier()  # for every rank's rows
    return linear(gathered_MK, weight_nK, bias_n)


def through_collectives(input_mK: Tensor, weight_nK: Tensor, bias_n: Tensor | None) -> Tensor:
    """Where ranks share no memory, or a shape is not the kernel's."""
    gathered_MK = input_mK.new_empty(len(input_mK) * dist.get_world_size(), input_mK.shape[1])
    all_gather_single(gathered_MK, input_mK)
    return linear(gathered_MK, weight_nK, bias_n)
