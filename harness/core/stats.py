"""Numbers out of samples: medians, spreads, speedups, the interval of a geometric mean, GPU MODE's score, rooflines.

Pure functions over samples and `Timed`. Knows nothing of reports, verdicts or how samples were taken. A wrong
argument (no samples, times that are not above 0) is a bug of the caller: assert, not an error for a user.

numpy and scipy.stats are imported where the interval is made, and only there: together they take most of a second,
which `--help`, `board` and a failed evaluation need not wait for.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from harness.core.records import ClockSamples, Timed

if TYPE_CHECKING:
    import numpy as np
RESAMPLES = 1000
CONFIDENCE = 0.95
SEED = 20240229  # any fixed number: the same samples give the same interval, today and tomorrow


@dataclass(frozen=True, kw_only=True)
class Interval:
    """The confidence interval (95 %) of a speedup."""

    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class NoInterval:
    """Too few samples to say how far the value may be off, which is not the same as knowing it exactly."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class GeomeanSpeedup:
    """How many times as fast as the reference, over all cases: above 1 is faster."""

    value: float
    interval: Interval | NoInterval


def median(samples: Sequence[float]) -> float:
    """The median, in the samples' unit."""
    assert samples, "no samples"
    return float(statistics.median(samples))


def spread(samples: Sequence[float]) -> float:
    """The interquartile range as a fraction of the median; 0 for a single sample, which has no range."""
    if len(samples) < 2:
        return 0.0
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return (high - low) / median(samples)


def geomean(values: Sequence[float]) -> float:
    """(v1 * ... * vn) ** (1/n), by logarithms, so that long products neither overflow nor vanish."""
    assert values, "no values"
    assert min(values) > 0, f"a geometric mean is of numbers above 0, not of {min(values)}"
    return math.exp(math.fsum(map(math.log, values)) / len(values))


class Pairs(Protocol):
    """Samples of reference and submission that belong together by index, and are equally many."""

    @property
    def samples_us(self) -> Sequence[float]: ...
    @property
    def ref_samples_us(self) -> Sequence[float]: ...


def speedup(pairs: Pairs) -> float:
    """How many times as fast as the reference in a case, on one clock: the median ratio of the reference's time to the
    submission's on the same input.

    Not the ratio of their medians: a host that others work on too runs half as fast for a while, now and then, and
    calls on the same input are so close in time that nearly always both sides see the same of it (docs/measurements.md
    has what that is worth).
    """
    return math.exp(median(_log_ratios(pairs)))


def _log_ratios(pairs: Pairs) -> list[float]:
    """Logarithms, by which twice and half as fast are equally far from 1."""
    return [math.log(ref / own) for ref, own in zip(pairs.ref_samples_us, pairs.samples_us, strict=True)]


def clocks(timed: Timed) -> list[ClockSamples]:
    """The samples of every clock, the ranked one first."""
    wall = ClockSamples(clock="wall", samples_us=timed.samples_us, ref_samples_us=timed.ref_samples_us)
    return [wall, *timed.others]


def roofline_samples_us(timed: Timed) -> Sequence[float]:
    """The samples that rooflines are held against: the device's own where it has a clock, else the wall's."""
    return next((other.samples_us for other in timed.others if other.clock == "device"), timed.samples_us)


def roofline_fraction(timed: Timed, bound_us: float) -> float:
    """The part of the bound's speed that was reached: bound / median time. 1 is the roofline itself."""
    return bound_us / median(roofline_samples_us(timed))


def geomean_speedup(timeds: Sequence[Timed]) -> GeomeanSpeedup:
    """The geometric mean of the cases' speedups with its interval, by a bootstrap over all cases at once.

    What is drawn is a block of `timed.block` consecutive samples, because neighbours in time resemble each other;
    reference and submission of a block are drawn together, because they saw the same inputs at the same time; each
    case is drawn for itself. A handful of blocks shows too little of the spread, so the percentile interval of the
    logarithm is widened: by Student's t over the normal quantile (degrees of freedom: blocks - cases), and by what n
    draws out of n blocks lack in variance, (n - 1) / n. (The expanded percentile interval of T. Hesterberg, "What
    Teachers Should Know About the Bootstrap", 2015, here for several cases of like variance a block.)
    A last block that is shorter than the others counts in the value, not in the interval.

    NoInterval where a case has fewer than two whole blocks: nothing shows how much blocks differ.
    """
    assert timeds, "no cases"
    for timed in timeds:
        assert len(timed.samples_us) == len(timed.ref_samples_us), "samples come in pairs"
        assert timed.block >= 1, "a block holds a sample"
    value = geomean([speedup(timed) for timed in timeds])
    for number, timed in enumerate(timeds, start=1):
        if len(timed.samples_us) < 2 * timed.block:
            reason = f"case {number} has {len(timed.samples_us)} samples; two blocks of {timed.block} are the least"
            return GeomeanSpeedup(value=value, interval=NoInterval(reason=reason))
    return GeomeanSpeedup(value=value, interval=_interval(tuple(timeds), value))


@lru_cache(maxsize=8)  # JSON, table and leaderboard entry of one report ask for the same
def _interval(timeds: tuple[Timed, ...], value: float) -> Interval:
    import numpy as np
    from scipy.special import ndtri, stdtrit
    from scipy.stats import bootstrap

    cases = [_blocks(_log_ratios(timed), timed.block) for timed in timeds]
    indices = [np.arange(len(blocks)) for blocks in cases]

    def log_geomean(*drawn: Any, axis: int) -> Any:
        """The statistic for many draws at once: `drawn[c]` are block indices of case c, [draws, blocks]."""
        assert axis == -1
        logs = [
            np.median(blocks[index].reshape(*index.shape[:-1], -1), axis=-1)
            for index, blocks in zip(drawn, cases, strict=True)
        ]
        return sum(logs) / len(cases)

    draws = bootstrap(
        indices,
        log_geomean,
        n_resamples=RESAMPLES,
        vectorized=True,
        axis=-1,
        method="percentile",
        random_state=np.random.default_rng(SEED),  # `rng` is its newer name, unknown to scipy before 1.15
    ).bootstrap_distribution
    center = math.log(value)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    counts = [len(index) for index in indices]
    wider = float(stdtrit(sum(counts) - len(counts), 1 - tail) / ndtri(1 - tail))
    wider *= math.sqrt(sum(1 / n for n in counts) / sum((n - 1) / n**2 for n in counts))
    # min and max: a median can stand at the edge of all that it is drawn from
    return Interval(
        low=min(value, math.exp(center + wider * (float(low) - center))),
        high=max(value, math.exp(center + wider * (float(high) - center))),
    )


def _blocks(samples: Sequence[float], block: int) -> "np.ndarray[Any, Any]":
    """The samples as [blocks, samples of a block], without a last block that is short."""
    import numpy as np

    return np.asarray(samples[: len(samples) // block * block], dtype=np.float64).reshape(-1, block)
