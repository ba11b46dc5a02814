"""swiglu: which rows of the tuning table may be good for a shape, and what they ask of a chip."""

from collections.abc import Callable
from typing import Any

from common.space import Need, fitting
from common.tuning import Chip
from submission import by_plan, make_plan
from torch import Tensor
from tuning import Row

BLOCKS = [(2048, 256), (4096, 256), (1024, 128), (4096, 512)]  # columns and threads of a program
WAYS = [("evict_last", ".cs"), ("evict_last", ""), ("evict_last", ".cg"), ("evict_last", ".wt"), ("", ".cs")]


def place(params: dict[str, Any]) -> dict[str, Any]:
    """The fields that say where in the table a case's row stands."""
    return {"shape": (params["rows"], params["ffn"]), "backward": params["backward"]}


def rows(chip: str, params: dict[str, Any]) -> list[Row]:
    """Rows to try on that chip: each way of caching with the first block, then other blocks."""
    where = place(params).values()
    tried = [(BLOCKS[0], way) for way in WAYS] + [(block, WAYS[0]) for block in BLOCKS[1:]]
    return [Row(chip, *where, *block, *way, "") for block, way in tried]


def need(row: Row, params: dict[str, Any]) -> Need:
    """What a call with that row asks of a chip: each number is read or written once."""
    rows, columns = row.shape
    nbytes = 2.0 * rows * columns
    return Need(
        flops=0.0,
        hbm_bytes=(5 if row.backward else 3) * nbytes,
        read_bytes=(3 if row.backward else 2) * nbytes,
        tiles=rows * -(-columns // row.block),
        fit=fitting(0),
    )


def call(row: Row, chip: Chip, data: Any) -> Callable[[], Tensor]:
    """A call with that row."""
    plan = make_plan(row, chip, (data[0].shape[0], data[0].shape[1] // 2))
    return lambda: by_plan(plan, data)


def compile_row(row: Row, chip: Chip, params: dict[str, Any]) -> None:
    """Fills Triton's cache."""
    make_plan(row, chip, row.shape).compile()
