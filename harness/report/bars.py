"""A row of characters a shape: how far submission and reference are from the limit, on one logarithmic axis.

    |==============#.......o      the limit, the submission, the reference

Every row begins at its own limit, so that what is read off is a ratio: the length up to the submission's mark is how
far it is from the limit, and whose mark is further left is the faster one. Where a limit is not known for every row,
rows begin at the faster of the two instead. Knows nothing of reports, consoles or colours.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.core.stats import geomean

Part = Literal["limit", "line", "own", "dots", "ref", "both", "space"]
Marks = dict[Part, str]
UNICODE: Marks = {"limit": "┃", "line": "━", "own": "●", "dots": "┄", "ref": "○", "both": "◉", "space": " "}
ASCII: Marks = {"limit": "|", "line": "=", "own": "#", "dots": ".", "ref": "o", "both": "@", "space": " "}


@dataclass(frozen=True, kw_only=True)
class Times:
    """What a row shows, all in one unit and above 0."""

    own: float
    ref: float
    bound: float | None


def mean_of(rows: Sequence[Times]) -> Times:
    bounds = [one.bound for one in rows if one.bound is not None]
    return Times(
        own=geomean([one.own for one in rows]),
        ref=geomean([one.ref for one in rows]),
        bound=geomean(bounds) if len(bounds) == len(rows) else None,
    )


@dataclass(frozen=True, kw_only=True)
class Axis:
    """From 1 at the left edge to `most`, in `width` columns; of the bound, or of the faster of the two."""

    most: float
    width: int
    of_bound: bool

    def start(self, times: Times) -> float:
        """What the left edge stands for in this row."""
        return times.bound if self.of_bound and times.bound is not None else min(times.own, times.ref)

    def column(self, times: Times, value: float) -> int:
        """The column of a value of this row, from 0 to width - 1."""
        if self.most <= 1:
            return 0
        at = round(math.log(value / self.start(times)) / math.log(self.most) * (self.width - 1))
        return min(max(at, 0), self.width - 1)


def axis(rows: Sequence[Times], width: int) -> Axis:
    """The axis on which all these rows have room; there is at least one row."""
    of_bound = all(row.bound is not None for row in rows)
    empty = Axis(most=1.0, width=width, of_bound=of_bound)
    most = max(max(row.own, row.ref) / empty.start(row) for row in rows)
    return Axis(most=most, width=width, of_bound=of_bound)


def parts(times: Times, on: Axis) -> list[Part]:
    """What stands in each column; behind the last mark there is only space."""
    own, ref = on.column(times, times.own), on.column(times, times.ref)
    made: list[Part] = ["line" if at <= own else "dots" if at <= ref else "space" for at in range(on.width)]
    if on.of_bound:
        made[0] = "limit"
    made[ref] = "ref"
    made[own] = "both" if own == ref else "own"
    return made
