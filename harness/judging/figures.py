"""The figures of an evaluation: computed here once, stored in its report and on the board, and only shown elsewhere."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.core import records, stats
from harness.core.metrics import UNITS, Unit
from harness.core.records import Bound, CaseFigures, CaseResult, Estimate, EvalReport, Measured, Series
from harness.core.stats import LaunchNoise, estimate, geomean, median, ratios_of
from harness.judging import verdict
from harness.judging.scoring import SCORINGS

POWER, ASKED = 0.8, 0.01  # of a resolution
# What launches of one source in one evaluation usually differ by, in log(ratio), where its board does not know better:
# it counts as four launches more. docs/statistics.md has where it comes from.
USUAL = {"cpu": LaunchNoise(sd=0.03, freedom=4), "gpu": LaunchNoise(sd=0.004, freedom=4)}


def usual_of(device: str, sd: float | None = None) -> LaunchNoise:
    """What launches on the device differ by, where it is known by `sd`."""
    usual = USUAL["cpu" if device == "cpu" else "gpu"]
    return usual if sd is None else replace(usual, sd=sd)


def figured(report: EvalReport) -> EvalReport:
    """The report with the figures of every measured case, and of the whole where it has passed."""
    usual = usual_of(report.device, report.usual_sd)
    results = tuple(
        replace(result, figures=case_figures(result.outcome, result.bound, usual))
        if isinstance(result.outcome, Measured)
        else result
        for result in report.results
    )
    report = replace(report, results=results)
    measured = verdict.measured_cases(report)
    passed = verdict.status(report) == "pass" and measured
    if not passed:
        return replace(report, figures=None)
    whole = _whole(measured, report.ranking_by, usual)
    drawn, near_drawn = _drawn(results)
    return replace(report, figures=replace(whole, drawn=drawn, near_drawn=near_drawn))


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """The smallest difference, as a part, that an evaluation of several launches and another one like it show with 80 %
    power at 5 % (two-sided); and about how many launches it would take to show `ASKED`."""

    difference: float
    launches: int


def resolution(report: EvalReport) -> Resolution | None:
    """What the evaluation can tell; None for one launch, which does not know what launches differ by."""
    found = report.figures.ratio if report.figures else None
    if found is None or found.ci is None or found.launches < 2:
        return None
    cases = [ratios_of(one.ranked) for _, one in verdict.measured_cases(report)]
    over = stats.over_own_launches(cases, usual_of(report.device, report.usual_sd))
    quantiles = (stats.student_t(probability, over.freedom) for probability in ((1 + stats.CONFIDENCE) / 2, POWER))
    difference = math.sqrt(2) * over.error * sum(quantiles)
    return Resolution(difference=difference, launches=math.ceil(found.launches * (difference / ASKED) ** 2))


@dataclass(frozen=True, kw_only=True)
class SeriesFigures:
    """What one series comes to: medians of either side in the metric's unit, how many times as good as the baseline,
    and which part of the bound was reached. None where it was not measured or is not known."""

    value: float
    baseline: float | None
    ratio: float | None
    bound: float | None
    fraction: float | None


def series_figures(measured: Measured, name: str) -> SeriesFigures | None:
    """What the case's series of that metric comes to, against its own bound; None without samples of it."""
    series = measured.by_name.get(name)
    if series is None or not series.own:
        return None
    value = median(series.own)
    bound = measured.bounds[name].value if name in measured.bounds else least_of(series)
    return SeriesFigures(
        value=value,
        baseline=median(series.baseline) if series.baseline else None,
        ratio=stats.ratio(series) if series.baseline and series.paired else None,
        bound=bound,
        fraction=(bound / value) ** series.metric.sign if bound else None,
    )


def least_of(series: Series) -> float | None:
    """The series' least; None where a side goes below it. A least that is undercut is none: it counts less than calls
    hold (an allocator that frees inputs, memory on a heap that it does not know), so no fraction of it means anything.
    """
    sides = [median(side) for side in (series.own, series.baseline) if side]
    return series.least if series.least is not None and all(side >= series.least for side in sides) else None


def unit_of_results(results: Sequence[CaseResult]) -> Unit:
    """The unit of the metric that ranks these cases; that of times where none was measured."""
    return next((one.figures.metric.words for one in results if one.figures is not None), UNITS["us"])


@dataclass(frozen=True, kw_only=True)
class Means:
    """Geometric means over cases of what their figures say; the bound's where every case has one."""

    value: float
    baseline: float
    bound: float | None


def means(results: Sequence[CaseResult]) -> Means | None:
    """Of cases; None unless either side was measured in each."""
    figures = [result.figures for result in results if result.figures is not None]
    baselines = [one.baseline for one in figures if one.baseline is not None]
    if not results or len(baselines) != len(results):
        return None
    bounds = [result.bound.value for result in results if result.bound is not None]
    return Means(
        value=geomean([one.value for one in figures]),
        baseline=geomean(baselines),
        bound=geomean(bounds) if len(bounds) == len(results) else None,
    )


def case_figures(measured: Measured, bound: Bound | None, usual: LaunchNoise | None = None) -> CaseFigures:
    """What one case comes to: ratio and spread of the series that ranks, the fraction of that which is bounded."""
    ranked, bounded = measured.ranked, measured.against_bound
    value = median(ranked.own) if ranked.own else ranked.summary.mean if ranked.summary else 0.0
    return CaseFigures(
        metric=ranked.metric,
        value=value,
        baseline=median(ranked.baseline) if ranked.baseline else None,
        spread=stats.spread(ranked.own) if ranked.own else None,
        ratio=estimate([ratios_of(ranked)], usual) if ranked.baseline and ranked.paired else None,
        fraction=_fraction([(bounded, bound.value)], usual) if bound and bounded.own else None,
    )


def _fraction(cases: Sequence[tuple[Series, float]], usual: LaunchNoise | None) -> Estimate:
    """The geometric mean over cases of the bound over the median: what the tables show of a case. The interval is of
    the samples' own fractions, whose median differs from that between the two middle ones of an even number."""
    found = estimate([stats.fractions_of(series, bound) for series, bound in cases], usual)
    parts = [(bound / median(series.own)) ** series.metric.sign for series, bound in cases]
    value = geomean(parts)
    ci = (min(found.ci[0], value), max(found.ci[1], value)) if found.ci else None
    return replace(found, value=value, ci=ci)


def _whole(cases: Sequence[tuple[CaseResult, Measured]], ranking_by: str, usual: LaunchNoise) -> records.EvalFigures:
    scoring = SCORINGS[ranking_by]
    own = [scoring.case(measured) for _, measured in cases]
    best = [min(value, one.best or value) for value, (_, one) in zip(own, cases, strict=True)]
    ratios = [ratios_of(one.ranked) for _, one in cases if one.ranked.baseline]
    bounded = [
        (one.against_bound, result.bound.value) for result, one in cases if result.bound and one.against_bound.own
    ]
    return records.EvalFigures(
        score=records.Score(
            value=scoring.total(own, best),
            unit=scoring.unit,
            better=scoring.better,
            relative_by=ranking_by if scoring.is_relative else "",
        ),
        ratio=estimate(ratios, usual) if len(ratios) == len(cases) else None,
        fraction=_fraction(bounded, usual) if len(bounded) == len(cases) else None,
    )


def _drawn(results: Sequence[CaseResult]) -> tuple[float, float] | tuple[None, None]:
    """The geometric mean ratios of drawn cases and of the benchmarks near them; None without any, or one's ratio."""
    benchmarks = [one for one in results if one.case.kind == "benchmark"]
    drawn = [one for one in results if one.case.near is not None and one.case.near < len(benchmarks)]
    both = [*drawn, *(benchmarks[one.case.near or 0] for one in drawn)]
    ratios = [one.figures.ratio.value for one in both if one.figures is not None and one.figures.ratio is not None]
    if not drawn or len(ratios) < len(both):
        return None, None
    return geomean(ratios[: len(drawn)]), geomean(ratios[len(drawn) :])
