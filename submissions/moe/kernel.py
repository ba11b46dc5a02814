"""moe's kernel; submission.py says how it works.

A row of H elements is cut into SPLIT parts of SLICE elements, and a unit is one part of one expert's matrices. Pairs of
a token and one of its experts are numbered by source rank, token and choice: place * k + choice, where place =
source * C + token.

Legend: as in submission.py; further N pairs or places that a program has at a time, B tokens of a unit, P elements of a
row, D parts.
"""

import triton
import triton.language as tl
from common.signals import finish_stores, flag_pointers, signal, wait
from common.tokens import floats_at, ranks_of, rows_at, turned, words_at
from partials import add_up, combine_partials

NO_EXPERT = tl.constexpr(-1)  # in place of an expert's number, where there is no token
COPIES = tl.constexpr(16)  # of a flag that all programs wait for, so that they do not all ask for one
LANES = tl.constexpr(64)  # that ask for parts of a matrix


@triton.jit
def request(
    up,
    down,
    unit,
    HIDDEN: tl.constexpr,
    INTER: tl.constexpr,
    SPLIT: tl.constexpr,
    SLICE: tl.constexpr,
    MATRICES: tl.constexpr,
):
    """Asks the L2 for the unit's part of `up` or, with 2 MATRICES, for that of `down` as well."""
    first = unit % SPLIT * SLICE
    matrix = (unit // SPLIT).to(tl.int64) * (INTER * HIDDEN)
    size = tl.minimum(HIDDEN - first, SLICE) * INTER * 2 // LANES  # bytes of a lane
    lanes = tl.arange(0, LANES)
    A_ROW: tl.constexpr = LANES // INTER
    up_parts = (up + matrix + lanes // A_ROW * HIDDEN + first).to(tl.int64) + lanes % A_ROW * size
    down_parts = (down + matrix + first * INTER).to(tl.int64) + lanes * size
    asked: tl.constexpr = "cp.async.bulk.prefetch.L2.global [$1], $2; mov.b32 $0, 0;"
    tl.inline_asm_elementwise(asked, "=r,l,r", [up_parts, size], tl.int32, False, 1)
    if MATRICES == 2:
        tl.inline_asm_elementwise(asked, "=r,l,r", [down_parts, size], tl.int32, False, 1)


@triton.jit
def wait_for_routing(block, program, epoch, first_told, WORLD: tl.constexpr, PORTIONS: tl.constexpr):
    """Returns once the routing of all ranks is here."""
    portions = tl.arange(0, triton.next_power_of_2(WORLD * PORTIONS))
    told = flag_pointers(block, first_told + portions * COPIES + program % COPIES)
    wait(told, epoch, portions < WORLD * PORTIONS)


@triton.jit
def tell(
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
    routing,
    WORLD: tl.constexpr,
    TOP_K: tl.constexpr,
    PORTIONS: tl.constexpr,
    TOLD: tl.constexpr,
    AMD: tl.constexpr,
):
    """This rank's routing, to all ranks: each pair's expert, NO_EXPERT behind the last token, and its weight."""
    copies = tl.arange(0, COPIES)
    for item in range(program, WORLD * PORTIONS, programs):
        block = tl.load(blocks + item // PORTIONS)
        portion = item % PORTIONS
        pairs_N = portion * TOLD + tl.arange(0, TOLD)
        experts_N = tl.load(indices + pairs_N, mask=pairs_N < num_tokens * TOP_K, other=NO_EXPERT)
        weights_N = tl.load(weights + pairs_N, mask=pairs_N < num_tokens * TOP_K, other=0.0)
        there_N = rank * capacity * TOP_K + pairs_N
        weights_there = floats_at(block, routing) + WORLD * capacity * TOP_K
        tl.store(words_at(block, routing) + there_N, experts_N, mask=pairs_N < capacity * TOP_K)
        tl.store(weights_there + there_N, weights_N, mask=pairs_N < capacity * TOP_K)
        flags = first_flag + (rank * PORTIONS + portion) * COPIES + copies
        signal(flag_pointers(block, flags), epoch, copies >= 0, AMD)


@triton.jit
def send(
    x,
    indices,
    blocks,
    program,
    programs,
    num_tokens,
    capacity,
    rank,
    arrivals,
    WORLD: tl.constexpr,
    PER_RANK: tl.constexpr,
    TOP_K: tl.constexpr,
    HIDDEN: tl.constexpr,
    SPLIT: tl.constexpr,
    SLICE: tl.constexpr,
):
    """This program's share of the tokens' parts, to all ranks that need them."""
    peers_W = tl.arange(0, triton.next_power_of_2(WORLD))
    blocks_W = tl.load(blocks + peers_W, mask=peers_W < WORLD, other=0)
    columns_1P = tl.arange(0, triton.next_power_of_2(SLICE))[None, :]
    for item in range(program, num_tokens * SPLIT, programs):
        token = item // SPLIT
        first = item % SPLIT * SLICE
        inside_1P = (columns_1P < SLICE) & (first + columns_1P < HIDDEN)
        x_1P = tl.load(x + token * HIDDEN + first + columns_1P, mask=inside_1P)
        ranks_K = ranks_of(indices, token, PER_RANK, TOP_K)
        needed_W = tl.max((ranks_K[None, :] == peers_W[:, None]).to(tl.int32), 1) > 0
        part = rank * capacity * SPLIT + item
        there_WP = rows_at(blocks_W, arrivals)[:, None] + part * SLICE + columns_1P
        tl.store(there_WP, tl.broadcast_to(x_1P, there_WP.shape), mask=inside_1P & needed_W[:, None])


@triton.jit
def flag_sent(
    indices,
    blocks,
    program,
    programs,
    num_tokens,
    capacity,
    rank,
    epoch,
    first_flag,
    WORLD: tl.constexpr,
    PER_RANK: tl.constexpr,
    TOP_K: tl.constexpr,
    SPLIT: tl.constexpr,
    SENDS: tl.constexpr,
    AMD: tl.constexpr,
):
    """Flags what `send` has sent. The flags of SENDS parts have one fence, which waits until all have arrived."""
    peers_1W = tl.arange(0, triton.next_power_of_2(WORLD))[None, :]
    blocks_1W = tl.load(blocks + peers_1W, mask=peers_1W < WORLD, other=0)
    choices_1K = tl.arange(0, triton.next_power_of_2(TOP_K))[None, :]
    for item in range(program, num_tokens * SPLIT, programs * SENDS):
        items_S1 = (item + programs * tl.arange(0, SENDS))[:, None]
        asked_SK = (items_S1 < num_tokens * SPLIT) & (choices_1K < TOP_K)
        experts_SK = tl.load(indices + items_S1 // SPLIT * TOP_K + choices_1K, mask=asked_SK, other=-PER_RANK)
        needed_SW = tl.max((experts_SK[:, :, None] // PER_RANK == peers_1W[:, None, :]).to(tl.int32), 1) > 0
        signal(flag_pointers(blocks_1W, first_flag + rank * capacity * SPLIT + items_S1), epoch, needed_SW, AMD)


@triton.jit
def list_pairs(block, routing, pairs, expert, places, TOP_K: tl.constexpr, SCANNED: tl.constexpr, AMD: tl.constexpr):
    """Writes the numbers of the expert's pairs to `pairs`, in their order, and returns how many there are."""
    choices_1K = tl.arange(0, triton.next_power_of_2(TOP_K))[None, :]
    count = 0
    for first in range(0, places, SCANNED):
        places_N = first + tl.arange(0, SCANNED)
        known_NK = (places_N < places)[:, None] & (choices_1K < TOP_K)
        experts_NK = tl.load(
            words_at(block, routing) + places_N[:, None] * TOP_K + choices_1K, mask=known_NK, other=NO_EXPERT
        )
        choice_N = tl.max(tl.where(experts_NK == expert, choices_1K, -1), 1)  # one, as a token's experts are distinct
        number_N = tl.cumsum((choice_N >= 0).to(tl.int32), 0)
        tl.store(pairs + count + number_N - 1, places_N * TOP_K + choice_N, mask=choice_N >= 0)
        count += tl.max(number_N)
    finish_stores(AMD)  # any thread may read what another has written
    return count


@triton.jit
def multiply_up(
    up,
    own_block,
    program,
    programs,
    capacity,
    rank,
    epoch,
    first_told,
    first_sent,
    first_summed,
    arrivals,
    routing,
    lists,
    sums,
    WORLD: tl.constexpr,
    PER_RANK: tl.constexpr,
    TOP_K: tl.constexpr,
    HIDDEN: tl.constexpr,
    INTER: tl.constexpr,
    SPLIT: tl.constexpr,
    SLICE: tl.constexpr,
    TOKENS: tl.constexpr,
    BLOCK: tl.constexpr,
    PORTIONS: tl.constexpr,
    SCANNED: tl.constexpr,
    AMD: tl.constexpr,
):
    """This program's share of the units: up @ x over the unit's part of H, for all tokens that have its expert."""
    places = WORLD * capacity
    inner_I1 = tl.arange(0, INTER)[:, None]
    inner_1I = tl.arange(0, INTER)[None, :]
    columns_1P = tl.arange(0, BLOCK)[None, :]
    one = tl.arange(0, 1)
    for unit in range(program, PER_RANK * SPLIT, programs):
        expert = unit // SPLIT
        part = unit % SPLIT
        wait_for_routing(own_block, program, epoch, first_told, WORLD, PORTIONS)
        pairs = words_at(own_block, lists) + unit * (places + 1)
        count = list_pairs(own_block, routing, pairs + 1, rank * PER_RANK + expert, places, TOP_K, SCANNED, AMD)
        tl.store(pairs, count)
        rows_I1 = up + expert.to(tl.int64) * (INTER * HIDDEN) + inner_I1 * HIDDEN
        for first in range(0, count, TOKENS):
            known_B = first + tl.arange(0, TOKENS) < count
            pairs_B = tl.load(pairs + 1 + first + tl.arange(0, TOKENS), mask=known_B, other=0)
            parts_B = pairs_B // TOP_K * SPLIT + part
            wait(flag_pointers(own_block, first_sent + parts_B), epoch, known_B)
            x_rows_B1 = rows_at(own_block, arrivals) + parts_B[:, None] * SLICE
            a_BI = tl.zeros((TOKENS, INTER), tl.float32)
            for column in range(0, SLICE, BLOCK):
                inside_1P = part * SLICE + column + columns_1P < HIDDEN
                x_BP = tl.load(x_rows_B1 + column + columns_1P, mask=known_B[:, None] & inside_1P, other=0.0)
                up_IP = tl.load(rows_I1 + part * SLICE + column + columns_1P, mask=inside_1P, other=0.0)
                a_BI = tl.dot(x_BP, up_IP.T, a_BI)
            sums_B1 = floats_at(own_block, sums) + (pairs_B[:, None] * SPLIT + part) * INTER
            tl.store(sums_B1 + inner_1I, a_BI, mask=known_B[:, None])
        signal(flag_pointers(own_block, first_summed + unit + one), epoch, one == 0, AMD, True)


@triton.jit
def intermediates(block, sums, pairs_B, known_B, INTER: tl.constexpr, SPLIT: tl.constexpr, TOGETHER: tl.constexpr):
    """The sums of the pairs' parts of up @ x, float32 [B, I], always in the same order."""
    parts_1D1 = tl.arange(0, TOGETHER)[None, :, None]
    inner_11I = tl.arange(0, INTER)[None, None, :]
    sums_B11 = floats_at(block, sums) + pairs_B[:, None, None] * (SPLIT * INTER)
    a_BI = tl.zeros((pairs_B.shape[0], INTER), tl.float32)
    for first in tl.static_range(0, SPLIT, TOGETHER):
        known_BD1 = known_B[:, None, None] & (first + parts_1D1 < SPLIT)
        sums_BDI = tl.load(sums_B11 + (first + parts_1D1) * INTER + inner_11I, mask=known_BD1, other=0.0)
        a_BI += tl.sum(sums_BDI, 1)
    return a_BI


@triton.jit
def multiply_down(
    down,
    blocks,
    own_block,
    program,
    programs,
    capacity,
    epoch,
    first_summed,
    first_back,
    routing,
    lists,
    sums,
    returns,
    WORLD: tl.constexpr,
    PER_RANK: tl.constexpr,
    TOP_K: tl.constexpr,
    HIDDEN: tl.constexpr,
    INTER: tl.constexpr,
    SPLIT: tl.constexpr,
    SLICE: tl.constexpr,
    TOKENS: tl.constexpr,
    BLOCK: tl.constexpr,
    TOGETHER: tl.constexpr,
    PARTIALS: tl.constexpr,
    AMD: tl.constexpr,
):
    """This program's share of the units: w (down @ a) in the unit's part of H, rounded, to the rank of each token or,
    with PARTIALS, to this rank's own memory."""
    places = WORLD * capacity
    inner_1I = tl.arange(0, INTER)[None, :]
    columns_P = tl.arange(0, BLOCK)
    splits_D = tl.arange(0, triton.next_power_of_2(SPLIT))
    for unit in range(program, PER_RANK * SPLIT, programs):
        expert = unit // SPLIT
        part = unit % SPLIT
        pairs = words_at(own_block, lists) + unit * (places + 1)
        count = tl.load(pairs)
        for first in range(0, count, TOKENS):
            known_B = first + tl.arange(0, TOKENS) < count
            pairs_B = tl.load(pairs + 1 + first + tl.arange(0, TOKENS), mask=known_B, other=0)
            weights_B = tl.load(floats_at(own_block, routing) + places * TOP_K + pairs_B, mask=known_B, other=0.0)
            if PARTIALS:
                blocks_B = tl.zeros_like(pairs_B) + own_block
                parts_B = pairs_B * SPLIT + part
            else:
                blocks_B = tl.load(blocks + pairs_B // (capacity * TOP_K))
                parts_B = pairs_B % (capacity * TOP_K) * SPLIT + part  # of those that come back there
            y_rows_B1 = rows_at(blocks_B, returns)[:, None] + parts_B[:, None] * SLICE
            if first == 0:
                wait(flag_pointers(own_block, first_summed + expert * SPLIT + splits_D), epoch, splits_D < SPLIT)
            a_BI = intermediates(own_block, sums, pairs_B, known_B, INTER, SPLIT, TOGETHER)
            a_BI = (a_BI * weights_B[:, None]).to(tl.float16)
            for column in range(0, SLICE, BLOCK):
                inside_P = part * SLICE + column + columns_P < HIDDEN
                rows_P1 = expert.to(tl.int64) * (HIDDEN * INTER) + (part * SLICE + column + columns_P)[:, None] * INTER
                down_PI = tl.load(down + rows_P1 + inner_1I, mask=inside_P[:, None], other=0.0)
                y_BP = tl.dot(a_BI, down_PI.T)
                y_at_BP = y_rows_B1 + column + columns_P[None, :]
                tl.store(y_at_BP, y_BP.to(tl.float16), mask=known_B[:, None] & inside_P[None, :])
            signal(flag_pointers(blocks_B, first_back + parts_B), epoch, known_B, AMD, PARTIALS > 0)


@triton.jit
def combine(
    out,
    own_block,
    program,
    programs,
    num_tokens,
    epoch,
    first_back,
    returns,
    TOP_K: tl.constexpr,
    HIDDEN: tl.constexpr,
    SPLIT: tl.constexpr,
    SLICE: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """This program's share of the output: of a part of a token the sum over its experts, rounded once."""
    choices_K = tl.arange(0, triton.next_power_of_2(TOP_K))
    columns_1P = tl.arange(0, COLUMNS)[None, :]
    for item in range(program, num_tokens * SPLIT, programs):
        token = item // SPLIT
        part = item % SPLIT
        parts_K = (token * TOP_K + choices_K) * SPLIT + part
        wait(flag_pointers(own_block, first_back + parts_K), epoch, choices_K < TOP_K)
        y_rows_K1 = rows_at(own_block, returns) + parts_K[:, None] * SLICE
        for first in range(0, SLICE, COLUMNS):
            in_row_1P = part * SLICE + first + columns_1P
            inside_1P = (first + columns_1P < SLICE) & (in_row_1P < HIDDEN)
            y_KP = tl.load(y_rows_K1 + first + columns_1P, mask=inside_1P & (choices_K < TOP_K)[:, None], other=0.0)
            sum_1P = tl.sum(y_KP.to(tl.float32), 0, keep_dims=True)
            tl.store(out + token * HIDDEN + in_row_1P, sum_1P.to(tl.float16), mask=inside_1P)


@triton.jit(
    do_not_specialize=[
        "num_tokens", "capacity", "rank", "epoch", "first_flag", "arrivals", "routing", "lists", "sums", "returns",
    ]
)  # fmt: skip
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
    first_flag,  # of those of this call: [W, PORTIONS, COPIES], [W, C, SPLIT], [L, SPLIT], [rows, SPLIT]; see below
    arrivals,  # where in a block the tokens come in, bytes: fp16 [W, C, SPLIT, SLICE]
    routing,  # likewise each pair's expert and, behind all of these, its weight: int32 and float32 [W, C, k]
    lists,  # likewise how many pairs a unit's expert has here, and which: int32 [L, SPLIT, 1 + W C]
    sums,  # likewise what units make of pairs: float32 [W, C, k, SPLIT, I]
    returns,  # likewise where experts' outputs come back: fp16 [rows, SPLIT, SLICE], C k rows or those of partials.py
    WORLD: tl.constexpr,
    PER_RANK: tl.constexpr,  # experts
    TOP_K: tl.constexpr,
    HIDDEN: tl.constexpr,
    INTER: tl.constexpr,
    SPLIT: tl.constexpr,
    SLICE: tl.constexpr,
    TOKENS: tl.constexpr,
    BLOCK: tl.constexpr,
    TOGETHER: tl.constexpr,
    COLUMNS: tl.constexpr,
    PARTIALS: tl.constexpr,  # how many parts of tokens a program adds up at a time; 0: no partial sums
    PORTIONS: tl.constexpr,
    TOLD: tl.constexpr,
    SENDS: tl.constexpr,
    SCANNED: tl.constexpr,
    REQUEST: tl.constexpr,
    DIES: tl.constexpr,
    AMD: tl.constexpr,
):
    """Every rank waits for the routing of all ranks, so that none finishes before all have begun, which is the heap's
    condition."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    own_block = tl.load(blocks + rank)
    first_sent = first_flag + WORLD * PORTIONS * COPIES  # a part of a token has come
    first_summed = first_sent + WORLD * capacity * SPLIT  # a unit's part of the sums is there
    first_back = first_summed + PER_RANK * SPLIT  # a part of a row that is to be added up is there
    sending = turned(program, programs, WORLD * PORTIONS, DIES)
    multiplying = turned(program, programs, WORLD * PORTIONS + capacity * SPLIT, DIES)
    combining = turned(program, programs, WORLD * PORTIONS + (capacity + PER_RANK) * SPLIT, DIES)
    tell(
        indices, weights, blocks, program, programs, num_tokens, capacity, rank, epoch, first_flag, routing,
        WORLD, TOP_K, PORTIONS, TOLD, AMD,
    )  # fmt: skip
    send(
        x, indices, blocks, sending, programs, num_tokens, capacity, rank, arrivals,
        WORLD, PER_RANK, TOP_K, HIDDEN, SPLIT, SLICE,
    )  # fmt: skip
    if REQUEST:
        for unit in range(multiplying, PER_RANK * SPLIT, programs):
            request(up, down, unit, HIDDEN, INTER, SPLIT, SLICE, REQUEST)
    flag_sent(
        indices, blocks, sending, programs, num_tokens, capacity, rank, epoch, first_sent,
        WORLD, PER_RANK, TOP_K, SPLIT, SENDS, AMD,
    )  # fmt: skip
    multiply_up(
        up, own_block, multiplying, programs, capacity, rank, epoch, first_flag, first_sent, first_summed,
        arrivals, routing, lists, sums,
        WORLD, PER_RANK, TOP_K, HIDDEN, INTER, SPLIT, SLICE, TOKENS, BLOCK, PORTIONS, SCANNED, AMD,
    )  # fmt: skip
    multiply_down(
        down, blocks, own_block, multiplying, programs, capacity, epoch, first_summed, first_back,
        routing, lists, sums, returns,
        WORLD, PER_RANK, TOP_K, HIDDEN, INTER, SPLIT, SLICE, TOKENS, BLOCK, TOGETHER, PARTIALS, AMD,
    )  # fmt: skip
    if PARTIALS:
        if multiplying >= PER_RANK * SPLIT:  # a program without units, which has not waited for the routing yet
            wait_for_routing(own_block, program, epoch, first_flag, WORLD, PORTIONS)
        add_up(
            blocks, own_block, combining, programs, capacity, rank, epoch, first_back, routing, returns,
            WORLD, PER_RANK, TOP_K, HIDDEN, SPLIT, SLICE, COLUMNS, PARTIALS, AMD,
        )  # fmt: skip
        before = WORLD * PORTIONS + (WORLD * capacity + PER_RANK) * SPLIT
        combine_partials(
            indices, out, own_block, turned(program, programs, before, DIES), programs, num_tokens, capacity, rank,
            epoch, first_back, returns,
            WORLD, PER_RANK, TOP_K, HIDDEN, SPLIT, SLICE, COLUMNS, PARTIALS,
        )  # fmt: skip
    else:
        combine(
            out, own_block, combining, programs, num_tokens, epoch, first_back, returns,
            TOP_K, HIDDEN, SPLIT, SLICE, COLUMNS,
        )  # fmt: skip
