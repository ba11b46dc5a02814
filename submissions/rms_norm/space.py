"""rms_norm: which rows of the tuning table may be good for a shape, and what they ask of a chip."""

from collections.abc import Callable
from typing import Any

from common.space import Need, fitting
from common.tuning import Chip
from submission import by_plan, make_plan
from torch import Tensor
from tuning import Row

# Elements of a thread, threads of a multiprocessor in programs (0: a program has one row), stages.
FORWARD = [(16, 1024, 3), (8, 0, 1), (16, 1024, 4), (8, 1024, 4), (16, 0, 1), (32, 1024, 3), (32, 0, 1)]
BACKWARD = [
    (16, 512, 2),
    (16, 512, 4),
    (16, 512, 3),
    (8, 1024, 4),
    (8, 1024, 3),
    (32, 256, 4),
    (8, 1024, 2),
]
WAYS = [("evict_last", ".cs"), ("evict_last", ""), ("", ".cs"), ("", ""), ("evict_last", ".wt")]


def place(params: dict[str, Any]) -> dict[str, Any]:
    """The fields that say where in the table a case's row stands."""
    return {"shape": (params["rows"], params["hidden"]), "backward": params["backward"]}


def rows(chip: str, params: dict[str, Any]) -> list[Row]:
    """Rows to try on that chip: each kind of programs with one way of caching, then other ways with the second kind."""
    where = place(params).values()
    programs = BACKWARD if params["backward"] else FORWARD
    ways = [WAYS[1], WAYS[0], *WAYS[2:]] if params["backward"] else WAYS
    tried = [*((one, ways[0]) for one in programs), *((programs[1], way) for way in ways[1:])]
    return [Row(chip, *where, *one, *way, "") for one, way in tried]


def need(row: Row, params: dict[str, Any]) -> Need:
    """What a call with that row asks of a chip: each number of the four matrices is read or written once."""
    rows, hidden = row.shape
    nbytes = 2.0 * rows * hidden
    matrices, in_registers = (3, 2) if row.backward else (2, 1)  # `stages` that need no shared memory
    ahead = 0 if row.stages == in_registers else (row.stages - 1) * 2 * matrices * hidden
    programs = max(1, row.resident * row.elements // hidden)
    return Need(
        flops=0.0,
        hbm_bytes=4 * nbytes,
        read_bytes=(3 if row.backward else 2) * nbytes,
        tiles=rows,
        fit=fitting(ahead, programs),
    )


def call(row: Row, chip: Chip, data: Any) -> Callable[[], tuple[Tensor, Tensor]]:
    """A call with that row."""
    plan = make_plan(row, chip, tuple(data[0].shape))
    return lambda: by_plan(plan, data)


def compile_row(row: Row, chip: Chip, params: dict[str, Any]) -> None:
    """Fills Triton's cache."""
    make_plan(row, chip, row.shape).compile()
