"""moe as one kernel: tokens go straight into the memory of their experts' ranks, which answer each by itself.

The way of a2a's kernel (a heap that all ranks map, a flag a token and rank, flags that say "nothing for you", no
counts), with experts that are matrices. A program does its share of three phases one after the other:
- send: a token, its experts and weights are written to all ranks that need them, its own among them, and flagged to
  all ranks;
- answer: a token that came is multiplied by the matrices of its experts here, one after the other, in float32; their
  weighted sum is rounded once, written to the token's rank, and flagged there. So one row a (token, rank) comes back;
- combine: the rows of a token's ranks are added up in float32 and rounded once.
All programs fit on the chip at once, and each ends a phase before it waits in the next.

When it should win (it has been interpreted and compiled, and never been timed): where there are few tokens an expert,
as then the time of a call is latency: collectives cost three exchanges, a sort and a wait of the host. Each token reads
its experts' matrices by itself, 4 I H bytes an expert, out of the L2: with many tokens an expert a grouped product,
which reads them once a tile of tokens, will be faster. In the largest official shape, 8 ranks, a rank answers some 1024
pairs, 470 MB.
Skewed routing: a place belongs to a source rank and one of its C tokens, and not to an expert, so there is one for
every token wherever all of them go (T < C). A rank without tokens sends flags alone. No loop's end depends on the data.

CPU ranks lay tokens out in memory that all map, with a barrier after dispatch and one before combine; an expert's
tokens are multiplied together. Where memory cannot be shared it is two collectives of fixed size.
Why it wins on CPUs: see a2a. One gloo collective of 8 ranks costs 4 to 6 ms on 2 cores, and the reference needs three.

Legend: T this rank's tokens, C max_num_tokens, k experts per token (K: rounded up to a power of 2), H hidden
dimension, I intermediate dimension; L experts a rank; S source ranks, W all ranks; N the tokens of all ranks, in their
places, S C; Q the (token, expert) pairs whose expert is this rank's, B the same padded; P elements of a row that a
program has at a time.
"""

from functools import cache
from math import prod
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from common.heap import LINE_BYTES, Heap, lay_out, open_heap
from common.launch import Launcher
from common.signals import flag_pointers, signal, wait
from common.tokens import ranks_of, rows_at, turned, wait_for_pieces
from common.tuning import Chip, chip_of, nearest
from task import MoEConfig, RankTestData, input_t, output_t
from torch import Tensor
from torch.nn.functional import embedding_bag
from tuning import TABLE, Row

all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # since, before torch 2.13

REGISTERS = 65536  # of a multiprocessor, 32 bits each; NVIDIA CUDA C++ Programming Guide, compute capabilities
SIMDS = 4  # of a compute unit; AMD CDNA 3 white paper
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


@triton.jit
def notes_at(blocks, offset, place, TOP_K: tl.constexpr):
    """Where the experts of a token lie, int32 [k], and behind them its weights, float32 [k]."""
    return tl.cast(blocks + offset, tl.pointer_type(tl.int32)) + place * (2 * TOP_K)


@triton.jit
def send(
    x,
    indices,
    weights,
    blocks,
    program,
    programs,
    num_tokens,
    capacity,
    rank,
    epoch,
    first_flag,
    arrivals,
    notes,
    WORLD: tl.constexpr,
    PER_RANK: tl.constexpr,
    TOP_K: tl.constexpr,
    HIDDEN: tl.constexpr,
    ROW: tl.constexpr,
    BLOCK: tl.constexpr,
    AMD: tl.constexpr,
):
    """This program's share of the tokens, to all ranks that need them; and to all ranks that there is no more."""
    peers_W = tl.arange(0, triton.next_power_of_2(WORLD))
    blocks_W = tl.load(blocks + peers_W, mask=peers_W < WORLD, other=0)
    choices_1K = tl.arange(0, triton.next_power_of_2(TOP_K))[None, :]
    columns_1P = tl.arange(0, BLOCK)[None, :]
    for token in range(program, capacity, programs):
        place = rank * capacity + token
        needed_W = tl.zeros_like(peers_W)
        if token < num_tokens:
            ranks_K = ranks_of(indices, token, PER_RANK, TOP_K)
            needed_W = tl.max((ranks_K[None, :] == peers_W[:, None]).to(tl.int32), 1)
            to_W1 = (needed_W > 0)[:, None]
            mask_WK = to_W1 & (choices_1K < TOP_K)
            experts_1K = tl.load(indices + token * TOP_K + choices_1K, mask=choices_1K < TOP_K, other=0)
            weights_1K = tl.load(weights + token * TOP_K + choices_1K, mask=choices_1K < TOP_K, other=0.0)
            notes_WK = notes_at(blocks_W, notes, place, TOP_K)[:, None] + choices_1K
            tl.store(notes_WK, tl.broadcast_to(experts_1K, notes_WK.shape), mask=mask_WK)
            bits_1K = weights_1K.to(tl.int32, bitcast=True)
            tl.store(notes_WK + TOP_K, tl.broadcast_to(bits_1K, notes_WK.shape), mask=mask_WK)
            for first in range(0, HIDDEN, BLOCK):
                inside_1P = first + columns_1P < HIDDEN
                x_1P = tl.load(x + token * HIDDEN + first + columns_1P, mask=inside_1P)
                there_WP = rows_at(blocks_W, arrivals)[:, None] + place * ROW + first + columns_1P
                tl.store(there_WP, tl.broadcast_to(x_1P, there_WP.shape), mask=inside_1P & to_W1)
        signal(flag_pointers(blocks_W, first_flag + place), epoch + 1 - needed_W, peers_W < WORLD, AMD)


@triton.jit
def intermediates(
    x_row, up, experts_K, weights_K, TOP_K, HIDDEN: tl.constexpr, INTER: tl.constexpr, BLOCK: tl.constexpr
):
    """w (up @ x) of a token with each of its experts, float32 [K, I]; 0 for experts below 0, which are others'."""
    choices_K = tl.arange(0, experts_K.shape[0])
    columns_1P = tl.arange(0, BLOCK)[None, :]
    inner_I1 = tl.arange(0, INTER)[:, None]
    a_KI = tl.zeros((experts_K.shape[0], INTER), tl.float32)
    for choice in range(TOP_K):
        expert = tl.sum(tl.where(choices_K == choice, experts_K, 0))
        if expert >= 0:
            weight = tl.sum(tl.where(choices_K == choice, weights_K, 0.0))
            sums_IP = tl.zeros((INTER, BLOCK), tl.float32)
            for first in range(0, HIDDEN, BLOCK):
                inside_1P = first + columns_1P < HIDDEN
                x_1P = tl.load(x_row + first + columns_1P, mask=inside_1P, other=0.0)
                rows_I1 = expert.to(tl.int64) * (INTER * HIDDEN) + inner_I1 * HIDDEN
                up_IP = tl.load(up + rows_I1 + first + columns_1P, mask=inside_1P, other=0.0)
                sums_IP += up_IP.to(tl.float32) * x_1P.to(tl.float32)
            a_1I = (tl.sum(sums_IP, 1) * weight)[None, :]
            a_KI = tl.where(choices_K[:, None] == choice, a_1I, a_KI)
    return a_KI


@triton.jit
def answer(
    up,
    down,
    blocks,
    own_block,
    program,
    programs,
    capacity,
    rank,
    epoch,
    first_flag,
    arrivals,
    notes,
    returns,
    WORLD: tl.constexpr,
    PER_RANK: tl.constexpr,
    TOP_K: tl.constexpr,
    HIDDEN: tl.constexpr,
    INTER: tl.constexpr,
    ROW: tl.constexpr,
    BLOCK: tl.constexpr,
    AMD: tl.constexpr,
):
    """This program's share of what all ranks send here, through the experts and back. This rank's own come last."""
    choices_K = tl.arange(0, triton.next_power_of_2(TOP_K))
    columns_P = tl.arange(0, BLOCK)
    inner_1I = tl.arange(0, INTER)[None, :]
    one = tl.arange(0, 1)
    for item in range(program, capacity * WORLD, programs):
        token = item // WORLD
        source = (rank + 1 + item % WORLD) % WORLD
        place = source * capacity + token
        here_1 = wait_for_pieces(flag_pointers(own_block, first_flag + place + one), epoch, one == 0)
        if tl.sum(here_1.to(tl.int32)) > 0:
            noted_K = notes_at(own_block, notes, place, TOP_K) + choices_K
            experts_K = tl.load(noted_K, mask=choices_K < TOP_K, other=-1)
            weights_K = tl.load(noted_K + TOP_K, mask=choices_K < TOP_K, other=0).to(tl.float32, bitcast=True)
            experts_K = tl.where(experts_K // PER_RANK == rank, experts_K - rank * PER_RANK, -1)
            x_row = rows_at(own_block, arrivals) + place * ROW
            a_KI = intermediates(x_row, up, experts_K, weights_K, TOP_K, HIDDEN, INTER, BLOCK)
            source_block = tl.load(blocks + source)
            back = rank * capacity + token
            for first in range(0, HIDDEN, BLOCK):
                inside_P = first + columns_P < HIDDEN
                y_P = tl.zeros((BLOCK,), tl.float32)
                for choice in range(TOP_K):
                    expert = tl.sum(tl.where(choices_K == choice, experts_K, 0))
                    if expert >= 0:
                        a_I = tl.sum(tl.where(choices_K[:, None] == choice, a_KI, 0.0), 0)
                        rows_P1 = expert.to(tl.int64) * (HIDDEN * INTER) + (first + columns_P)[:, None] * INTER
                        down_PI = tl.load(down + rows_P1 + inner_1I, mask=inside_P[:, None], other=0.0)
                        y_P += tl.sum(down_PI.to(tl.float32) * a_I[None, :], 1)
                tl.store(
                    rows_at(source_block, returns) + back * ROW + first + columns_P, y_P.to(tl.float16), mask=inside_P
                )
            signal(flag_pointers(source_block, first_flag + WORLD * capacity + back + one), epoch, one == 0, AMD)


@triton.jit
def combine(
    indices,
    out,
    own_block,
    program,
    programs,
    num_tokens,
    capacity,
    epoch,
    first_flag,
    returns,
    WORLD: tl.constexpr,
    PER_RANK: tl.constexpr,
    TOP_K: tl.constexpr,
    HIDDEN: tl.constexpr,
    ROW: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """This program's share of the output, in pieces of a row."""
    peers_W = tl.arange(0, triton.next_power_of_2(WORLD))
    columns_1P = tl.arange(0, BLOCK)[None, :]
    pieces = tl.cdiv(HIDDEN, BLOCK)
    for item in range(program, num_tokens * pieces, programs):
        token = item // pieces
        first = item % pieces * BLOCK
        ranks_K = ranks_of(indices, token, PER_RANK, TOP_K)
        awaited_W = tl.max((ranks_K[None, :] == peers_W[:, None]).to(tl.int32), 1) > 0
        places_W = peers_W * capacity + token
        wait(flag_pointers(own_block, first_flag + WORLD * capacity + places_W), epoch, awaited_W)
        inside_1P = first + columns_1P < HIDDEN
        rows_WP = rows_at(own_block, returns) + places_W[:, None] * ROW + first + columns_1P
        y_WP = tl.load(rows_WP, mask=inside_1P & awaited_W[:, None], other=0.0)
        sum_1P = tl.sum(y_WP.to(tl.float32), 0, keep_dims=True)
        tl.store(out + token * HIDDEN + first + columns_1P, sum_1P.to(tl.float16), mask=inside_1P)


@triton.jit(do_not_specialize=["num_tokens", "capacity", "rank", "epoch", "first_flag", "arrivals", "notes", "returns"])
def moe_kernel(
    x,  # fp16 [T, H]
    indices,  # int32 [T, k]
    weights,  # float32 [T, k]
    up,  # fp16 [L, I, H]
    down,  # fp16 [L, H, I]
    out,  # fp16 [T, H]
    blocks,  # int64 [W], the addresses of all ranks' blocks of the heap
    num_tokens,
    capacity,  # C
    rank,
    epoch,
    first_flag,  # of those of this call: [2, W, C], tokens that came from W and rows that came back from W
    arrivals,  # where in a block the tokens come in, bytes: fp16 [W, C, ROW]
    notes,  # likewise their experts and weights: int32 [W, C, 2, k]
    returns,  # likewise where the rows come back: fp16 [W, C, ROW]
    WORLD: tl.constexpr,
    PER_RANK: tl.constexpr,  # experts
    TOP_K: tl.constexpr,
    HIDDEN: tl.constexpr,
    INTER: tl.constexpr,
    ROW: tl.constexpr,
    BLOCK: tl.constexpr,
    DIES: tl.constexpr,
    AMD: tl.constexpr,
):
    """Every rank waits for the flags of all tokens of all ranks, so that none finishes before all have begun, which is
    the heap's condition. Flags are at `epoch` where something has come, at `epoch` + 1 where nothing will."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    own_block = tl.load(blocks + rank)
    send(
        x,
        indices,
        weights,
        blocks,
        program,
        programs,
        num_tokens,
        capacity,
        rank,
        epoch,
        first_flag,
        arrivals,
        notes,
        WORLD,
        PER_RANK,
        TOP_K,
        HIDDEN,
        ROW,
        BLOCK,
        AMD,
    )
    answer(
        up,
        down,
        blocks,
        own_block,
        turned(program, programs, capacity, DIES),
        programs,
        capacity,
        rank,
        epoch,
        first_flag,
        arrivals,
        notes,
        returns,
        WORLD,
        PER_RANK,
        TOP_K,
        HIDDEN,
        INTER,
        ROW,
        BLOCK,
        AMD,
    )
    combine(
        indices,
        out,
        own_block,
        turned(program, programs, capacity * (WORLD + 1), DIES),
        programs,
        num_tokens,
        capacity,
        epoch,
        first_flag,
        returns,
        WORLD,
        PER_RANK,
        TOP_K,
        HIDDEN,
        ROW,
        BLOCK,
    )


launch = Launcher(moe_kernel)


class Plan(NamedTuple):
    """Everything about a call that depends on shapes only."""

    launch: Launcher
    programs: int
    nbytes: int  # of the heap
    flags: int  # of a call; those of the next must be others
    offsets: tuple[int, ...]  # of arrivals, notes and returns, bytes
    constants: dict[str, Any]
    options: dict[str, Any]

    def example_arguments(self) -> tuple[torch.dtype | int, ...]:
        """What its kernel is called with, for compiling it: in place of tensors their dtypes."""
        half = torch.float16
        tensors = (half, torch.int32, torch.float32, half, half, half, torch.int64)
        num_tokens, capacity, rank, epoch, first_flag = 3, 4, 1, 2, 1 << 7
        return (*tensors, num_tokens, capacity, rank, epoch, first_flag, 1 << 20, 1 << 22, 1 << 24)


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
    row_elements = -(-hidden_dim // 8) * 8  # 16 bytes is what a thread moves at a time
    places, amd = (world_size, capacity), chip.name.startswith("gfx")
    rows = (torch.float16, (*places, row_elements))
    offsets, nbytes = lay_out(rows, (torch.int32, (*places, 2, top_k)), rows)
    constants = {
        "WORLD": world_size,
        "PER_RANK": num_experts // world_size,
        "TOP_K": top_k,
        "HIDDEN": hidden_dim,
        "INTER": intermediate_dim,
        "ROW": row_elements,
        "BLOCK": row.block,
        "DIES": chip.dies,
        "AMD": amd,
    }
    # Programs wait for each other, so all must fit at once: the compiler is told to leave room for them.
    room = {"waves_per_eu": -(-row.per_sm * row.warps // SIMDS)}
    if not amd:
        room = {"maxnreg": min(255, REGISTERS // (row.per_sm * row.warps * 32) // 8 * 8)}
    needed = -(-capacity * (world_size + 1) // chip.dies) * chip.dies  # with more, some would have nothing to do
    programs = min(chip.multiprocessors * row.per_sm, needed)
    flags = 2 * world_size * capacity
    return Plan(launch, programs, nbytes, flags, tuple(offsets), constants, {"num_warps": row.warps, **room})


def as_planned(config: MoEConfig, mine: RankTestData, heap: Heap, plan: Plan) -> Tensor:
    output_TH = torch.empty_like(mine.x, dtype=config.out_dtype)
    turn = heap.turn(plan.nbytes, plan.flags)
    tensors = (mine.x, mine.indices, mine.weights, mine.up, mine.down, output_TH, heap.pointers)
    places = (turn.flags // LINE_BYTES, *(turn.offset + offset for offset in plan.offsets))
    numbers = (mine.num_tokens, config.max_num_tokens, heap.rank, turn.epoch, *places)
    plan.launch(plan.programs, tensors, numbers, plan.constants, plan.options)
    return output_TH


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
