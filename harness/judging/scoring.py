"""The contest's own score, a rule an entry of SCORINGS. Pure functions over what was measured."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from harness.core.olympic import olympic_mean
from harness.core.records import Measured
from harness.core.stats import geomean, ratio

GPU_MODE = "GPU MODE"


class Scoring(Protocol):
    """How a contest makes one number of a submission's cases."""

    @property
    def unit(self) -> str:
        """Of the score."""
        ...

    @property
    def better(self) -> Literal["less", "more"]:
        """Which scores are the better."""
        ...

    @property
    def of(self) -> tuple[str, ...]:
        """The units of the ranked metric that it can score."""
        ...

    @property
    def words(self) -> str:
        """What the number is, for the reader."""
        ...

    @property
    def contest(self) -> str:
        """Who scores like that."""
        ...

    @property
    def is_relative(self) -> bool:
        """Whether a score changes with others' results."""
        ...

    def case(self, measured: Measured) -> float:
        """What one case comes to, in the score's unit."""
        ...

    def factors(self, measured: Measured) -> dict[str, float]:
        """The factors whose product is a case's value, by name; empty if the value is not a product."""
        ...

    def total(self, own: Sequence[float], best: Sequence[float]) -> float:
        """The score of all cases, in their order. `best` are the best values that anybody has reached in the same
        cases, for contests that score relative to others; other scorings leave it alone."""
        ...


@dataclass(frozen=True)
class MeanTimes:
    """GPU MODE's: seconds, lower is better, from the cases' mean times (not medians).

    Source: ranking_by in gpu-mode/kernelbot src/libkernelbot: geom is (product of means) ** (1/n).
    """

    words: str
    over: Callable[[Sequence[float]], float]
    of: tuple[str, ...] = ("us",)
    unit: str = "s"
    better: Literal["less", "more"] = "less"
    contest: str = GPU_MODE
    is_relative: bool = False

    def case(self, measured: Measured) -> float:
        """The mean time of a call in seconds; samples and summaries are in us."""
        series = measured.ranked
        return (statistics.fmean(series.own) if series.own or series.summary is None else series.summary.mean) / 1e6

    def factors(self, measured: Measured) -> dict[str, float]:
        """None: a mean is no product."""
        return {}

    def total(self, own: Sequence[float], best: Sequence[float]) -> float:
        """Seconds over all cases."""
        return self.over(own)


@dataclass(frozen=True)
class SumOfBest:
    """The sum over cases of the best value over one's own, so that a case that nobody does better counts 1, and one
    without an answer (an infinite value) 0.

    Source: the ASPLOS / EuroSys 2025 contest on intra-operator parallelism, whose 20 withheld instances count.
    """

    words: str = "sum over instances of the best known cost / own cost"
    of: tuple[str, ...] = ("cost",)
    unit: str = "points"
    better: Literal["less", "more"] = "more"
    contest: str = "the IOPDDL contest"
    is_relative: bool = True

    def case(self, measured: Measured) -> float:
        """The median over runs."""
        return statistics.median(measured.ranked.own)

    def factors(self, measured: Measured) -> dict[str, float]:
        """None: the value is what was measured."""
        return {}

    def total(self, own: Sequence[float], best: Sequence[float]) -> float:
        """Points, as many as there are cases at most."""
        return math.fsum(least / value for value, least in zip(own, best, strict=True))


@dataclass(frozen=True)
class OlympicTimes:
    """MLPerf Training's: the time to the target, without the fastest and the slowest run. A run that did not converge
    stands in the series with the time of the slowest."""

    words: str = "mean time to the target without the fastest and the slowest run"
    of: tuple[str, ...] = ("s",)
    unit: str = "s"
    better: Literal["less", "more"] = "less"
    contest: str = "MLPerf Training"
    is_relative: bool = False

    def case(self, measured: Measured) -> float:
        """Seconds; samples are in seconds."""
        return olympic_mean(measured.ranked.own)

    def factors(self, measured: Measured) -> dict[str, float]:
        """None: a mean is no product."""
        return {}

    def total(self, own: Sequence[float], best: Sequence[float]) -> float:
        """The mean over cases."""
        return statistics.fmean(own)


@dataclass(frozen=True)
class MeanOfProducts:
    """The mean over prompts of accuracy (0 or 1) x how many times as early the first token is as the reference's x how
    many times as many tokens a second; the reference has 1. A prompt that is not right has 0 in the contest; here a
    failed evaluation has no score at all.

    Source: AWS's NKI track of the ASPLOS 2025 contest, whose base times are constants, while the reference is measured
    here in the same run. The contest also multiplies by 1 + the share of own kernels, which only the submission's own
    process could measure here: it would be a claim.
    """

    words: str = "mean over prompts of accuracy x first token x tokens/s (without a share of own kernels)"
    of: tuple[str, ...] = ("tokens/s",)
    unit: str = "points"
    better: Literal["less", "more"] = "more"
    contest: str = "the NKI Llama contest"
    is_relative: bool = False

    def case(self, measured: Measured) -> float:
        """A prompt's points."""
        return math.prod(self.factors(measured).values())

    def factors(self, measured: Measured) -> dict[str, float]:
        """The ratios are medians over pairs; 1 where nothing was measured beside the submission."""
        series = measured.by_name
        ratios = {
            words: ratio(series[name]) if name in series and series[name].baseline else 1.0
            for words, name in (("first token", "ttft"), ("tokens/s", "tokens"))
        }
        return {"accuracy": 1.0} | ratios

    def total(self, own: Sequence[float], best: Sequence[float]) -> float:
        """The mean of all prompts' points."""
        return statistics.fmean(own)


SCORINGS: dict[str, Scoring] = {
    "geom": MeanTimes("geometric mean of the means", geomean),
    "mean": MeanTimes("mean of the means", statistics.fmean),
    "last": MeanTimes("mean of the last shape", lambda means_s: means_s[-1]),
    "relative": SumOfBest(),
    "olympic": OlympicTimes(),
    "product": MeanOfProducts(),
}


def mismatch(ranking_by: str, unit: str) -> str:
    """Why a problem whose ranked metric has that unit cannot be ranked so; empty where it can be."""
    if unit in SCORINGS[ranking_by].of:
        return ""
    fit = " or ".join(name for name, scoring in SCORINGS.items() if unit in scoring.of)
    of = " or ".join(SCORINGS[ranking_by].of)
    return f"'{ranking_by}' scores values in {of}, and this problem's are in {unit}: write {fit}"
