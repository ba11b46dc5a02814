"""How contests make one score of what was measured. A scoring is an entry of SCORINGS."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.core.olympic import olympic_mean
from harness.core.records import Measured
from harness.core.stats import geomean, ratio

GPU_MODE = "GPU MODE"


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """How a contest scores. `words` say what the number is, `contest` who scores like that, `of` which units of the
    ranked metric it can score; `unit` and `better` are of the score. `is_relative`: it changes with others' results.

    `case` makes of a measured case its value, in the score's unit, and `total` the score of all cases, in their order;
    the second list are the best values that anybody has reached in the same cases, which only relative scorings use.
    `factors` has the factors whose product is a case's value, by name; it is empty where the value is no product."""

    words: str
    contest: str
    of: tuple[str, ...]
    unit: str
    better: Literal["less", "more"]
    case: Callable[[Measured], float]
    total: Callable[[Sequence[float], Sequence[float]], float]
    factors: Callable[[Measured], dict[str, float]] = lambda measured: {}
    is_relative: bool = False


def mean_s(measured: Measured) -> float:
    """The mean time of a call in seconds (not the median); samples and summaries are in us."""
    series = measured.ranked
    return (statistics.fmean(series.own) if series.own or series.summary is None else series.summary.mean) / 1e6


def of_means(words: str, over: Callable[[Sequence[float]], float]) -> Scoring:
    """GPU MODE's: seconds over all cases, lower is better, of the cases' mean times.

    Source: ranking_by in gpu-mode/kernelbot src/libkernelbot: geom is (product of means) ** (1/n).
    """
    return Scoring(
        words=words,
        contest=GPU_MODE,
        of=("us",),
        unit="s",
        better="less",
        case=mean_s,
        total=lambda own, best: over(own),
    )


def sum_of_best(own: Sequence[float], best: Sequence[float]) -> float:
    """The sum over cases of the best value over one's own, so that a case that nobody does better counts 1, and one
    without an answer (an infinite value) 0.

    Source: the ASPLOS / EuroSys 2025 contest on intra-operator parallelism, whose 20 withheld instances count.
    """
    return math.fsum(least / value for value, least in zip(own, best, strict=True))


def product_factors(measured: Measured) -> dict[str, float]:
    """Of a prompt: accuracy (0 or 1), how many times as early the first token is as the reference's, and how many times
    as many tokens a second come; the reference has 1. The ratios are medians over pairs; 1 where nothing was measured
    beside the submission. A prompt that is not right has 0 in the contest; here a failed evaluation has no score.

    Source: AWS's NKI track of the ASPLOS 2025 contest, whose base times are constants, while the reference is measured
    here in the same run. The contest also multiplies by 1 + the share of own kernels, which only the submission's own
    process could measure here: it would be a claim.
    """
    series = measured.by_name
    ratios = {
        words: ratio(series[name]) if name in series and series[name].baseline else 1.0
        for words, name in (("first token", "ttft"), ("tokens/s", "tokens"))
    }
    return {"accuracy": 1.0} | ratios


SCORINGS: dict[str, Scoring] = {
    "geom": of_means("geometric mean of the means", geomean),
    "mean": of_means("mean of the means", statistics.fmean),
    "last": of_means("mean of the last shape", lambda means_s: means_s[-1]),
    "relative": Scoring(
        words="sum over instances of the best known cost / own cost",
        contest="the IOPDDL contest",
        of=("cost",),
        unit="points",
        better="more",
        case=lambda measured: statistics.median(measured.ranked.own),
        total=sum_of_best,
        is_relative=True,
    ),
    "olympic": Scoring(  # a run that did not converge stands in the series with the time of the slowest
        words="mean time to the target without the fastest and the slowest run",
        contest="MLPerf Training",
        of=("s",),
        unit="s",
        better="less",
        case=lambda measured: olympic_mean(measured.ranked.own),
        total=lambda own, best: statistics.fmean(own),
    ),
    "product": Scoring(
        words="mean over prompts of accuracy x first token x tokens/s (without a share of own kernels)",
        contest="the NKI Llama contest",
        of=("tokens/s",),
        unit="points",
        better="more",
        case=lambda measured: math.prod(product_factors(measured).values()),
        total=lambda own, best: statistics.fmean(own),
        factors=product_factors,
    ),
}


def mismatch(ranking_by: str, unit: str) -> str:
    """Why a problem whose ranked metric has that unit cannot be ranked so; empty where it can be."""
    if unit in SCORINGS[ranking_by].of:
        return ""
    fit = " or ".join(name for name, scoring in SCORINGS.items() if unit in scoring.of)
    of = " or ".join(SCORINGS[ranking_by].of)
    return f"'{ranking_by}' scores values in {of}, and this problem's are in {unit}: write {fit}"
