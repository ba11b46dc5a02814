"""What tables, plots and legends call the values of a metric, by its unit: one entry of WORDS a unit."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from harness.core.records import Bound, CaseFigures, Metric
from harness.core.words import percent_text, us_text


def spread_text(figures: CaseFigures, bound: Bound | None) -> str:
    """The interquartile range over the median."""
    return percent_text(figures.spread) if figures.spread is not None else "-"


def gap_text(figures: CaseFigures, bound: Bound | None) -> str:
    """The decades between the value and its bound: log10(value / bound)."""
    return f"{math.log10(figures.value / bound.value):.3f}" if bound is not None else "-"


def cost_text(value: float) -> str:
    """A cost in full, or to six digits where it is long."""
    return f"{value:,.0f}" if value < 1e12 else f"{value:.6g}"


@dataclass(frozen=True, kw_only=True)
class MetricWords:
    """`columns` are the table's: shape, reference, own value, ratio, bound, fraction of it, `further`, samples. `value`
    and `further` make a cell. `legend` has what is said of columns, by their names."""

    columns: tuple[str, str, str, str, str, str, str, str]
    value: Callable[[float], str]
    further: Callable[[CaseFigures, Bound | None], str]
    legend: dict[str, str]
    axis: str
    limit: str = "limit"
    left: str = "faster"  # what is further to the left


TIMES = MetricWords(
    columns=("shape", ">ref us", ">time us", ">speedup", ">limit us", ">limit %", ">spread", ">n"),
    value=us_text,
    further=spread_text,
    legend={
        "time us": "Times are medians",
        "speedup": "speedup is the median ratio on the same input",
        "spread": "spread is the interquartile range",
        "n": "n is the number of timed calls",
        "limit %": "limit % is limit / time",
    },
    axis="median time of a call, us (logarithmic; left is better)",
)
COSTS = MetricWords(
    columns=("instance", ">ref cost", ">cost", ">ratio", ">bound", ">bound %", ">gap", ">n"),
    value=cost_text,
    further=gap_text,
    legend={
        "cost": "Costs are medians over n runs",
        "ratio": "ratio is reference / own under the same limit",
        "bound %": "bound is proved, bound % is bound / cost",
        "gap": "gap is log10(cost / bound)",
    },
    axis="cost (logarithmic; left is better)",
    limit="bound",
    left="cheaper",
)
WORDS = {"us": TIMES, "cost": COSTS}


def words_of(metric: Metric | None) -> MetricWords:
    """The words for a metric; those of times where its unit has none of its own."""
    return WORDS.get(metric.unit, TIMES) if metric else TIMES
