"""Rows of the tuning tables that may be good for a shape: what tune.py measures."""

import itertools
import math
import random
from collections.abc import Sequence
from types import ModuleType
from typing import Any

SHARED_BYTES = 227 << 10  # a multiprocessor's, for programs; NVIDIA H100 white paper
PREFETCHES = (1024, 2048, 4096)
FLAGS = ((32, 256), (64, 256), (128, 256), (128, 512), (128, 1024))  # rows and columns that one tells of
SENT_AT_ONCE = 128 * 256  # elements, in a program's registers
SPLITS = (2, 4, 8, 16)  # where tiles are few
MOST_SHARES = 264  # of all tiles: two programs a multiprocessor
SEND_ROWS = (128, 512, 2048)  # as many as a round of tiles has of a rank, and less
ENGINE_M = 4096  # rows from which on copy engines are tried; below they lost by far
ENGINE_GROUPS = (8, 16)  # of the kernel beside them
SUMS = ((16, 64), (32, 64), (64, 128))  # of gemm_rs; the first where rows are few
LATE_SUMS = ((64, 128), (128, 128), (64, 256), (128, 256))
GROUPS = (4, 8)  # the first is what should save most bytes where neighbours multiply different ranks' rows
WARPS_ROWS = 128  # of a tile of the kernels with explicit warps, all of one rank
WARPS_BLOCKS = {  # of these kernels, by how many rows there are at most: M, N, K and stages
    512: [(128, 128, 64, 5), (128, 128, 64, 6), (128, 256, 64, 3)],
    2048: [(128, 128, 64, 5), (128, 256, 64, 3), (128, 128, 64, 6), (128, 128, 64, 4)],
    None: [(128, 256, 64, 3), (128, 128, 64, 5), (128, 128, 64, 6)],
}
WIDE_BLOCKS = [(128, 192, 64, 4), (128, 192, 64, 3), (128, 96, 64, 6)]  # of ag_gemm's, for any number of rows
WARPS_GROUPS = (8, 16, 4)
WARPS_WINDOWS = (0, 8 << 10, 16 << 10, 64 << 10)  # bytes on their way, of gemm_rs; 0: owners fetch, by either warps
WARPS_SENDERS = (48, 32, 64, 40, 96, 132)
WARPS_AT_ONCE = (4, 2, 1, 8)  # chunks that share a fence
WARPS_BARRIER_BYTES = 2 << 10
CHUNKS = ((64, 64), (64, 128), (32, 128), (128, 64), (64, 256))  # rows and columns that sending warps copy at once
A2A = {  # by hidden_dim: piece, how many are sent and answered at a time, warps and programs a multiprocessor
    7168: [
        (2048, 1, 4, 4, 6), (3584, 1, 4, 8, 3), (1024, 1, 8, 2, 10), (2048, 1, 8, 4, 4), (1792, 1, 8, 8, 4),
        (2048, 2, 2, 4, 6), (2048, 2, 4, 4, 6), (2048, 1, 2, 4, 8), (3584, 1, 2, 8, 3), (3584, 2, 2, 8, 3),
    ],
    4096: [
        (2048, 1, 2, 4, 6), (2048, 1, 4, 4, 6), (4096, 1, 4, 8, 3), (1024, 1, 4, 2, 10),
        (2048, 2, 2, 4, 6), (2048, 1, 2, 4, 8), (4096, 1, 2, 8, 3), (4096, 2, 2, 8, 3),
    ],
    2880: [
        (1536, 1, 1, 4, 6), (1536, 1, 2, 4, 6), (2880, 1, 2, 8, 3), (960, 1, 2, 4, 6),
        (2880, 1, 1, 8, 3), (1536, 2, 2, 4, 6), (2880, 1, 2, 8, 2),
    ],
}  # fmt: skip
MANY = 1024  # tokens, from which on links are what counts, and whether enough bytes are on their way between fences
A2A_MANY = [
    (2048, 1, 2, 4, 6),
    (2048, 4, 4, 4, 6),
    (2048, 8, 4, 4, 6),
    (4096, 1, 2, 4, 6),
    (4096, 2, 4, 8, 3),
    (4096, 4, 4, 8, 3),
    (2048, 1, 2, 4, 3),
]
MOE = {  # by hidden_dim: splits of an expert; tokens, block and stages; warps and programs a multiprocessor
    7168: ((4, 8, 14), ((16, 64, 7), (16, 64, 6), (16, 128, 3), (32, 64, 5)), ((2, 8), (4, 4), (2, 6))),
    4096: ((4, 8, 16), ((16, 64, 5), (16, 64, 4), (16, 128, 3), (32, 64, 4)), ((2, 8), (4, 4))),
    2880: ((5, 4, 9), ((16, 64, 6), (16, 64, 4), (32, 64, 4)), ((2, 8), (4, 4))),
    2048: ((4, 8, 3), ((16, 64, 6), (16, 64, 4), (16, 128, 3)), ((2, 8), (4, 4))),
    6144: ((16, 12, 32), ((16, 64, 6), (16, 64, 4), (16, 128, 3)), ((2, 8), (2, 6), (4, 4))),
}
MOE_REQUESTS = (1, 2, 0)  # how many matrices are asked for ahead
A2A_SMALL = list(itertools.product((2048, 1024, 3072, 6144), (1,), (1,), (4, 8), (2, 4)))


def candidates(
    problem: str,
    tuning: ModuleType,
    chip: str,
    shape: tuple[int, ...],
    ranks: int,
    at_most: int,
    kernels: tuple[str, ...],
) -> list[Any]:
    """Rows for that benchmark: those of the table, the nearest one first, then others of these kernels, at most so many
    that need a kernel compiled for each way to go. Not a choice is what costs no compilation: all numbers of senders
    and rounds, with a quarter as many blocks."""
    near = [row for row in tuning.TABLE if row.chip == chip and close(row.shape, shape)]
    rows = [row._replace(shape=shape) for row in sorted(near, key=lambda row: apart(row.shape, shape))]
    known = {row[2:-1]: row for row in rows}  # what a row has already is not measured twice
    rows = list(known.values())
    if problem == "a2a":
        cuts = A2A_MANY if shape[1] >= MANY else A2A.get(shape[0], A2A_SMALL)
        rest = [tuning.Row(chip, shape, *cut, "") for cut in cuts]
        return rows + [row for row in rest if row[2:-1] not in known]
    if problem == "moe":
        splits, blocks, rooms = MOE[shape[0]]
        rest = [row._replace(partial_sums=not row.partial_sums, found="") for row in rows] + [
            tuning.Row(chip, shape, split, *block, asks, sums, *room, "")
            for sums, room, block, split, asks in likeliest((True, False), rooms, blocks, splits, MOE_REQUESTS)
        ]
        return rows + [row for row in dict.fromkeys(rest) if row[2:-1] not in known][:at_most]
    plain = [row for row in rows if row.kernel == "plain"]
    make = of_gemm_rs if problem == "gemm_rs" else of_ag_gemm
    rest = [row._replace(read_once=not row.read_once, found="") for row in plain]
    rest += make(tuning.Row, chip, shape, ranks, at_most, plain)
    return rows + [row for row in dict.fromkeys(rest) if row.kernel in kernels and row[2:-1] not in known]


def of_gemm_rs(Row: Any, chip: str, shape: tuple[int, ...], ranks: int, at_most: int, plain: list[Any]) -> list[Any]:
    """Rows of gemm_rs. `plain` are those that the table has of the plain kernel."""
    blocks, chance, sums_of = products(shape), random.Random(0), SUMS[:1] if shape[0] <= 64 else SUMS[1:]
    some = [
        Row(chip, shape, *block[:3], split, group, *block[3:], *sums, False, 0, False, False, "plain", "")
        for block, group, sums in itertools.product(blocks, GROUPS, sums_of)
        for split in splits_of(block, shape)
        if sums[1] <= block[1]
    ]
    by_engine = [
        Row(chip, shape, *block[:3], 1, group, *block[3:], 64, 128, False, 0, False, False, "engine", "")
        for block, group in itertools.product(beside_engine(blocks, shape), ENGINE_GROUPS)
    ]
    late = [
        row._replace(sum_m=sum_m, sum_n=sum_n, sum_late=True)
        for row, (sum_m, sum_n) in itertools.product(plain, LATE_SUMS)
        if sum_m <= row.block_m <= shape[0] // ranks and sum_n <= row.block_n and row.split == 1
    ]
    groups, windows = (WARPS_GROUPS[:1], WARPS_WINDOWS[::2]) if shape[0] <= 512 else (WARPS_GROUPS, WARPS_WINDOWS)
    warps = [
        Row(chip, shape, *block[:3], 1, group, 8, block[3], 1, 64, 64, False, window, False, fetchers, "warps", "")
        for block, group, window in likeliest(by_warps(shape, ranks), groups, windows)
        for fetchers in (True, False)
        if not fetchers or (window == 0 and (block[1] > 128 or fits(block, block[0] * block[1] * 2)))
    ]
    return late + by_engine + chance.sample(some, min(at_most, len(some))) + warps[:at_most]


def of_ag_gemm(Row: Any, chip: str, shape: tuple[int, ...], ranks: int, at_most: int, plain: list[Any]) -> list[Any]:
    """Rows of ag_gemm. `plain` are those that the table has of the plain kernel."""
    small, blocks, chance, mine = shape[0] <= 512, products(shape), random.Random(0), shape[0] // ranks
    senders = (16, 32, 48, 64, 96, 132) if small else (8, 12, 16, 24, 32, 48)
    prefetches = PREFETCHES if shape[0] <= 64 else PREFETCHES[-1:]
    leads = (0, 1) if small else (0, 1, 2, 3, 4, 6)
    sent = {  # how many rows at once, how many column by column, and a flag's rows and columns
        (send_m, max(min(send_rows, mine), flag_m), flag_m, flag_k)
        for send_rows, (flag_m, flag_k) in itertools.product(SEND_ROWS, FLAGS)
        for send_m in ((16,) if shape[0] <= 64 else (32, min(flag_m, SENT_AT_ONCE // flag_k)))
        if flag_m <= max(mine, FLAGS[0][0])
    }
    chosen: list[tuple[int, ...]] = [
        (row.block_m, row.block_n, row.block_k, row.warps, row.stages, row.per_sm) for row in plain
    ]
    chosen += chance.sample(blocks, min(at_most // 4, len(blocks)))
    by_engine = [
        Row(
            chip, shape, *block[:3], 1, GROUPS[-1], *block[3:], 0, 0, 32, 32, *FLAGS[0], PREFETCHES[-1], False,
            "engine", "",
        )
        for block in beside_engine(blocks, shape)[:1]  # of which nothing counts
    ]  # fmt: skip
    by_programs = [
        Row(chip, shape, *block[:3], split, GROUPS[-1], *block[3:], *when, *rows_of, ahead, False, "plain", "")
        for block in dict.fromkeys(chosen)
        for split, *when, rows_of, ahead in itertools.product(
            splits_of(block, shape), senders, leads, sorted(sent), prefetches
        )
        if rows_of[2] <= block[0]
    ]
    send_rows_of = SEND_ROWS[-1:] if small else SEND_ROWS[:0:-1]
    warps = [
        Row(
            chip, shape, *block[:3], 1, WARPS_GROUPS[0], 8, block[3], 1, senders, at_once, chunk[0], send_rows, *chunk,
            0, False, "warps", "",
        )
        for block, chunk, at_once, senders, send_rows in likeliest(
            by_warps(shape, ranks, WIDE_BLOCKS), CHUNKS, WARPS_AT_ONCE, WARPS_SENDERS, send_rows_of
        )
        if chunk[1] % block[2] == 0 and fits(block, chunk[0] * chunk[1] * 2)
    ]  # fmt: skip
    return by_engine + by_programs + warps[:at_most]


def likeliest(*choices: Sequence[Any]) -> list[tuple[Any, ...]]:
    """One of each of these choices: all of them, those first that are near the first of everything."""
    ranked = sorted(itertools.product(*map(enumerate, choices)), key=lambda row: sum(place for place, _ in row))
    return [tuple(one for _, one in row) for row in ranked]


def beside_engine(blocks: list[tuple[int, ...]], shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [block for block in blocks if shape[0] >= ENGINE_M and block[0] == 128 and block[4] == 3]


def by_warps(shape: tuple[int, ...], ranks: int, more: Sequence[tuple[int, ...]] = ()) -> list[tuple[int, ...]]:
    """Blocks (M, N, K) and stages for the kernels with explicit warps, the likeliest first, `more` before those that
    all have; none where ranks have too few rows."""
    if shape[0] < WARPS_ROWS * ranks:
        return []
    sizes = next(sizes for rows, sizes in WARPS_BLOCKS.items() if rows is None or shape[0] <= rows)
    return [block for block in (*more, *sizes) if fits(block, 0)]


def fits(block: tuple[int, ...], more_bytes: int) -> bool:
    """Whether a multiprocessor has shared memory for their ring, a tile of the output and so many bytes more."""
    m, n, k, stages = block
    return stages * (m + n) * k * 2 + m * n * 2 + more_bytes <= SHARED_BYTES - WARPS_BARRIER_BYTES


def products(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Blocks (M, N, K), warps, stages and programs a multiprocessor that may be good for a product of that shape."""
    sizes: list[tuple[int, int, int]]
    depths: tuple[int, ...]
    stages: tuple[int, ...]
    if shape[0] <= 64:
        sizes, depths, stages = [(64, 32, 4), (64, 64, 4), (64, 128, 4)], (64, 128, 256), (3, 4, 5, 6, 8)
    elif shape[0] <= 512:
        sizes, depths, stages = (
            [(128, 128, 8), (128, 128, 4), (128, 256, 8), (128, 64, 4), (64, 128, 4)],
            (64, 128),
            (3, 4, 5),
        )
    else:
        sizes, depths, stages = (
            [(128, 256, 8), (128, 128, 4), (128, 128, 8), (256, 128, 8), (128, 64, 4), (64, 128, 4), (64, 256, 8)],
            (64,),
            (3, 4, 5),
        )
    return [
        (bm, bn, bk, warps, stage, per_sm)
        for (bm, bn, warps), bk, stage, per_sm in itertools.product(sizes, depths, stages, (1, 2))
        if (bm + bn) * bk * 2 * stage * per_sm <= SHARED_BYTES and warps * per_sm <= 8
    ]


def splits_of(block: tuple[int, ...], shape: tuple[int, ...]) -> list[int]:
    """Among how many programs the depth of a tile may well be shared."""
    tiles = -(-shape[0] // block[0]) * -(-shape[1] // block[1])
    return [1, *(split for split in SPLITS if tiles * split <= MOST_SHARES)]


def apart(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """By which factors two shapes differ."""
    return sum(abs(math.log(a / b)) for a, b in zip(one, other, strict=True))


def close(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(0.5 <= a / b <= 2 for a, b in zip(one, other, strict=True))
