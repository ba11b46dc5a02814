"""How values improved while a submission ran: as a table, and as a panel of a figure.

Knows curves; draws on whatever axes it is given. A figure needs matplotlib, which the caller has imported.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from harness.core.curve import Curve, Point
from harness.core.records import CaseResult, Measured
from harness.core.words import or_dash
from harness.report.document import Table, UntrustedText, Words, column

PARTS = (0.05, 0.1, 0.25, 0.5, 1.0)  # of the limit, at which the table says what was reached


def value_at(points: Sequence[Point], at_s: float) -> float | None:
    """What had been reached by then; None before the first answer."""
    return next((point.value for point in reversed(points) if point.at_s <= at_s), None)


def has_curves(results: Sequence[CaseResult]) -> bool:
    return any(isinstance(one.outcome, Measured) and one.outcome.curves for one in results)


def curve_table(results: Sequence[CaseResult]) -> Iterator[Table]:
    """The first run of each case: what either side had reached at PARTS of the limit, of the last of them where there
    is no room for all. Late answers count at the limit's end. No table without curves."""
    rows: list[list[Words]] = []
    for result in results:
        if not isinstance(result.outcome, Measured) or not result.outcome.curves:
            continue
        curve, unit = result.outcome.curves[0], result.outcome.ranked.metric.words
        ends = [part * curve.limit_s if part < 1 else math.inf for part in PARTS]
        for side, points in (("submission", curve.own), ("reference", curve.baseline)):
            reached = [value_at(points, end_s) for end_s in ends]
            label = UntrustedText(result.case.title) if side == "submission" else ""
            rows.append([label, side, *(or_dash(unit.value, value) for value in reached)])
        if curve.known is not None:
            reached = [value_at(curve.own, end_s) for end_s in ends]
            rows.append(["", "best / own", *("-" if one is None else f"{curve.known / one:.4f}" for one in reached)])
    if rows:
        parts = [column(f">{part:.0%}", drop=index if part < 1 else 0) for index, part in enumerate(PARTS, start=1)]
        yield Table(("=reached by", "of", *parts), rows)


def draw(axes: Any, result: CaseResult, measured: Measured, colours: dict[str, str]) -> None:
    """A case's first run: values over time, and the bound. `colours` are those of `own`, `ref`, `limit`."""
    curve: Curve = measured.curves[0]
    for name, points in (("own", curve.own), ("ref", curve.baseline)):
        if points:
            last = max(curve.limit_s, points[-1].at_s)
            times = [*(point.at_s for point in points), last]
            values = [*(point.value for point in points), points[-1].value]
            axes.step(times, values, where="post", color=colours[name], linewidth=1.75)
    if result.bound is not None:
        axes.axhline(result.bound.value, color=colours["limit"], linewidth=1.25, linestyle="--")
    axes.set_yscale("log")
    axes.set_xlim(0, None)
    axes.set_xlabel("seconds", fontsize=9)
