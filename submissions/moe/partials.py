"""moe's kernel, the way of partial sums: each rank adds up what its experts make of a token of another rank, and sends
one row. (Without, see kernel.py, it sends a row for each of these experts.)

The rows of all pairs stay in the memory of the rank that has their experts, in the pairs' order: W C k of them. Behind
lie the rows that have come from other ranks, W C: rank * C + token. A part of a row has a flag.

Legend: as in kernel.py; further R parts of tokens that a program has at a time, J rows that are added up, O other
ranks.
"""

import triton
import triton.language as tl
from common.signals import flag_pointers, signal, wait
from common.tokens import rows_at, words_at


@triton.jit
def sum_of_rows(block, returns, parts_RJ, known_RJ, columns_1P, inside_RP, SLICE: tl.constexpr):
    """The sums of J parts of rows each, of those that are known, float32 [R, P]."""
    starts_RJ1 = parts_RJ[:, :, None] * SLICE
    mask_RJP = known_RJ[:, :, None] & inside_RP[:, None, :]
    y_RJP = tl.load(rows_at(block, returns) + starts_RJ1 + columns_1P[:, None, :], mask=mask_RJP, other=0.0)
    return tl.sum(y_RJP.to(tl.float32), 1)


@triton.jit
def add_up(
    blocks,
    own_block,
    program,
    programs,
    capacity,
    rank,
    epoch,
    first_back,
    routing,
    returns,
    WORLD: tl.constexpr,
    PER_RANK: tl.constexpr,
    TOP_K: tl.constexpr,
    HIDDEN: tl.constexpr,
    SPLIT: tl.constexpr,
    SLICE: tl.constexpr,
    COLUMNS: tl.constexpr,
    PARTIALS: tl.constexpr,
    AMD: tl.constexpr,
):
    """This program's share of the other ranks' tokens: of a part of a token the sum over its experts here, rounded, to
    the token's rank, if it has any here. The program has waited for the routing."""
    choices_1K = tl.arange(0, triton.next_power_of_2(TOP_K))[None, :]
    parts = capacity * SPLIT  # of a rank's tokens
    items = (WORLD - 1) * parts
    for item in range(program, items, programs * PARTIALS):
        items_R = item + programs * tl.arange(0, PARTIALS)
        sources_R = (rank + 1 + items_R // parts) % WORLD
        parts_R = items_R % parts
        pairs_RK = (sources_R * capacity + parts_R // SPLIT)[:, None] * TOP_K + choices_1K
        asked_RK = (items_R < items)[:, None] & (choices_1K < TOP_K)
        experts_RK = tl.load(words_at(own_block, routing) + pairs_RK, mask=asked_RK, other=-1)
        here_RK = (experts_RK >= rank * PER_RANK) & (experts_RK < (rank + 1) * PER_RANK)
        here_R = tl.max(here_RK.to(tl.int32), 1) > 0
        blocks_R = tl.load(blocks + sources_R)
        back_R = (WORLD * TOP_K + rank) * parts + parts_R
        rows_R1 = rows_at(blocks_R, returns)[:, None] + back_R[:, None] * SLICE
        parts_RK = pairs_RK * SPLIT + (parts_R % SPLIT)[:, None]
        wait(flag_pointers(own_block, first_back + parts_RK), epoch, here_RK)
        for first in range(0, SLICE, COLUMNS):
            columns_1P = first + tl.arange(0, COLUMNS)[None, :]
            inside_RP = (columns_1P < SLICE) & ((parts_R % SPLIT * SLICE)[:, None] + columns_1P < HIDDEN)
            sum_RP = sum_of_rows(own_block, returns, parts_RK, here_RK, columns_1P, inside_RP, SLICE)
            tl.store(rows_R1 + columns_1P, sum_RP.to(tl.float16), mask=inside_RP & here_R[:, None])
        signal(flag_pointers(blocks_R, first_back + back_R), epoch, here_R, AMD)


@triton.jit
def combine_partials(
    indices,
    out,
    own_block,
    program,
    programs,
    num_tokens,
    capacity,
    rank,
    epoch,
    first_back,
    returns,
    WORLD: tl.constexpr,
    PER_RANK: tl.constexpr,
    TOP_K: tl.constexpr,
    HIDDEN: tl.constexpr,
    SPLIT: tl.constexpr,
    SLICE: tl.constexpr,
    COLUMNS: tl.constexpr,
    PARTIALS: tl.constexpr,
):
    """This program's share of the output: of a part of a token the sum over its experts here and over the partial sums
    of the other ranks that have some, rounded once. The own rows are read while others' are on their way."""
    choices_1K = tl.arange(0, triton.next_power_of_2(TOP_K))[None, :]
    others_1O = tl.arange(0, triton.next_power_of_2(WORLD - 1))[None, :]
    peers_1O = tl.where(others_1O < WORLD - 1, (rank + 1 + others_1O) % WORLD, WORLD)
    for item in range(program, num_tokens * SPLIT, programs * PARTIALS):
        items_R1 = (item + programs * tl.arange(0, PARTIALS))[:, None]
        tokens_R1 = items_R1 // SPLIT
        part_R1 = items_R1 % SPLIT
        asked_RK = (tokens_R1 < num_tokens) & (choices_1K < TOP_K)
        ranks_RK = tl.load(indices + tokens_R1 * TOP_K + choices_1K, mask=asked_RK, other=-PER_RANK) // PER_RANK
        own_RK = ranks_RK == rank
        sent_RO = tl.max((ranks_RK[:, :, None] == peers_1O[:, None, :]).to(tl.int32), 1) > 0
        parts_RK = ((rank * capacity + tokens_R1) * TOP_K + choices_1K) * SPLIT + part_R1
        back_RO = ((WORLD * TOP_K + peers_1O) * capacity + tokens_R1) * SPLIT + part_R1
        wait(flag_pointers(own_block, first_back + parts_RK), epoch, own_RK)
        for first in range(0, SLICE, COLUMNS):
            columns_1P = first + tl.arange(0, COLUMNS)[None, :]
            in_row_RP = part_R1 * SLICE + columns_1P
            inside_RP = (columns_1P < SLICE) & (in_row_RP < HIDDEN)
            sum_RP = sum_of_rows(own_block, returns, parts_RK, own_RK, columns_1P, inside_RP, SLICE)
            if first == 0:
                wait(flag_pointers(own_block, first_back + back_RO), epoch, sent_RO)
            sum_RP += sum_of_rows(own_block, returns, back_RO, sent_RO, columns_1P, inside_RP, SLICE)
            known_RP = inside_RP & (tokens_R1 < num_tokens)
            tl.store(out + tokens_R1 * HIDDEN + in_row_RP, sum_RP.to(tl.float16), mask=known_RP)
