"""Numbers out of samples: medians, spreads, ratios, the interval of a geometric mean.

Pure functions over samples and `Series`. Knows nothing of reports, verdicts or how samples were taken. A wrong
argument (no samples, times that are not above 0) is a bug of the caller: assert, not an error for a user.

numpy is imported where the interval is made, and only there: it takes a quarter of a second, which `--help`, `board`
and a failed evaluation need not wait for. scipy.stats has a bootstrap that draws the same, and takes over a second.
"""

import functools
import itertools
import math
import operator
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.core.records import Estimate, Measured, Series
from harness.core.words import count_text

if TYPE_CHECKING:
    import numpy as np
RESAMPLES = 1000
CONFIDENCE = 0.95
SEED = 20240229  # any fixed number: the same samples give the same interval, today and tomorrow


def median(samples: Sequence[float]) -> float:
    assert samples, "no samples"
    return float(statistics.median(samples))


def quartiles(samples: Sequence[float]) -> tuple[float, float]:
    """The lower and the upper one; both are the value of a single sample."""
    assert samples, "no samples"
    if len(samples) < 2:
        return samples[0], samples[0]
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, high


def spread(samples: Sequence[float]) -> float:
    """The interquartile range as a fraction of the median; 0 for a single sample, which has no range."""
    low, high = quartiles(samples)
    return (high - low) / median(samples)


def geomean(values: Sequence[float]) -> float:
    """(v1 * ... * vn) ** (1/n), by logarithms, so that long products neither overflow nor vanish."""
    assert values, "no values"
    assert min(values) > 0, f"a geometric mean is of numbers above 0, not of {min(values)}"
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def times_of(measured: Measured) -> Series | None:
    """The first series of times in us: the one that ranks, where times do; None where nothing was timed."""
    return next((one for one in measured.series if one.metric.unit == "us"), None)


@dataclass(frozen=True, kw_only=True)
class CaseLogs:
    """The logarithms of a case, in the order that they were taken, and how many of them were taken together;
    `launches`: how many are of each launch, where there were several."""

    logs: Sequence[float]
    block: int = 1
    launches: Sequence[int] = ()

    @property
    def by_launch(self) -> list[Sequence[float]]:
        ends = list(itertools.accumulate(self.launches or [len(self.logs)]))
        return [self.logs[start:end] for start, end in itertools.pairwise([0, *ends])]

    @property
    def center(self) -> float:
        """The mean over launches of their medians."""
        return statistics.fmean(map(median, self.by_launch))


def ratio(series: Series) -> float:
    """How many times as good as the baseline in a case: the median ratio of samples on the same input; the geometric
    mean of these over launches.

    Not the ratio of their medians: a host that others work on too runs half as fast for a while, now and then, and
    calls on the same input are so close in time that nearly always both sides see the same of it.
    """
    return math.exp(ratios_of(series).center)


def ratios_of(series: Series) -> CaseLogs:
    return CaseLogs(logs=log_ratios(series), block=series.block, launches=series.launches)


def fractions_of(series: Series, bound: float) -> CaseLogs:
    logs = [series.metric.sign * math.log(bound / own) for own in series.own]  # 0 is the bound itself
    return CaseLogs(logs=logs, block=series.block, launches=series.launches)


def log_ratios(series: Series) -> list[float]:
    """Logarithms, by which twice and half as good are equally far from 1; above 0 is better than the baseline."""
    sign = series.metric.sign
    return [sign * math.log(ref / own) for ref, own in zip(series.baseline, series.own, strict=True)]


def estimate(cases: Sequence[CaseLogs], usual: "LaunchNoise | None" = None) -> Estimate:
    """The geometric mean over cases of exp(median of the case's logarithms), with its interval.

    Of several launches, each is one value: the mean over cases of its medians. The interval is Student's t over these
    values. What they differ by is known as `with_usual` says, and is no less than what the samples of a launch explain.

    Of one launch, the interval is by a bootstrap over all cases at once. What is drawn is a block of so many
    consecutive samples, because neighbours in time resemble each other; each case is drawn for itself. A handful of
    blocks shows too little of the spread, so the percentile interval of the logarithm is widened: by Student's t over
    the normal quantile (degrees of freedom: blocks - cases), and by what n draws out of n blocks lack in variance, (n -
    1) / n. (The expanded percentile interval of T. Hesterberg, "What Teachers Should Know About the Bootstrap", 2015,
    here for several cases of like variance a block.) A last block that is shorter than the others counts in the value,
    not in the interval.

    No interval where a case has fewer than two whole blocks: nothing shows how much blocks differ.
    """
    assert cases, "no cases"
    if (count := min(len(case.launches) for case in cases)) > 1:
        found = over_own_launches(cases, usual)
        return Estimate(value=math.exp(found.log), ci=found.interval(), launches=count)
    value = math.exp(statistics.fmean(case.center for case in cases))
    for number, case in enumerate(cases, start=1):
        assert case.block >= 1, "a block holds a sample"
        if len(case.logs) < 2 * case.block:
            samples = count_text(len(case.logs), "sample")
            why = f"case {number} has {samples}; an interval takes {2 * case.block} or more"
            return Estimate(value=value, ci=None, why=why)
    return Estimate(value=value, ci=_interval(tuple((tuple(case.logs), case.block) for case in cases), value))


def _interval(logs: tuple[tuple[tuple[float, ...], int], ...], value: float) -> tuple[float, float]:
    import numpy as np

    rng = np.random.default_rng(SEED)
    medians = []
    for case, block in logs:
        blocks = _blocks(case, block)
        drawn = blocks[rng.integers(0, len(blocks), (RESAMPLES, len(blocks)))]
        medians.append(np.median(drawn.reshape(RESAMPLES, -1), axis=-1))
    draws = sum(medians) / len(logs)
    center = math.log(value)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    counts = [len(case) // block for case, block in logs]
    wider = student_t(1 - tail, sum(counts) - len(counts)) / statistics.NormalDist().inv_cdf(1 - tail)
    wider *= math.sqrt(sum(1 / n for n in counts) / sum((n - 1) / n**2 for n in counts))
    # min and max: a median can stand at the edge of all that it is drawn from
    return (
        min(value, math.exp(center + wider * (float(low) - center))),
        max(value, math.exp(center + wider * (float(high) - center))),
    )


def _blocks(samples: Sequence[float], block: int) -> "np.ndarray[Any, Any]":
    """The samples as [blocks, samples of a block], without a last block that is short."""
    import numpy as np

    return np.asarray(samples[: len(samples) // block * block], dtype=np.float64).reshape(-1, block)


# ---- several launches ------------------------------------------------------------------------------------------------
@functools.lru_cache
def student_t(probability: float, freedom: int) -> float:
    """The quantile of Student's t, by bisection of its distribution. scipy has it too, but takes a third of a second to
    import, which `board` need not wait for."""
    assert 0.5 < probability < 1, probability
    assert freedom >= 1, freedom
    low, high = 0.0, math.pi / 2  # angles, whose tangents are t / sqrt(freedom)
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _within(middle, freedom) < 2 * probability - 1 else (low, middle)
    return math.tan(low) * math.sqrt(freedom)


def _within(angle: float, freedom: int) -> float:
    """The probability that Student's t lies between -t and t, where tan(angle) is t / sqrt(freedom): Abramowitz and
    Stegun, 26.7.3 and 26.7.4."""
    cosine, is_odd = math.cos(angle), freedom % 2
    term, total = (cosine, 0.0) if is_odd else (1.0, 0.0)
    for power in range(is_odd, freedom - 1, 2):
        total += term
        term *= cosine**2 * (power + 1) / (power + 2)
    inner = math.sin(angle) * total
    return 2 / math.pi * (angle + inner) if is_odd else inner


@functools.lru_cache
def students_range(probability: float, count: int, freedom: int) -> float:
    """By how many standard errors of a difference the largest and the smallest of `count` estimates differ at most with
    this probability, where they are of one quantity and their common error is known with `freedom` degrees of freedom:
    Tukey's studentised range over sqrt(2). Of two estimates it is Student's t. Errors that are not equal make it hold
    with more than that probability (A. J. Hayter, 1984).

    P(range <= q) = E over s of count * integral of phi(z) * (Phi(z) - Phi(z - q s)) ** (count - 1), with s^2 of chi
    squared / freedom; by the trapezoidal rule over z and log(s), whose integrands vanish at both ends.
    """
    assert count >= 2, "a difference is of two"
    if count == 2:
        return student_t((1 + probability) / 2, freedom)
    normal, step = statistics.NormalDist(), 0.15
    grid = [(z, normal.cdf(z), step * count * normal.pdf(z)) for z in (step * number for number in range(-53, 54))]
    low, high = -max(16 / freedom, 7 / math.sqrt(2 * freedom)), math.log1p(7 / math.sqrt(freedom))
    logs = [low + (high - low) * number / 80 for number in range(81)]
    weights = [math.exp(freedom * (log - math.expm1(2 * log) / 2)) for log in logs]

    @functools.cache
    def reached(q: float) -> float:
        ranges = (
            math.fsum(part * (below - normal.cdf(z - q * math.exp(log))) ** (count - 1) for z, below, part in grid)
            for log in logs
        )
        return math.fsum(map(operator.mul, weights, ranges)) / math.fsum(weights)

    # log(1 - P) is almost straight in log(q): a secant through the last two
    last, now = (math.sqrt(2) * student_t(1 - (1 - probability) / 2 / pairs, freedom) for pairs in (1, count))
    target = math.log(1 - probability)
    for _ in range(20):
        a, b = (math.log(1 - reached(q)) for q in (last, now))
        if abs(b - target) < 1e-7 or a == b:
            break
        last, now = now, now * (now / last) ** ((target - b) / (b - a))
    return now / math.sqrt(2)


def standard_error(ci: tuple[float, float]) -> float:
    return math.log(ci[1] / ci[0]) / 2 / statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


@dataclass(frozen=True, kw_only=True)
class LaunchNoise:
    """By how much launches of one source differ: `sd` is the standard deviation of the logarithm of their ratio, beside
    what the samples of a launch explain; `freedom` says how well it is known, in degrees of freedom."""

    sd: float
    freedom: int


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The two levels of it. Launches of one session, on one machine within some hours, differ by `launch` and share one
    effect; by these effects sessions differ, by `session`."""

    launch: LaunchNoise
    session: LaunchNoise

    @property
    def apart(self) -> LaunchNoise:
        """The noise between launches of two sessions; its degrees of freedom are F. E. Satterthwaite's (1946)."""
        parts = [(level.sd**2, level.freedom) for level in (self.launch, self.session)]
        return LaunchNoise(sd=math.hypot(self.launch.sd, self.session.sd), freedom=satterthwaite(parts))


class LaunchRatio(NamedTuple):
    """log(ratio) and its standard error; if it `covers` what launches differ by, of several launches."""

    log: float
    error: float
    covers: bool = False


Sessions = Sequence[Sequence[LaunchRatio]]  # a source's launches


@dataclass(frozen=True, kw_only=True)
class OverLaunches:
    """An estimate of log(ratio) over launches, its standard error and degrees of freedom."""

    log: float
    error: float
    freedom: int

    def interval(self) -> tuple[float, float]:
        half = student_t((1 + CONFIDENCE) / 2, self.freedom) * self.error
        return math.exp(self.log - half), math.exp(self.log + half)


# Of normal values: the standard error of a median in that of a mean; the distance of quartiles in standard deviations.
MEDIANS, QUARTILES = 1.2533, 1.349


def values_of(cases: Sequence[CaseLogs]) -> list[float]:
    """Each launch's value: the mean over these cases of its medians."""
    return [statistics.fmean(map(median, launch)) for launch in zip(*(case.by_launch for case in cases), strict=True)]


def over_own_launches(cases: Sequence[CaseLogs], usual: LaunchNoise | None) -> OverLaunches:
    """The mean over the launches of one evaluation, see `estimate`."""
    by_launch, values = list(zip(*(case.by_launch for case in cases), strict=True)), values_of(cases)
    variance, freedom = with_usual(statistics.variance(values), len(values) - 1, usual)
    explained = statistics.fmean(math.fsum(map(_median_variance, launch)) / len(launch) ** 2 for launch in by_launch)
    return OverLaunches(
        log=statistics.fmean(values),
        error=math.sqrt(max(variance, explained) / len(values)),
        freedom=freedom,
    )


def with_usual(variance: float, freedom: int, usual: LaunchNoise | None) -> tuple[float, int]:
    """The variance between launches and its degrees of freedom: what these show, pooled with what is usual, or alone
    where it is more. So a file whose launches differ by less, or by however much more, than is usual has intervals that
    hold the truth in 95 of 100; pooled as well, launches of 3 times the usual noise would have 83 of 100."""
    if usual is None or variance > usual.sd**2:
        return variance, freedom
    together = freedom + usual.freedom
    return (freedom * variance + usual.freedom * usual.sd**2) / together, together


def _median_variance(logs: Sequence[float]) -> float:
    """By the quartiles, which do not follow an outlier any more than a median does."""
    low, high = quartiles(logs)
    return (MEDIANS * (high - low) / QUARTILES) ** 2 / len(logs)


def satterthwaite(parts: Sequence[tuple[float, int]]) -> int:
    """The degrees of freedom of a sum of variances, each with its own: (sum of v)^2 / sum of v^2 / freedom."""
    total = math.fsum(variance for variance, _ in parts)
    return int(total**2 / math.fsum(variance**2 / freedom for variance, freedom in parts)) if total else 1


def over_launches(sessions: Sessions, noise: Noise) -> OverLaunches:
    """The random-effects estimate of one source over its sessions (R. DerSimonian and N. Laird, "Meta-analysis in
    clinical trials", 1986, at two levels).

    A launch counts in its session by the inverse of error^2 + launch^2, where `launch` and `session` are the standard
    deviations of the noise; an evaluation of several launches by that of its error^2, which covers the former. A
    session's mean then has the variance v = 1 / (sum of these), and counts by the inverse of session^2 + v. So launches
    of one session narrow the interval to what sessions differ by, and no further.

    The degrees of freedom are those of a sum of two variances, or more where many sessions were seen (with_seen): what
    their means differ by shows the sum itself.
    """
    assert sessions, "no launch"
    means = [_mean(one, noise.launch) for one in sessions]
    weights = [1 / (noise.session.sd**2 + variance) for _, variance in means]
    total = math.fsum(weights)
    shares = [weight / total for weight in weights]
    between = noise.session.sd**2 * math.fsum(share**2 for share in shares)
    within = math.fsum(share**2 * variance for share, (_, variance) in zip(shares, means, strict=True))
    return OverLaunches(
        log=math.fsum(share * log for share, (log, _) in zip(shares, means, strict=True)),
        error=math.sqrt(between + within),
        freedom=max(
            noise.session.freedom,
            satterthwaite([(between, noise.session.freedom), (within, noise.launch.freedom)]),
        ),
    )


def with_seen(noise: Noise, sources: Sequence[Sessions]) -> Noise:
    """The noise, pooled with what the launches of all these sources show: each level's variance by degrees of freedom.

    Launches of a session show the excess of their variance over their errors'; sessions of a source that of their
    means over the means' v.
    """
    single = [[one for one in session if not one.covers] for sessions in sources for session in sessions]
    seen = [session for session in single if len(session) > 1]
    squares = math.fsum((len(one) - 1) * statistics.variance(launch.log for launch in one) for one in seen)
    squares -= math.fsum((len(one) - 1) * statistics.fmean(launch.error**2 for launch in one) for one in seen)
    launch = pooled(noise.launch, squares, sum(len(one) - 1 for one in seen))
    several = [[_mean(session, launch) for session in sessions] for sessions in sources if len(sessions) > 1]
    squares = math.fsum((len(one) - 1) * statistics.variance(log for log, _ in one) for one in several)
    squares -= math.fsum((len(one) - 1) * statistics.fmean(variance for _, variance in one) for one in several)
    return Noise(launch=launch, session=pooled(noise.session, squares, sum(len(one) - 1 for one in several)))


def pooled(known: LaunchNoise, squares: float, freedom: int) -> LaunchNoise:
    """What is known beforehand, and a sum of squares with its degrees of freedom that was seen since. The sum is an
    excess over something else, so by chance it can be below 0: then nothing was seen in it."""
    together = known.freedom + freedom
    return LaunchNoise(sd=math.sqrt((known.freedom * known.sd**2 + max(0.0, squares)) / together), freedom=together)


def _mean(session: Sequence[LaunchRatio], launch: LaunchNoise) -> tuple[float, float]:
    """The session's mean and its variance v."""
    weights = [1 / (one.error**2 + (0.0 if one.covers else launch.sd**2)) for one in session]
    total = math.fsum(weights)
    return math.fsum(weight * one.log for weight, one in zip(weights, session, strict=True)) / total, 1 / total


def block(device: str) -> int:
    """How many samples are taken together on that device."""
    return 4 if device == "cpu" else 7
