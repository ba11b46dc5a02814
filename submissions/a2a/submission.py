#!POPCORN leaderboard amd-all2all
#!POPCORN gpus MI300
"""a2a as one kernel: tokens go straight into the memory of their experts' ranks, and the outputs straight back.

No rank learns counts, and no host waits. A token is sent once to each rank that has one of its experts, in pieces,
and each piece has a place and a flag of its own there. The flag tells that the piece has come, or that none will:
every rank sets the flags of all max_num_tokens tokens, so nobody has to be told how many there are. A program does
its share of three phases one after the other, and waits for single pieces only:
- send: a piece of a token is read once, written to all ranks that need it, and flagged;
- answer: pieces that came are read, multiplied by the expert (in float32, rounded once, as the reference does per
  expert output), written back to the token's rank, and flagged there;
- combine: the outputs of a token's ranks, each times the sum of the token's weights there, and the part of its own
  rank, straight from x, are added up in float32 and rounded once.
All programs fit on the chip at once, and each ends a phase before it waits in the next. The phases are dealt out one
behind the other: where there is little to do, those that answer are waiting before anything has come.

When it wins: where ranks reach each other's memory. Collectives have to be told counts, which is one more collective
and a wait of the host, or carry max_num_tokens rows from each rank to each; and each costs a launch and a barrier.
Where its time goes, by reckoning before it first ran (measured since: 12 us, and 65 on 4 ranks): a write to another
GPU until a poll there sees it takes about 1.5 us, a fence that waits for the program's writes 1 us, a read of this
GPU's memory 0.7 us. The smallest official shape: its bytes take less than 1 us; launch 2, read and fence 2, flag 1.5,
read and fence 2, flag 1.5, read and write 1: 10 us, of which half are fences and flags. The largest, 4 ranks: the
busiest rank sends about 204 tokens to 2.7 ranks each, 7.9 MB, and answers 4.9 MB: 41 us at 310 GB/s (measured for such
writes, H200), and some 10 us as above.
What it costs: memory, 2 W max_num_tokens rows on every rank, twice; on the links a flag, some 32 bytes, also for each
piece that a rank does not need.
Skewed routing: a place belongs to a source rank and one of its C tokens, and not to an expert, so there is one for
every token wherever all of them go (T < C). A rank without tokens sends flags alone. No loop's end depends on the data.
Known techniques in it: a symmetric heap, flags a token, and expert and combine in the kernel that sends (winners of
the AMD Developer Challenge 2025, Yotta Labs' among them); epochs in place of resets. Its own: flags that say "nothing
for you", and two sets of them in turn.

CPU ranks lay tokens and outputs out in memory that all map, with a barrier after dispatch and one before combine;
there the expert's rank also multiplies by the token's weights and adds up over its experts, so that one row a (token,
rank) comes back. Where memory cannot be shared it is two collectives of fixed size.
Why it wins on CPUs: one gloo collective of 8 ranks costs 4 to 6 ms on 2 cores even if it carries next to nothing, and
copies through TCP what it carries; a barrier costs little beyond the ranks' turns on the cores. What is left is the
host's time for some 40 small torch operations a rank, 4 ranks a core.
Measured on CPU ranks, speedup over the reference in the geometric mean: 5 to 7.5 (docs/measurements.md).
Tried and lost on CPU ranks:
- the two collectives on gloo: 1.2, and slower than the reference at the larger shapes, where padding costs most
  (through NCCL, 4x H200, official benchmarks by the host's clock: 1.7 1.6 1.7 1.6 1.7, 2026-11-20);
- weights rounded to fp16, which saves a conversion (6.3 and 7.5): wrong. The error is a whole row's and does not
  average out over it; strict caught it, in one of about a thousand timed calls;
- outputs left in float32: one rounding less, but twice the bytes to read back, and no faster (5.5 and 5.4 where fp16
  gave 6.0 and 5.3);
- embedding_bag for the experts' fetch and product as well, weights in two fp16 parts: 5.8 and 5.6 beside the same;
- outputs put into the blocks of the ranks that they return to, an eighth of the memory: 15 to 20 % more CPU time.

Legend: T this rank's tokens, C max_num_tokens, k experts per token (K: rounded up to a power of 2), H hidden
dimension; S source ranks, W expert ranks or all ranks; Q the tokens of all ranks that have experts on this one. A
unit is a piece of one of a rank's C tokens; P a piece's elements, R pieces awaited at a time, in the kernel S pieces
sent at a time. SCxH: the first two flattened.
"""

from functools import cache
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from common.heap import LINE_BYTES, Heap, lay_out, open_heap
from common.launch import Launcher
from common.tuning import Chip, chip_of, nearest, room
from kernel import a2a_kernel
from task import MoEConfig, RankTestData, input_t, output_t
from torch import Tensor
from torch.nn.functional import embedding_bag, pad
from tuning import TABLE, Row

all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # since, before torch 2.13

_arrays: dict[tuple[object, ...], list[Tensor]] = {}  # those that CPU ranks share, by where and what they are


def custom_kernel(data: input_t) -> output_t:
    config, mine, rank, world_size = data
    heap = open_heap(mine.x.device)
    if heap is None:
        return through_collectives(config, mine, rank, world_size)
    if not heap.kernels:
        return in_shared_memory(config, mine, heap)
    experts, top_k = config.num_experts, config.experts_per_token
    plan = plan_of(heap.device, world_size, experts, top_k, config.hidden_dim, config.max_num_tokens)
    return as_planned(config, mine, heap, plan)


# ---- one kernel ------------------------------------------------------------------------------------------------------

launch = Launcher(a2a_kernel)


class Plan(NamedTuple):
    """Everything about a call that depends on shapes only."""

    launch: Launcher
    programs: int
    nbytes: int  # of the heap
    flags: int  # of a call; those of the next must be others
    returns: int  # where the outputs come back, bytes behind where the pieces come in
    constants: dict[str, Any]
    options: dict[str, Any]

    def example_arguments(self) -> tuple[torch.dtype | int, ...]:
        """What its kernel is called with, for compiling it: in place of tensors their dtypes."""
        tensors = (torch.float16, torch.int32, torch.float32, torch.float16, torch.int64)
        num_tokens, capacity, rank, epoch = 3, 4, 1, 2
        first_flag, arrivals, returns = 1 << 7, 1 << 20, 1 << 24
        return (*tensors, num_tokens, capacity, rank, epoch, first_flag, arrivals, returns)


@cache
def plan_of(
    device: torch.device, world_size: int, num_experts: int, top_k: int, hidden_dim: int, capacity: int
) -> Plan:
    chip = chip_of(device)
    row = nearest(TABLE, chip.name, (hidden_dim, capacity, world_size))
    return make_plan(row, chip, world_size, num_experts, top_k, hidden_dim, capacity)


def make_plan(
    row: Row, chip: Chip, world_size: int, num_experts: int, top_k: int, hidden_dim: int, capacity: int
) -> Plan:
    pieces = -(-hidden_dim // row.piece)
    piece = -(-hidden_dim // pieces // 8) * 8  # elements; 16 bytes is what a thread moves at a time
    units, amd = capacity * pieces, chip.name.startswith("gfx")
    (_, returns), nbytes = lay_out(*[(torch.float16, (world_size, units, piece))] * 2)
    constants = {
        "WORLD": world_size,
        "PER_RANK": num_experts // world_size,
        "TOP_K": top_k,
        "HIDDEN": hidden_dim,
        "PIECES": pieces,
        "PIECE": piece,
        "SENDS": row.sends,
        "ROWS": row.rows,
        "DIES": chip.dies,
        "AMD": amd,
    }
    needed = -(-units * (world_size + 1) // chip.dies) * chip.dies  # with more, some would have nothing to do
    programs = min(chip.multiprocessors * row.per_sm, needed)
    flags = 2 * world_size * units
    return Plan(
        launch,
        programs,
        nbytes,
        flags,
        returns,
        constants,
        {"num_warps": row.warps, **room(chip, row.per_sm, row.warps)},
    )


def as_planned(config: MoEConfig, mine: RankTestData, heap: Heap, plan: Plan) -> Tensor:
    output_TH = torch.empty_like(mine.x, dtype=config.out_dtype)
    turn = heap.turn(plan.nbytes, plan.flags)
    tensors = (mine.x, mine.indices, mine.weights, output_TH, heap.pointers)
    place = (turn.flags // LINE_BYTES, turn.offset, turn.offset + plan.returns)
    numbers = (mine.num_tokens, config.max_num_tokens, heap.rank, turn.epoch, *place)
    plan.launch(plan.programs, tensors, numbers, plan.constants, plan.options)
    return output_TH


# ---- CPU ranks -------------------------------------------------------------------------------------------------------


def in_shared_memory(config: MoEConfig, mine: RankTestData, heap: Heap) -> Tensor:
    """Every rank reads what it needs where the others put it: in rank 0's block."""
    rank, world_size, capacity, tokens = heap.rank, heap.world_size, config.max_num_tokens, mine.num_tokens
    rows = world_size * capacity
    layout = (
        (torch.int64, (world_size, world_size)),  # how many tokens of S have experts on W
        (torch.float32, (world_size, world_size, capacity)),
        (config.in_dtype, (rows, config.hidden_dim)),
        (config.in_dtype, (world_size * rows, config.hidden_dim)),  # a rank's outputs together, source after source
    )
    offsets, nbytes = lay_out(*layout)
    try:
        turn = heap.turn(nbytes)
    except MemoryError:  # on every rank
        return through_collectives(config, mine, rank, world_size)
    key = (heap.blocks[0].data_ptr(), turn.offset, layout)
    if key not in _arrays:
        _arrays[key] = [heap.view(0, turn.offset + at, *what) for at, what in zip(offsets, layout, strict=True)]
    reached_SW, scale_WSC, x_SCxH, y_WxH = _arrays[key]

    # Dispatch: lay the tokens out.
    scale_CW = scales(config, mine, world_size)
    needed_TW = scale_CW[:tokens] != 0
    place_TW = needed_TW.cumsum(0)
    reached_SW[rank] = needed_TW.sum(0)
    scale_WSC[:, rank] = scale_CW.T
    x_SCxH[rank * capacity : rank * capacity + tokens] = mine.x
    heap.barrier()  # for every rank's tokens

    # This rank's experts: fetch the tokens that have some here, multiply, sum over the experts of a token.
    scale_SC = scale_WSC[rank].flatten()
    (here_Q,) = scale_SC.nonzero(as_tuple=True)
    first = rank * rows
    y_QH = torch.index_select(x_SCxH, 0, here_Q, out=y_WxH[first : first + len(here_Q)])
    y_QH.copy_(y_QH.float().mul_((scale_SC[here_Q] * (1 + rank))[:, None]))  # in float32, rounded once

    # Where the outputs for this rank's tokens lie at each rank: behind those for the sources before it.
    place_TW += reached_SW[:rank].sum(0) + torch.arange(-1, len(y_WxH) - 1, rows)
    count_T = needed_TW.sum(1)
    heap.barrier()  # for every rank's outputs

    # Combine: per token the sum over its ranks, in float32, rounded once.
    output_TH = embedding_bag(place_TW[needed_TW], y_WxH, count_T.cumsum(0) - count_T, mode="sum")
    return output_TH.to(config.out_dtype)


def scales(config: MoEConfig, mine: RankTestData, world_size: int) -> Tensor:
    """By what each rank has to multiply a token, but for its experts' own factor, [C, W]. 0: it has no business there.

    So has a token whose weights there are 0.
    """
    scale_CW = mine.weights.new_zeros(config.max_num_tokens, world_size)
    ranks_Tk = mine.indices.long() // (config.num_experts // world_size)
    scale_CW[: mine.num_tokens].scatter_add_(1, ranks_Tk, mine.weights)
    return scale_CW


def through_collectives(config: MoEConfig, mine: RankTestData, rank: int, world_size: int) -> Tensor:
    """Two collectives of fixed size: all ranks get all tokens, and each token's W partial sums return."""
    scale_CW = scales(config, mine, world_size)
    capacity, hidden = config.max_num_tokens, config.hidden_dim
    x_CH = mine.x.new_zeros(capacity, hidden)
    x_CH[: mine.num_tokens] = mine.x
    even_x = pad(x_CH.flatten(), (0, x_CH.numel() % 2))  # so that the next rank's float32 numbers are aligned
    sent = torch.cat([scale_CW.flatten().view(torch.uint8), even_x.view(torch.uint8)])
    received = sent.new_empty(world_size, len(sent))
    all_gather_single(received.flatten(), sent)

    scale_bytes = scale_CW.nbytes
    scale_SCW = received[:, :scale_bytes].view(torch.float32).unflatten(1, (capacity, world_size))
    x_SCH = received[:, scale_bytes : scale_bytes + x_CH.nbytes].view(config.in_dtype).unflatten(1, (capacity, hidden))
    y_SCH = torch.empty_like(x_SCH, memory_format=torch.contiguous_format)
    torch.mul(x_SCH, scale_SCW[:, :, rank, None] * (1 + rank), out=y_SCH)  # in float32, rounded once

    y_WCH = torch.empty_like(y_SCH)
    dist.all_to_all_single(y_WCH, y_SCH)
    return y_WCH[:, : mine.num_tokens].sum(0, dtype=torch.float32).to(config.out_dtype)
