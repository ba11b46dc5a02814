"""attention: which rows of the tuning table may be good for a shape, and what they ask of a chip."""

import itertools
from collections.abc import Callable
from typing import Any

from common.space import Need, fitting
from common.tuning import Chip
from submission import Shape, by_row, make_plan, shape_of
from tuning import Row

WARPS = (128, 128, 2)
PLAIN = list(itertools.product((64, 128), (32, 64, 128), (1, 2, 3)))


def place(params: dict[str, Any]) -> dict[str, Any]:
    """The fields that say where in the table a case's row stands."""
    batch = params["batch"]
    shape = (batch * params["heads"], batch * params["kv_heads"], params["seq"], params["dim"])
    return {"shape": shape, "backward": params["backward"]}


def rows(chip: str, params: dict[str, Any]) -> list[Row]:
    """Rows to try on that chip."""
    fixed = place(params)
    shape, backward = fixed["shape"], fixed["backward"]
    plain = [
        Row(chip, shape, backward, "plain", *block, warps, "") for block, warps in itertools.product(PLAIN, (4, 8))
    ]
    if chip != "sm_90":
        return plain
    if backward:
        # cuDNN's took 1.00 to 1.08 times as long as ours where both were measured.
        by_warps = Row(chip, shape, True, "warps", 64, 128, 2, 8, "")
        return [Row(chip, shape, True, "library", 0, 0, 0, 0, ""), by_warps, *plain]
    return [Row(chip, shape, False, "warps", *WARPS, 4, ""), *plain]


def need(row: Row, params: dict[str, Any]) -> Need:
    """What a call with that row asks of a chip: the products of all pairs of blocks that hold one, five of them
    backward (by plain kernels seven, as they make scores twice). Every block of queries reads its keys and values;
    backward, every block of keys its queries and the output's gradients."""
    heads, kv_heads, seq, dim = place(params)["shape"]
    products = (7 if row.kernel == "plain" else 5) if row.backward else 2
    block_m, block_n = row.block_m or 1, row.block_n or 1
    blocks = -(-seq // block_m)
    pairs = sum(-(-(block + 1) * block_m // block_n) for block in range(blocks)) * block_m * block_n
    read = pairs / (block_n if row.backward else block_m) * dim * 4 if row.block_m else 0.0
    held = block_m + 2 * row.stages * block_n if not row.backward else 2 * (block_n + row.stages * block_m)
    return Need(
        flops=2.0 * products * heads * pairs * dim,
        hbm_bytes=(8.0 if row.backward else 4.0) * seq * dim * (heads + kv_heads),
        read_bytes=heads * read,
        tiles=heads * blocks,
        fit=fitting(held * dim * 2),
    )


def call(row: Row, chip: Chip, data: Any) -> Callable[[], Any] | None:
    """A call with that row; None where no kernel can do it."""
    plan = make_plan(row, chip, shape_of(*data[:2]))
    return None if plan is None and row.kernel != "library" else lambda: by_row(row, data)


def compile_row(row: Row, chip: Chip, params: dict[str, Any]) -> None:
    """Fills Triton's cache."""
    shape: Shape = place(params)["shape"]
    plan = make_plan(row, chip, shape)
    for step, arguments in plan.examples() if plan else ():
        step.launch.compile(arguments, step.constants, step.options)
