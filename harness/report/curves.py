"""How values improved while a submission ran: as a table for terminals, and as a panel of a figure.

Knows curves; draws on whatever axes it is given. A figure needs matplotlib, which the caller has imported.
"""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from harness.core.curve import Curve, Point
from harness.core.metric_words import words_of
from harness.core.records import CaseResult, Measured
from harness.core.words import case_label, plain_table

PARTS = (0.05, 0.1, 0.25, 0.5, 1.0)  # of the limit, at which the table says what was reached


def value_at(points: Sequence[Point], at_s: float) -> float | None:
    """What had been reached by then; None before the first answer."""
    return next((point.value for point in reversed(points) if point.at_s <= at_s), None)


def has_curves(results: Sequence[CaseResult]) -> bool:
    """Whether there is a curve among them."""
    return any(isinstance(one.outcome, Measured) and one.outcome.curves for one in results)


def curve_table(results: Sequence[CaseResult], console: Console) -> Table:
    """The first run of each case: what either side had reached at PARTS of the limit, of the last of them where the
    console has no room for all. Late answers count at the limit's end."""
    for parts in (PARTS[number:] for number in range(len(PARTS))):
        table = _table(results, parts)
        if Measurement.get(console, console.options.update(width=10_000), table).maximum <= console.width:
            break
    return table


def _table(results: Sequence[CaseResult], parts: Sequence[float]) -> Table:
    table = plain_table("reached by", "of", *(f">{part:.0%}" for part in parts))
    for result in results:
        if not isinstance(result.outcome, Measured) or not result.outcome.curves:
            continue
        curve, words = result.outcome.curves[0], words_of(result.outcome.ranked.metric)
        for side, points in (("submission", curve.own), ("reference", curve.baseline)):
            cells = ["-" if found is None else words.value(found) for found in _reached(points, parts, curve.limit_s)]
            label = case_label(result) if side == "submission" else ""
            table.add_row(Text(label), side, *cells)
        if curve.known is not None:
            reached = _reached(curve.own, parts, curve.limit_s)
            table.add_row("", "best / own", *("-" if one is None else f"{curve.known / one:.4f}" for one in reached))
    return table


def _reached(points: Sequence[Point], parts: Sequence[float], limit_s: float) -> list[float | None]:
    """The value at those parts of the limit; at its end, late answers count."""
    return [value_at(points, part * limit_s if part < 1 else float("inf")) for part in parts]


def draw(axes: Any, result: CaseResult, measured: Measured, colours: dict[str, str]) -> None:
    """A case's first run: value over time of either side, and the bound. `colours` are those of `own`, `ref`,
    `limit`."""
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
