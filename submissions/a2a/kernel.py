"""a2a's kernel; submission.py says how it works, and what the dimensions are."""

import triton
import triton.language as tl
from common.signals import flag_pointers, signal, wait
from common.tokens import ranks_of, rows_at, turned, wait_for_pieces


@triton.jit
def send(
    x,
    indices,
    blocks,
    program,
    programs,
    num_tokens,
    units,
    rank,
    epoch,
    first_flag,
    arrivals,
    WORLD: tl.constexpr,
    PER_RANK: tl.constexpr,
    TOP_K: tl.constexpr,
    HIDDEN: tl.constexpr,
    PIECES: tl.constexpr,
    PIECE: tl.constexpr,
    SENDS: tl.constexpr,
    AMD: tl.constexpr,
):
    """This program's share of the tokens, to all ranks that need them; and to all ranks that there is no more. The
    flags of SENDS pieces have one fence, which waits until all of them have arrived."""
    peers_W = tl.arange(0, triton.next_power_of_2(WORLD))
    others_W = (peers_W < WORLD) & (peers_W != rank)
    blocks_W = tl.load(blocks + peers_W, mask=peers_W < WORLD, other=0)
    columns_1P = tl.arange(0, triton.next_power_of_2(PIECE))[None, :]
    sends_S1 = tl.arange(0, SENDS)[:, None]
    for next_unit in range(program, units, programs * SENDS):
        needed_SW = tl.zeros([SENDS, peers_W.shape[0]], tl.int32)
        for index in tl.static_range(SENDS):
            unit = next_unit + index * programs
            token = unit // PIECES
            first = unit % PIECES * PIECE
            if token < num_tokens:
                inside_1P = (columns_1P < PIECE) & (first + columns_1P < HIDDEN)
                x_1P = tl.load(x + token * HIDDEN + first + columns_1P, mask=inside_1P)
                ranks_K = ranks_of(indices, token, PER_RANK, TOP_K)
                needed_W = tl.max((ranks_K[None, :] == peers_W[:, None]).to(tl.int32), 1)
                there_WP = rows_at(blocks_W, arrivals)[:, None] + (rank * units + unit) * PIECE + columns_1P
                mask_WP = inside_1P & (others_W & (needed_W > 0))[:, None]
                tl.store(there_WP, tl.broadcast_to(x_1P, there_WP.shape), mask=mask_WP)
                needed_SW += tl.where(sends_S1 == index, needed_W[None, :], 0)
        units_S1 = next_unit + sends_S1 * programs
        flags_SW = flag_pointers(blocks_W[None, :], first_flag + rank * units + units_S1)
        signal(flags_SW, epoch + 1 - needed_SW, others_W[None, :] & (units_S1 < units), AMD)


@triton.jit
def answer(
    blocks,
    own_block,
    program,
    programs,
    units,
    rank,
    epoch,
    first_flag,
    arrivals,
    returns,
    WORLD: tl.constexpr,
    PIECE: tl.constexpr,
    ROWS: tl.constexpr,
    AMD: tl.constexpr,
):
    """This program's share of what the other ranks send here, through the expert and back."""
    columns_1P = tl.arange(0, triton.next_power_of_2(PIECE))[None, :]
    for item in range(program, units * (WORLD - 1), programs * ROWS):
        items_R = item + programs * tl.arange(0, ROWS)
        units_R = items_R // (WORLD - 1)
        sources_R = (rank + 1 + items_R % (WORLD - 1)) % WORLD
        places_R = sources_R * units + units_R
        blocks_R = tl.load(blocks + sources_R)
        here_R = wait_for_pieces(flag_pointers(own_block, first_flag + places_R), epoch, units_R < units)
        mask_RP = here_R[:, None] & (columns_1P < PIECE)
        x_RP = tl.load(rows_at(own_block, arrivals) + places_R[:, None] * PIECE + columns_1P, mask=mask_RP)
        y_RP = (x_RP.to(tl.float32) * (1 + rank)).to(tl.float16)
        places_R = rank * units + units_R
        there_RP = rows_at(blocks_R, returns)[:, None] + places_R[:, None] * PIECE + columns_1P
        tl.store(there_RP, y_RP, mask=mask_RP)
        signal(flag_pointers(blocks_R, first_flag + WORLD * units + places_R), epoch, here_R, AMD)


@triton.jit
def combine(
    x,
    indices,
    weights,
    out,
    own_block,
    program,
    programs,
    num_tokens,
    units,
    rank,
    epoch,
    first_flag,
    returns,
    WORLD: tl.constexpr,
    PER_RANK: tl.constexpr,
    TOP_K: tl.constexpr,
    HIDDEN: tl.constexpr,
    PIECES: tl.constexpr,
    PIECE: tl.constexpr,
):
    """This program's share of the output."""
    peers_W = tl.arange(0, triton.next_power_of_2(WORLD))
    choices_K = tl.arange(0, triton.next_power_of_2(TOP_K))
    columns_1P = tl.arange(0, triton.next_power_of_2(PIECE))[None, :]
    for unit in range(program, num_tokens * PIECES, programs):
        token = unit // PIECES
        first = unit % PIECES * PIECE
        inside_1P = (columns_1P < PIECE) & (first + columns_1P < HIDDEN)
        x_1P = tl.load(x + token * HIDDEN + first + columns_1P, mask=inside_1P)
        weights_K = tl.load(weights + token * TOP_K + choices_K, mask=choices_K < TOP_K, other=0.0)
        chosen_WK = ranks_of(indices, token, PER_RANK, TOP_K)[None, :] == peers_W[:, None]
        scale_W = tl.sum(tl.where(chosen_WK, weights_K[None, :], 0.0), 1)
        own_scale = tl.sum(tl.where(peers_W == rank, scale_W, 0.0)) * (1 + rank)
        awaited_W = (tl.max(chosen_WK.to(tl.int32), 1) > 0) & (peers_W != rank)
        places_W = peers_W * units + unit
        wait(flag_pointers(own_block, first_flag + WORLD * units + places_W), epoch, awaited_W)
        y_WP = tl.load(
            rows_at(own_block, returns) + places_W[:, None] * PIECE + columns_1P,
            mask=inside_1P & awaited_W[:, None],
            other=0.0,
        )
        sum_1P = tl.sum(y_WP.to(tl.float32) * scale_W[:, None], 0, keep_dims=True) + x_1P.to(tl.float32) * own_scale
        tl.store(out + token * HIDDEN + first + columns_1P, sum_1P.to(tl.float16), mask=inside_1P)


@triton.jit(do_not_specialize=["num_tokens", "capacity", "rank", "epoch", "first_flag", "arrivals", "returns"])
def a2a_kernel(
    x,  # fp16 [T, H]
    indices,  # int32 [T, k]
    weights,  # float32 [T, k]
    out,  # fp16 [T, H]
    blocks,  # int64 [W], the addresses of all ranks' blocks of the heap
    num_tokens,
    capacity,  # C
    rank,
    epoch,
    first_flag,  # of those of this call: [2, W, C PIECES], pieces that came from W and outputs that came back from W
    arrivals,  # where in a block the pieces come in, bytes: fp16 [W, C PIECES, PIECE]
    returns,  # likewise where the outputs come back
    WORLD: tl.constexpr,
    PER_RANK: tl.constexpr,  # experts
    TOP_K: tl.constexpr,
    HIDDEN: tl.constexpr,
    PIECES: tl.constexpr,
    PIECE: tl.constexpr,
    SENDS: tl.constexpr,
    ROWS: tl.constexpr,
    DIES: tl.constexpr,
    AMD: tl.constexpr,
):
    """A flag of a piece is at `epoch` where it has come, at `epoch` + 1 where none will.

    So a flag has to be left alone until all have read it, as the heap's halves have: calls with odd epochs have flags
    of their own, and no flag can be taken for one of the call before, whatever that call's shape was. Since every
    rank waits for all flags of all others, none finishes before all have begun, which is the heap's condition.
    """
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    units = capacity * PIECES
    own_block = tl.load(blocks + rank)
    if WORLD > 1:
        send(
            x,
            indices,
            blocks,
            program,
            programs,
            num_tokens,
            units,
            rank,
            epoch,
            first_flag,
            arrivals,
            WORLD,
            PER_RANK,
            TOP_K,
            HIDDEN,
            PIECES,
            PIECE,
            SENDS,
            AMD,
        )
        answer(
            blocks,
            own_block,
            turned(program, programs, units, DIES),
            programs,
            units,
            rank,
            epoch,
            first_flag,
            arrivals,
            returns,
            WORLD,
            PIECE,
            ROWS,
            AMD,
        )
    combine(
        x,
        indices,
        weights,
        out,
        own_block,
        turned(program, programs, units * WORLD, DIES),
        programs,
        num_tokens,
        units,
        rank,
        epoch,
        first_flag,
        returns,
        WORLD,
        PER_RANK,
        TOP_K,
        HIDDEN,
        PIECES,
        PIECE,
    )
