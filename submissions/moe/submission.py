"""moe as one kernel: tokens go straight into the memory of their experts' ranks, which multiply all of an expert's
tokens together.

The way of a2a's kernel (a heap that all ranks map, flags for what has come, no wait of the host), with experts that are
matrices. A program does its share of these phases one after the other (kernel.py, partials.py):
- tell: each rank sends its routing, experts and weights of all its tokens, to all ranks;
- send: a token is written in parts of H to all ranks that need it, each part with a flag of its own;
- up: a unit, one part of one expert's `up`, finds the expert's tokens in all ranks' routing, waits for its part of
  them, multiplies blocks of them on the matrix units, and leaves its sums over H, float32, to the expert's other units;
- down: the same units, now parts of `down`, add these sums up, multiply, round, and write one row a (token, expert)
  pair, to the token's rank or, with partial sums, to this rank's memory;
- add up (with partial sums alone): the rows that a rank's experts made of another rank's token are added up in float32,
  rounded once, and written to the token's rank as one row;
- combine: the rows of a token's experts, or those of its own rank's experts and one from each other rank that has some,
  are added up in float32 and rounded once.
All programs fit on the chip at once, and each ends a phase before it waits in the next. The phases are dealt out one
behind the other: where there is little to do, those that multiply are waiting before anything has come. Since units are
fixed, programs ask the L2 for their matrices while what they have sent is on its way.

When it should win (compiled and interpreted; see docs/kernels.md for what was measured): a unit reads its part of the
matrices once for each block of tokens, where a kernel that takes tokens one by one reads them once for each: 470 MB in
the largest official shape, the matrices being 59 MB on 2 ranks. Parts of H give all multiprocessors work where experts
are few. What it costs: a wait between up and down for the other units of the expert. Without partial sums k rows a
token come back where W would do: in the largest official shape on 2 ranks 7 MB cross the link for 2, 16 us more at 340
GB/s. With them programs wait once more, and rows are written to and read from the L2 once more. On 2 ranks they pay at
the three largest official shapes (docs/kernels-log.md).
Skewed routing: a place belongs to a source rank and one of its C tokens, and not to an expert, so there is one for
every token wherever all of them go (T < C). A rank without tokens sends its routing alone. An expert's units go through
as many blocks of tokens as it has.

CPU ranks lay tokens out in memory that all map, with a barrier after dispatch and one before combine; an expert's
tokens are multiplied together. Where memory cannot be shared it is two collectives of fixed size.
Why it wins on CPUs: see a2a. One gloo collective of 8 ranks costs 4 to 6 ms on 2 cores, and the reference needs three.

Legend: T this rank's tokens, C max_num_tokens, k experts per token (K: rounded up to a power of 2), H hidden
dimension, I intermediate dimension; L experts a rank; W all ranks; N the tokens of all ranks, in their places, W C; Q
the (token, expert) pairs whose expert is this rank's, B the same padded.
"""

from functools import cache
from math import prod
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from common.heap import LINE_BYTES, Heap, lay_out, open_heap
from common.launch import Launcher
from common.tuning import Chip, chip_of, nearest, room
from kernel import COPIES, moe_kernel
from task import MoEConfig, RankTestData, input_t, output_t
from torch import Tensor
from torch.nn.functional import embedding_bag
from tuning import TABLE, Row

all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # since, before torch 2.13

SUMS, TERMS = 512, 2048  # float32 and fp16 numbers that a warp loads at a time
MOST_BYTES = 1 << 28  # of all pairs' rows on a rank; the heap's places are 32-bit numbers
TOLD, SCANNED = 512, 512  # pairs, and places of the routing table, that a program reads at a time
MOST_SENDS = 4  # parts of tokens whose flags share a fence
NOBODY = -1  # in place of an expert's number, where there is no token

_arrays: dict[tuple[object, ...], list[Tensor]] = {}  # those that CPU ranks share, by where and what they are
_kept_rows: dict[tuple[object, ...], Tensor] = {}  # by what for, device and dtype


def custom_kernel(data: input_t) -> output_t:
    config, mine, rank, world_size = data
    heap = open_heap(mine.x.device)
    if heap is None:
        return through_collectives(config, mine, rank, world_size)
    if not heap.kernels:
        return in_shared_memory(config, mine, heap)
    shape = (config.num_experts, config.experts_per_token, config.hidden_dim, config.max_num_tokens)
    return as_planned(config, mine, heap, plan_of(heap.device, world_size, *shape, config.intermediate_dim))


# ---- one kernel ------------------------------------------------------------------------------------------------------

launch = Launcher(moe_kernel)


class Plan(NamedTuple):
    """Everything about a call that depends on shapes only."""

    launch: Launcher
    programs: int
    nbytes: int  # of the heap
    flags: int  # of a call; those of the next must be others
    offsets: tuple[int, ...]  # of arrivals, routing, lists, sums and returns, bytes
    constants: dict[str, Any]
    options: dict[str, Any]

    def example_arguments(self) -> tuple[torch.dtype | int, ...]:
        """What its kernel is called with, for compiling it: in place of tensors their dtypes."""
        half = torch.float16
        tensors = (half, torch.int32, torch.float32, half, half, half, torch.int64)
        num_tokens, capacity, rank, epoch, first_flag = 3, 4, 1, 2, 1 << 7
        return (*tensors, num_tokens, capacity, rank, epoch, first_flag, *(1 << power for power in range(20, 25)))


@cache
def plan_of(
    device: torch.device,
    world_size: int,
    num_experts: int,
    top_k: int,
    hidden_dim: int,
    capacity: int,
    intermediate_dim: int,
) -> Plan:
    chip = chip_of(device)
    row = nearest(TABLE, chip.name, (hidden_dim, capacity, world_size))
    return make_plan(row, chip, world_size, num_experts, top_k, hidden_dim, capacity, intermediate_dim)


def make_plan(
    row: Row,
    chip: Chip,
    world_size: int,
    num_experts: int,
    top_k: int,
    hidden_dim: int,
    capacity: int,
    intermediate_dim: int,
) -> Plan:
    slice_ = -(-hidden_dim // (row.split * row.block)) * row.block
    split, per_rank, pairs = -(-hidden_dim // slice_), num_experts // world_size, world_size * capacity * top_k
    amd = chip.name.startswith("gfx")
    told = min(power_of_2(capacity * top_k), TOLD)
    portions = -(-capacity * top_k // told)
    items = world_size * portions + (2 * capacity + per_rank) * split
    partials, returned, terms = 0, capacity * top_k, TERMS
    if row.partial_sums and min(world_size, top_k) > 1 and 2 * pairs * hidden_dim <= MOST_BYTES:
        added = (world_size - 1) * capacity * split
        items, returned = items + added, pairs + world_size * capacity
        terms = 2 * TERMS if world_size == 2 else TERMS  # several other ranks' rows take registers too
        partials = 1 if added <= chip.multiprocessors * row.per_sm else 2  # at a time, where a program has several
    needed = -(-items // chip.dies) * chip.dies  # with more, some would have nothing to do
    programs = min(chip.multiprocessors * row.per_sm, needed)
    offsets, nbytes = lay_out(
        (torch.float16, (world_size * capacity, split, slice_)),
        (torch.int32, (2, pairs)),
        (torch.int32, (per_rank, split, 1 + world_size * capacity)),
        (torch.float32, (pairs, split, intermediate_dim)),
        (torch.float16, (returned, split, slice_)),
    )
    constants = {
        "WORLD": world_size,
        "PER_RANK": per_rank,
        "TOP_K": top_k,
        "HIDDEN": hidden_dim,
        "INTER": intermediate_dim,
        "SPLIT": split,
        "SLICE": slice_,
        "TOKENS": row.tokens,
        "BLOCK": row.block,
        "TOGETHER": min(power_of_2(split), max(1, SUMS * row.warps // (row.tokens * intermediate_dim))),
        "COLUMNS": min(power_of_2(slice_), max(row.block, terms * row.warps // (max(1, partials) * power_of_2(top_k)))),
        "PARTIALS": partials,
        "PORTIONS": portions,
        "TOLD": told,
        "SENDS": min(power_of_2(-(-capacity * split // programs)), MOST_SENDS),
        "SCANNED": min(power_of_2(world_size * capacity), SCANNED),
        "REQUEST": row.request if hidden_dim % 32 == 0 and chip.name.startswith("sm_") else 0,  # of 16 bytes each
        "DIES": chip.dies,
        "AMD": amd,
    }
    flags = world_size * portions * COPIES.value + (world_size * capacity + per_rank + returned) * split
    options = {"num_warps": row.warps, "num_stages": row.stages, **room(chip, row.per_sm, row.warps)}
    return Plan(launch, programs, nbytes, flags, tuple(offsets), constants, options)


def as_planned(config: MoEConfig, mine: RankTestData, heap: Heap, plan: Plan) -> Tensor:
    output_TH = torch.empty_like(mine.x, dtype=config.out_dtype)
    turn = heap.turn(plan.nbytes, plan.flags)
    tensors = (mine.x, mine.indices, mine.weights, mine.up, mine.down, output_TH, heap.pointers)
    places = (turn.flags // LINE_BYTES, *(turn.offset + offset for offset in plan.offsets))
    numbers = (mine.num_tokens, config.max_num_tokens, heap.rank, turn.epoch, *places)
    plan.launch(plan.programs, tensors, numbers, plan.constants, plan.options)
    return output_TH


def power_of_2(number: int) -> int:
    """The least that is no less."""
    return 1 << (number - 1).bit_length()


# ---- CPU ranks -------------------------------------------------------------------------------------------------------


def in_shared_memory(config: MoEConfig, mine: RankTestData, heap: Heap) -> Tensor:
    """Every rank reads what it needs where the others put it: in rank 0's block."""
    rank, capacity, tokens, top_k = heap.rank, config.max_num_tokens, mine.num_tokens, config.experts_per_token
    places = heap.world_size * capacity
    layout = (
        (torch.int32, (places, top_k)),
        (torch.float32, (places, top_k)),
        (config.in_dtype, (places, config.hidden_dim)),
        (config.out_dtype, (places * top_k + heap.world_size, config.hidden_dim)),  # of each (token, expert) pair
    )
    offsets, nbytes = lay_out(*layout)
    try:
        turn = heap.turn(nbytes)
    except MemoryError:  # on every rank
        return through_collectives(config, mine, rank, heap.world_size)
    key = (heap.blocks[0].data_ptr(), turn.offset, layout)
    if key not in _arrays:
        _arrays[key] = [heap.view(0, turn.offset + at, *what) for at, what in zip(offsets, layout, strict=True)]
    indices_Nk, weights_Nk, x_NH, y_NkxH = _arrays[key]

    # Dispatch: lay the tokens out.
    first, end = rank * capacity, rank * capacity + tokens
    indices_Nk[first:end] = mine.indices
    indices_Nk[end : first + capacity] = NOBODY
    weights_Nk[first:end] = mine.weights
    x_NH[first:end] = mine.x
    heap.barrier()  # for every rank's tokens

    pair_B, y_BH = answered(config, mine, rank, indices_Nk, weights_Nk, x_NH)
    pair_B[pair_B == places * top_k] += rank  # ranks have a row each for nothing
    y_NkxH.index_copy_(0, pair_B, scratch("out", y_BH, config.out_dtype, tuple(y_BH.shape)).copy_(y_BH))
    heap.barrier()  # for every rank's answers

    # Combine: per token the sum over its experts, in float32, rounded once.
    pairs_Tk = torch.arange(first * top_k, end * top_k).view(tokens, top_k)
    return embedding_bag(pairs_Tk, y_NkxH, mode="sum").to(config.out_dtype)


def answered(
    config: MoEConfig, mine: RankTestData, rank: int, indices_Nk: Tensor, weights_Nk: Tensor, x_NH: Tensor
) -> tuple[Tensor, Tensor]:
    """The numbers of the (token, expert) pairs that have an expert here, [B], and their weighted outputs, [B, H].

    All experts multiply at once, so each gets as many rows as the busiest has: B = L * most, at most L N. Rows that
    stand for nothing have the number of the pair behind the last. CPUs multiply in float32, as fp16 takes them several
    times as long; on GPUs w (up @ x) and each product are fp16.
    """
    places, top_k = indices_Nk.shape
    per_rank, hidden = len(mine.up), config.hidden_dim
    local_P = indices_Nk.flatten() - rank * per_rank
    (pair_Q,) = ((local_P >= 0) & (local_P < per_rank)).nonzero(as_tuple=True)
    expert_Q, order_Q = local_P[pair_Q].sort()
    load_L = expert_Q.bincount(minlength=per_rank)
    most = max(1, int(load_L.max()))
    first_L = torch.arange(0, per_rank * most, most, device=pair_Q.device) - (load_L.cumsum(0) - load_L)
    place_Q = torch.arange(len(pair_Q), device=pair_Q.device) + first_L[expert_Q]
    pair_B = pair_Q.new_full((per_rank * most,), places * top_k)
    pair_B[place_Q] = pair_Q[order_Q]

    known_B = pair_B.clamp(max=places * top_k - 1)
    weights_LB1 = weights_Nk.view(-1)[known_B].view(per_rank, most, 1)
    x_BH = scratch("rows", x_NH, x_NH.dtype, (len(pair_B), hidden))
    torch.index_select(x_NH, 0, known_B // top_k, out=x_BH)
    x_LBH, up_LIH, down_LHI = (wide(*one) for one in (("x", x_BH), ("up", mine.up), ("down", mine.down)))
    a_LBI = torch.bmm(x_LBH.view(per_rank, most, hidden), up_LIH.mT).mul_(weights_LB1)
    y_LBH = scratch("y", x_LBH, x_LBH.dtype, (per_rank, most, hidden))
    return pair_B, torch.bmm(a_LBI, down_LHI.mT, out=y_LBH).view(-1, hidden)


def wide(name: str, values: Tensor) -> Tensor:
    """Itself on GPUs; on CPUs a copy in float32, in memory of this name."""
    if values.device.type != "cpu":
        return values
    return scratch(name, values, torch.float32, tuple(values.shape)).copy_(values)


def scratch(name: str, like: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Memory that is used again in the next call: fresh megabytes would cost a page fault each 4 KiB."""
    made, count = _kept_rows.get((name, like.device, dtype)), prod(shape)
    if made is None or len(made) < count:
        made = _kept_rows[name, like.device, dtype] = like.new_empty(count, dtype=dtype)
    return made[:count].view(shape)


def through_collectives(config: MoEConfig, mine: RankTestData, rank: int, world_size: int) -> Tensor:
    """Two collectives of fixed size: all ranks get all tokens, and each token's W partial sums return."""
    capacity, hidden, top_k = config.max_num_tokens, config.hidden_dim, config.experts_per_token
    indices_Ck = mine.indices.new_full((capacity, top_k), NOBODY)
    weights_Ck = mine.weights.new_zeros(capacity, top_k)
    x_CH = mine.x.new_zeros(capacity, hidden + hidden % 2)  # even, so that the next rank's numbers are aligned
    for padded, rows in ((indices_Ck, mine.indices), (weights_Ck, mine.weights), (x_CH[:, :hidden], mine.x)):
        padded[: mine.num_tokens] = rows
    parts = [part.view(torch.uint8).view(capacity, -1) for part in (indices_Ck, weights_Ck, x_CH)]
    sent_CB = torch.cat(parts, 1)
    received_NB = sent_CB.new_empty(world_size * capacity, sent_CB.shape[1])
    all_gather_single(received_NB, sent_CB)

    indices_bytes, weights_bytes, x_bytes = received_NB.split([part.shape[1] for part in parts], 1)
    indices_Nk = indices_bytes.contiguous().view(torch.int32)
    weights_Nk = weights_bytes.contiguous().view(torch.float32)
    x_NH = x_bytes.contiguous().view(config.in_dtype)[:, :hidden]
    pair_B, y_BH = answered(config, mine, rank, indices_Nk, weights_Nk, x_NH)
    sums_NH = torch.zeros(world_size * capacity + 1, hidden, dtype=torch.float32, device=mine.x.device)
    y_NH = sums_NH.index_add_(0, pair_B // top_k, y_BH.float())[:-1].to(config.out_dtype)
    back_NH = torch.empty_like(y_NH)
    dist.all_to_all_single(back_NH, y_NH)
    back_WCH = back_NH.view(world_size, capacity, hidden)
    return back_WCH[:, : mine.num_tokens].sum(0, dtype=torch.float32).to(config.out_dtype)
