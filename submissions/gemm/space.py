"""gemm: which rows of the tuning table may be good for a shape, and what they ask of a chip."""

import itertools
from collections.abc import Callable
from typing import Any

from common.space import Need, fitting
from common.tuning import Chip
from submission import as_planned, make_plan
from torch import Tensor
from tuning import Row

# block_m, block_n, block_k, stages, group, shared, parts; `tune-kernel gemm --at-most 12` tries all of them
WARPS = [
    (128, 256, 64, 3, 16, True, 1),
    (128, 256, 64, 3, 12, True, 1),
    (128, 256, 64, 3, 8, True, 1),
    (128, 256, 64, 4, 16, True, 2),
    (128, 256, 64, 4, 8, True, 2),
    (256, 128, 64, 3, 8, True, 1),
    (128, 256, 64, 3, 16, False, 1),
    (128, 256, 64, 3, 8, False, 1),
    (128, 256, 64, 4, 16, False, 2),
    (256, 128, 64, 3, 8, False, 1),
    (128, 128, 64, 6, 16, False, 1),
]
PLAIN = [(128, 256, 64, 3, 8), (128, 128, 64, 4, 8), (128, 128, 64, 4, 4), (64, 256, 64, 3, 4), (128, 64, 64, 4, 4)]
GROUPS = (4, 8, 12, 16, 24, 32)  # rows of tiles


def place(params: dict[str, int]) -> dict[str, Any]:
    """The fields that say where in the table a case's row stands."""
    return {"shape": (params["m"], params["n"], params["k"])}


def rows(chip: str, params: dict[str, int]) -> list[Row]:
    """Rows to try on that chip."""
    shape = place(params)["shape"]
    by_warps = [Row(chip, shape, "warps", *one[:5], 4, *one[5:], "") for one in WARPS if chip == "sm_90"]
    plain = [
        Row(chip, shape, "plain", *block[:4], group, block[4], False, 1, "")
        for block, group in itertools.product(PLAIN, GROUPS)
    ]
    return by_warps + plain


def need(row: Row, params: dict[str, int]) -> Need:
    """What a call with that row asks of a chip. Programs that run at the same time share a block's operands in the L2
    cache, so a group of rows is read once for each of its columns of tiles."""
    m, n, k = params["m"], params["n"], params["k"]
    tiles_m, tiles_n = -(-m // row.block_m), -(-n // row.block_n)
    units = -(-k // row.block_k) if row.shared else 1  # of a tile, that programs share
    # A tile leaves from memory of its own (warps), or in the ring's place.
    leaving = row.block_m * row.block_n * 2 // row.parts if row.kernel == "warps" else 0
    shared_bytes = row.stages * (row.block_m + row.block_n) * row.block_k * 2 + leaving
    groups = -(-tiles_m // row.group)
    return Need(
        flops=2.0 * tiles_m * row.block_m * tiles_n * row.block_n * k,
        hbm_bytes=2.0 * (m * k + groups * n * k + m * n),
        read_bytes=2.0 * tiles_m * tiles_n * (row.block_m + row.block_n) * k,
        tiles=tiles_m * tiles_n * units,
        fit=fitting(shared_bytes),
    )


def call(row: Row, chip: Chip, data: tuple[Tensor, Tensor]) -> Callable[[], Tensor] | None:
    """A call with that row; None where no kernel can do it."""
    plan = make_plan(row, chip, len(data[0]), len(data[1]), data[0].shape[1])
    return None if plan is None else lambda: as_planned(*data, plan)


def compile_row(row: Row, chip: Chip, params: dict[str, int]) -> None:
    """Fills Triton's cache."""
    plan = make_plan(row, chip, params["m"], params["n"], params["k"])
    if plan:
        plan.launch.compile(plan.example_arguments(), plan.constants, plan.options)
