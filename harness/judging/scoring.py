"""GPU MODE's score, as its leaderboards rank."""

import statistics
from collections.abc import Callable, Sequence
from typing import Literal

from harness.core.records import Timed, Told
from harness.core.stats import geomean


def score_s(timeds: Sequence[Timed | Told], ranking_by: Literal["last", "mean", "geom"]) -> float:
    """GPU MODE's score in seconds, lower is better, from the cases' mean times (not medians) in their order.

    Source: ranking_by in gpu-mode/kernelbot src/libkernelbot (docs there): geom is (product of means) ** (1/n).
    """
    means_us = [one.mean_us if isinstance(one, Told) else statistics.fmean(one.samples_us) for one in timeds]
    means_s = [mean_us / 1e6 for mean_us in means_us]
    return SCORES[ranking_by](means_s)


SCORES: dict[str, Callable[[Sequence[float]], float]] = {
    "geom": geomean,
    "mean": statistics.fmean,
    "last": lambda means_s: means_s[-1],
}
