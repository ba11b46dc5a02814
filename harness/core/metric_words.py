"""What tables, plots and messages call the values of a metric, by its unit: one entry of WORDS a unit."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from harness.core.records import Bound, CaseFigures, CaseResult, Metric
from harness.core.words import percent_text, size_text, us_text


def spread_text(figures: CaseFigures, bound: Bound | None) -> str:
    """The interquartile range over the median."""
    return percent_text(figures.spread) if figures.spread is not None else "-"


def gap_text(figures: CaseFigures, bound: Bound | None) -> str:
    """The decades between the value and its bound: log10(value / bound)."""
    return f"{math.log10(figures.value / bound.value):.3f}" if bound is not None else "-"


def rate_of_tokens_text(value: float) -> str:
    """Tokens a second, to four digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def cost_text(value: float) -> str:
    """A cost in full, or to six digits where it is long."""
    return f"{value:,.0f}" if value < 1e12 else f"{value:.6g}"


@dataclass(frozen=True, kw_only=True)
class MetricWords:
    """`columns` are the table's: shape, reference, own value, ratio, bound, fraction of it, `further`, samples. `value`
    and `further` make a cell. `legend` has what is said of columns, by their names. `better` and `worse` are said of
    one file against another, `compared`, `in_turn` and `judged` of two that were measured together, `apart` of two
    runs."""

    columns: tuple[str, str, str, str, str, str, str, str]
    value: Callable[[float], str]
    further: Callable[[CaseFigures, Bound | None], str]
    legend: dict[str, str]
    axis: str
    better: str
    worse: str
    compared: str
    in_turn: str
    apart: str
    more_samples: str
    judged: str
    limit: str = "limit"

    @property
    def case(self) -> str:
        """What a case is called."""
        return self.columns[0]

    @property
    def ratio(self) -> str:
        """What the ratio to the reference is called."""
        return self.columns[3].removeprefix(">")


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
    better="faster",
    worse="slower",
    compared="Times are medians (wall clock), A / B is by pairs of calls in blocks.",
    in_turn="timed in turn on the same inputs",
    apart="timed in a run each, another time",
    more_samples="--seconds says how long a shape is timed",
    judged="Outputs of A and of B were judged in every call.",
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
    better="cheaper",
    worse="dearer",
    compared="Costs are medians over runs, A / B is by pairs of runs under the same limit.",
    in_turn="run in turn on the same instances",
    apart="run apart, another time",
    more_samples="--seconds says how long an instance is run, over and over",
    judged="Every answer that counts was judged.",
    limit="bound",
)
RUNS = MetricWords(
    columns=("case", ">ref s", ">time s", ">speedup", ">limit s", ">limit %", ">spread", ">n"),
    value=us_text,
    further=spread_text,
    legend={
        "time s": "Times to the target are medians over runs",
        "speedup": "speedup is the median ratio of runs on the same data",
        "spread": "spread is the interquartile range",
        "n": "n is the number of runs",
        "limit %": "limit % is limit / time",
    },
    axis="median time to the target, s (logarithmic; left is better)",
    better="faster",
    worse="slower",
    compared="Times to the target are medians over runs, A / B is by pairs of runs on the same data.",
    in_turn="run in turn on the same data",
    apart="run apart, another time",
    more_samples="the shape file says how many runs a case has",
    judged="The weights of every run were evaluated.",
)
MEMORY = MetricWords(
    columns=("peak memory", ">ref", ">own", ">ratio", ">least", ">least %", ">spread", ">n"),
    value=lambda value: size_text(int(value)),
    further=spread_text,
    legend={
        "own": "Peak memory is what a call holds of the device at most, input and result included",
        "ratio": "ratio is reference / own",
        "least %": "least % is least / own",
    },
    axis="peak memory of a call (logarithmic; left is better)",
    better="leaner",
    worse="larger",
    compared="Peak memory is the median over calls, A / B is by pairs of calls.",
    in_turn="measured in turn on the same inputs",
    apart="measured in a run each, another time",
    more_samples="--seconds says how long a shape is timed",
    judged="Every output that is timed was judged.",
    limit="least",
)
TOKENS = MetricWords(
    columns=("prompt", ">ref tok/s", ">tok/s", ">speedup", ">limit", ">limit %", ">spread", ">n"),
    value=rate_of_tokens_text,
    further=spread_text,
    legend={
        "tok/s": "Tokens a second are medians over whole generations, prompt included",
        "speedup": "speedup is the median ratio on the same prompt",
        "spread": "spread is the interquartile range",
        "n": "n is the number of timed generations",
        "limit %": "limit % is tok/s / limit",
    },
    axis="tokens a second, median (logarithmic; right is better)",
    better="faster",
    worse="slower",
    compared="Tokens a second are medians, A / B is by pairs of generations in blocks.",
    in_turn="timed in turn on the same prompts",
    apart="timed in a run each, another time",
    more_samples="--seconds says how long a prompt is timed",
    judged="Outputs of A and of B were judged in every call.",
)
WORDS = {"us": TIMES, "cost": COSTS, "s": RUNS, "bytes": MEMORY, "tokens/s": TOKENS}


def words_of(metric: Metric | None) -> MetricWords:
    """The words for a metric; those of times where its unit has none of its own."""
    return words_of_unit(metric.unit) if metric else TIMES


def words_of_unit(unit: str) -> MetricWords:
    """The words for values in that unit."""
    return WORDS.get(unit, TIMES)


def words_of_results(results: Sequence[CaseResult]) -> MetricWords:
    """The words for the metric that ranks these cases; those of times where none was measured."""
    return words_of(next((one.figures.metric for one in results if one.figures is not None), None))


def ratio_name(units: Iterable[str]) -> str:
    """What ratios of values in these units are called together."""
    names = {words_of_unit(unit).ratio for unit in units} or {TIMES.ratio}
    return names.pop() if len(names) == 1 else "ratio"
