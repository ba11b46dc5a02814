"""The contest's own score, a rule an entry of SCORINGS. Pure functions over what was measured."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from harness.core.records import Measured
from harness.core.stats import geomean


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
    def words(self) -> str:
        """What the number is, for the reader."""
        ...

    def case(self, measured: Measured) -> float:
        """What one case comes to, in the score's unit."""
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
    unit: str = "s"
    better: Literal["less", "more"] = "less"

    def case(self, measured: Measured) -> float:
        """The mean time of a call in seconds; samples and summaries are in us."""
        series = measured.ranked
        return (statistics.fmean(series.own) if series.own or series.summary is None else series.summary.mean) / 1e6

    def total(self, own: Sequence[float], best: Sequence[float]) -> float:
        """Seconds over all cases."""
        return self.over(own)


SCORINGS: dict[str, Scoring] = {
    "geom": MeanTimes("geometric mean of the means", geomean),
    "mean": MeanTimes("mean of the means", statistics.fmean),
    "last": MeanTimes("mean of the last shape", lambda means_s: means_s[-1]),
}
