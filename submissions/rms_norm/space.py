"""rms_norm: which rows of the tuning table may be good for a shape, and what they ask of a chip."""

from collections.abc import Callable
from typing import Any

from common.space import Need, fitting
from common.tuning import Chip
from submission import by_plan, make_plan
from torch import Tensor
from tuning import Row

# Elements of a thread, threads of a multiprocessor in programs (forward 0: a program has one row).
FORWARD = [(8, 0), (16, 0), (32, 0)]
BACKWARD = [(16, 512), (8, 1024), (16, 1024), (32, 512), (32, 256)]
WAYS = [("evict_last", ".cs"), ("evict_last", ""), ("", ".cs"), ("", ""), ("evict_last", ".wt")]


def place(params: dict[str, Any]) -> dict[str, Any]:
    """The fields that say where in the table a case's row stands."""
    return {"shape": (params["rows"], params["hidden"]), "backward": params["backward"]}


def rows(chip: str, params: dict[str, Any]) -> list[Row]:
    """Rows to try on that chip: in the backward pass programs that sum up together, then each way of caching with the
    first programs, then others."""
    where = place(params).values()
    programs = BACKWARD if params["backward"] else FORWARD
    tried = [(programs[0], way) for way in WAYS] + [(one, WAYS[0]) for one in programs[1:]]
    together = [Row(chip, *where, *one, *WAYS[1], True, "") for one in programs[:2] if params["backward"]]
    return [*together, *(Row(chip, *where, *one, *way, False, "") for one, way in tried)]


def need(row: Row, params: dict[str, Any]) -> Need:
    """What a call with that row asks of a chip: each number of the four matrices is read or written once."""
    rows, hidden = row.shape
    nbytes = 2.0 * rows * hidden
    programs = max(1, row.resident * row.elements // hidden)
    return Need(
        flops=0.0,
        hbm_bytes=4 * nbytes,
        read_bytes=(3 if row.backward else 2) * nbytes,
        tiles=rows,
        fit=fitting(0, programs),
    )


def call(row: Row, chip: Chip, data: Any) -> Callable[[], tuple[Tensor, Tensor]]:
    """A call with that row."""
    plan = make_plan(row, chip, tuple(data[0].shape))
    return lambda: by_plan(plan, data)


def compile_row(row: Row, chip: Chip, params: dict[str, Any]) -> None:
    """Fills Triton's cache."""
    make_plan(row, chip, row.shape).compile()
