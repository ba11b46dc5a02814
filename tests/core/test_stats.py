"""Numbers out of samples."""

import math
import os
import random
import statistics
import subprocess
import sys
import time

import numpy as np
import pytest
from factories import measured, timed
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core import stats
from harness.core.records import Bound, Estimate, Measured
from harness.core.stats import CaseLogs, LaunchRatio, estimate, geomean, median, ratio, ratios_of, spread
from harness.judging.figures import case_figures
from harness.judging.scoring import SCORINGS

times_us = st.floats(min_value=0.1, max_value=1e7)
samples = st.lists(times_us, min_size=1, max_size=30)


def speedup(one: Measured) -> float:
    return ratio(one.ranked)


def geomean_speedup(cases: list[Measured]) -> Estimate:
    return estimate([ratios_of(one.ranked) for one in cases])


@st.composite
def timeds(draw: st.DrawFn) -> Measured:
    pairs = draw(st.lists(st.tuples(times_us, times_us), min_size=1, max_size=20))
    own, ref = zip(*pairs, strict=True)
    return measured(own, ref, draw(st.integers(1, 6)))


@given(samples)
def test_the_median_lies_between_the_samples_and_has_as_many_below_as_above(values: list[float]) -> None:
    middle = median(values)
    assert min(values) <= middle <= max(values)
    assert sum(value < middle for value in values) <= len(values) / 2
    assert sum(value > middle for value in values) <= len(values) / 2


@given(samples, st.floats(0.5, 2.0))
def test_the_spread_does_not_depend_on_the_unit(values: list[float], factor: float) -> None:
    assert spread(values) >= 0
    assert spread([factor * value for value in values]) == pytest.approx(spread(values), rel=1e-9, abs=1e-9)


def test_the_spread_is_the_interquartile_range_over_the_median() -> None:
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 3)
    assert spread([7.0]) == 0.0


@given(samples)
def test_the_geometric_mean_lies_between_the_values(values: list[float]) -> None:
    assert min(values) * (1 - 1e-9) <= geomean(values) <= max(values) * (1 + 1e-9)


def test_the_geometric_mean_of_many_large_values_does_not_overflow() -> None:
    assert geomean([1e300] * 1000) == pytest.approx(1e300)


@given(timeds())
def test_swapping_reference_and_submission_inverts_the_speedup(one: Measured) -> None:
    other = measured(one.ranked.baseline, one.ranked.own, one.ranked.block)
    assert speedup(one) * speedup(other) == pytest.approx(1)


def test_a_submission_that_takes_half_the_time_has_a_speedup_of_two() -> None:
    assert speedup(measured((5.0, 4.0, 60.0), (10.0, 9.0, 11.0), 1)) == 2.0


def test_a_host_that_is_slower_for_a_while_slows_both_sides() -> None:
    """Half the time, while the host is fast and while it is slow; it changes between the calls of one pair."""
    ref, own = [200.0] * 5 + [400.0] * 6, [100.0] * 6 + [200.0] * 5
    assert statistics.median(ref) / statistics.median(own) == 4.0
    assert speedup(measured(tuple(own), tuple(ref), 1)) == 2.0


def test_the_score_is_of_means_in_seconds_as_gpu_mode_has_it() -> None:
    cases = [measured(own, own, 1) for own in ((1.0, 3.0), (8.0,), (32.0, 0.0001, 64.0))]

    def score(ranking_by: str) -> float:
        own = [SCORINGS[ranking_by].case(one) for one in cases]
        return SCORINGS[ranking_by].total(own, own)

    means_s = [2e-6, 8e-6, 32.0000333e-6]
    assert score("geom") == pytest.approx(math.prod(means_s) ** (1 / 3))
    assert score("mean") == pytest.approx(statistics.fmean(means_s))
    assert score("last") == pytest.approx(means_s[-1])


def test_a_case_at_its_bound_has_reached_all_of_the_roofline() -> None:
    figures = case_figures(measured((10.0, 20.0, 30.0), (1.0, 1.0, 1.0), 1), Bound(value=20.0, by="flops"))
    assert figures.fraction is not None
    assert figures.fraction.value == pytest.approx(1.0)


@settings(max_examples=40)
@given(st.lists(timeds(), min_size=1, max_size=4))
def test_the_interval_holds_the_value_or_is_said_to_be_missing(cases: list[Measured]) -> None:
    found = geomean_speedup(cases)
    assert found.value == pytest.approx(geomean([speedup(one) for one in cases]))
    if min(len(one.ranked.own) // one.ranked.block for one in cases) < 2:
        assert found.ci is None
        assert found.why
    else:
        assert found.ci is not None
        assert 0 < found.ci[0] <= found.value <= found.ci[1]


def test_one_block_gives_no_interval_and_the_reason_names_the_case() -> None:
    found = geomean_speedup([timed(samples=12, block=4), timed(samples=7, block=4)])
    assert found.ci is None
    assert found.why == "case 2 has 7 samples; an interval takes 8 or more"


def test_the_same_samples_give_the_same_interval_in_another_process() -> None:
    series = timed(samples=20).ranked
    here = estimate([ratios_of(series)])
    imports = "from factories import measured, timed; from harness.core.stats import *"
    code = f"{imports}; one = timed(samples=20).ranked; print(repr(estimate([ratios_of(one)])))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    there = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert there.stdout.strip() == repr(here)


def test_drift_that_reference_and_submission_share_does_not_widen_the_interval() -> None:
    calm = measured((100.0, 101.0, 99.0, 100.0) * 10, (200.0, 201.0, 199.0, 200.0) * 10, 4)
    slow = [1.0 + index // 4 for index in range(40)]  # ten times as slow at the end
    drifting = measured([100.0 * factor for factor in slow], [200.0 * factor for factor in slow], 4)
    for case in (calm, drifting):
        ci = geomean_speedup([case]).ci
        assert ci is not None
        assert 1.97 < ci[0] <= 2.0 <= ci[1] < 2.03


@pytest.mark.parametrize(("cases", "blocks"), [(5, 2), (6, 5), (3, 12)])
def test_the_interval_covers_the_truth_about_as_often_as_it_says(cases: int, blocks: int) -> None:
    """Samples whose noise is shared within a block (drift common to both sides, more of each side's own), a few
    spikes; the truth is 1.25. The generator is seeded, so this says the same on every day and machine."""
    rng, trials, covered = np.random.default_rng(5), 300, 0

    def side(drift: np.ndarray, log_us: float) -> tuple[float, ...]:
        own = rng.normal(0, 0.02, (blocks, 1)) + rng.normal(0, 0.04, (blocks, 4))
        spikes = 0.7 * (rng.random((blocks, 4)) < 0.03)
        return tuple(np.exp(log_us + drift + own + spikes).ravel().tolist())

    for _ in range(trials):
        drifts = rng.normal(0, 0.05, (cases, blocks, 1))
        ci = geomean_speedup([measured(side(d, 6.0), side(d, 6.0 + math.log(1.25)), 4) for d in drifts]).ci
        assert ci is not None
        covered += ci[0] <= 1.25 <= ci[1]
    assert 0.93 <= covered / trials <= 0.995


def test_what_is_drawn_is_what_scipys_bootstrap_draws() -> None:
    """Of one case, whose blocks are samples; what the interval is widened by is known for so many blocks."""
    from scipy.special import ndtri, stdtrit
    from scipy.stats import bootstrap

    logs = np.random.default_rng(3).normal(0.2, 0.05, 60)
    draws = bootstrap(
        (logs,), np.median, n_resamples=stats.RESAMPLES, method="percentile", rng=np.random.default_rng(stats.SEED)
    ).bootstrap_distribution
    wider = stdtrit(59, 0.975) / ndtri(0.975) * math.sqrt(60 / 59)
    center = np.median(logs)
    expected = np.exp(center + wider * (np.quantile(draws, [0.025, 0.975]) - center))
    assert stats.estimate([stats.CaseLogs(logs=logs.tolist())]).ci == pytest.approx(tuple(expected), rel=1e-9)


def test_six_cases_of_a_hundred_samples_take_well_under_a_second() -> None:
    cases = [timed(time_us=1000.0 + index, samples=100) for index in range(6)]
    geomean_speedup([timed()])  # imports numpy
    began = time.process_time()
    geomean_speedup(cases)
    assert time.process_time() - began < 0.3


def test_nothing_is_paid_for_scipy_until_an_interval_is_made() -> None:
    imports = "import sys, harness.core.stats, harness.board.leaderboard"
    code = f"{imports}; sys.exit('scipy' in sys.modules or 'numpy' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


# ---- several launches ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("freedom", [1, 2, 4, 5, 13, 100])
@pytest.mark.parametrize("probability", [0.9, 0.975, 0.999])
def test_students_t_is_what_scipy_says(probability: float, freedom: int) -> None:
    from scipy.special import stdtrit

    assert stats.student_t(probability, freedom) == pytest.approx(float(stdtrit(freedom, probability)), rel=1e-8)


@pytest.mark.parametrize(("count", "freedom"), [(2, 4), (3, 1), (5, 4), (20, 9), (50, 300)])
@pytest.mark.parametrize("probability", [0.95, 0.9975])
def test_the_studentised_range_is_what_scipy_says(probability: float, count: int, freedom: int) -> None:
    from scipy.stats import studentized_range

    expected = float(studentized_range.ppf(probability, count, freedom)) / math.sqrt(2)
    assert stats.students_range(probability, count, freedom) == pytest.approx(expected, rel=2e-4)


NOISE = stats.Noise(
    launch=stats.LaunchNoise(sd=0.06, freedom=4),
    session=stats.LaunchNoise(sd=0.05, freedom=4),
)


def width(*sessions: list[float]) -> float:
    """Of the interval by launches with these logarithms, whose error is 0.02."""
    of = [[LaunchRatio(log, 0.02) for log in session] for session in sessions]
    low, high = stats.over_launches(of, stats.with_seen(NOISE, [of])).interval()
    return high / low


def test_an_estimate_over_launches_narrows_with_each_session_and_widens_with_what_they_differ_by() -> None:
    assert width([0.0]) > width([0.0], [0.0]) > width(*[[0.0]] * 5) > width(*[[0.0]] * 20)
    assert width([-0.2], [0.0], [0.2]) > width([-0.01], [0.0], [0.01])
    assert width([-0.2, 0.2]) > width([-0.01, 0.01])


def test_launches_of_one_session_narrow_an_interval_to_what_sessions_differ_by() -> None:
    assert width([0.0]) > width([0.0] * 3) > width([0.0] * 100)
    assert width([0.0] * 100) > math.exp(2 * 1.96 * NOISE.session.sd)
    assert width(*[[0.0]] * 3) < width([0.0] * 3)


def test_a_launch_with_a_better_interval_counts_for_more() -> None:
    noise = stats.Noise(launch=stats.LaunchNoise(sd=0.01, freedom=4), session=stats.LaunchNoise(sd=0.01, freedom=4))
    for sessions in (
        [[LaunchRatio(0.0, 0.001), LaunchRatio(1e-3, 0.5)]],
        [[LaunchRatio(0.0, 0.001)], [LaunchRatio(1e-3, 0.5)]],
    ):
        assert stats.over_launches(sessions, noise).log < 1e-4


def test_what_is_seen_is_pooled_with_what_is_known_by_degrees_of_freedom() -> None:
    assert stats.pooled(NOISE.launch, 4 * 0.06**2, 4) == stats.LaunchNoise(sd=pytest.approx(0.06), freedom=8)
    assert stats.pooled(NOISE.launch, -1.0, 4) == stats.LaunchNoise(sd=pytest.approx(0.06 / math.sqrt(2)), freedom=8)
    chance = random.Random(1)
    sources = []
    for _ in range(400):
        means = [chance.gauss(0, 0.03) for _ in range(3)]
        sources.append([[LaunchRatio(mean + chance.gauss(0, 0.05), 0.03) for _ in range(2)] for mean in means])
    seen = stats.with_seen(NOISE, sources)
    assert seen.launch.sd == pytest.approx(0.04, abs=0.003), "without the 3 % that their own samples explain"
    assert seen.session.sd == pytest.approx(0.03, abs=0.003)
    assert (seen.launch.freedom, seen.session.freedom) == (1204, 804)


def test_intervals_over_launches_hold_what_they_promise() -> None:
    """95 % of those of a source with three sessions of two launches each, by noise that is known as well as it says."""
    chance, missed, trials = random.Random(2), 0, 2000
    for _ in range(trials):
        noise = stats.Noise(launch=guessed(chance, 0.06), session=guessed(chance, 0.05))
        means = [chance.gauss(0, 0.05) for _ in range(3)]
        of = [[LaunchRatio(mean + chance.gauss(0, math.hypot(0.06, 0.02)), 0.02) for _ in range(2)] for mean in means]
        low, high = stats.over_launches(of, stats.with_seen(noise, [of])).interval()
        missed += not low <= 1 <= high
    assert 0.02 * trials <= missed <= 0.065 * trials


def evaluation(chance: random.Random, launch: float, cases: int = 3, launches: int = 4) -> list[CaseLogs]:
    """Cases of a source as good as its reference, in launches that differ by that standard deviation."""
    effects = [chance.gauss(0, launch) for _ in range(launches)]
    return [
        CaseLogs(
            logs=[chance.gauss(effect, 0.01) for effect in effects for _ in range(14)],
            block=7,
            launches=[14] * launches,
        )
        for _ in range(cases)
    ]


@pytest.mark.parametrize("launch", [0.0, 0.003, 0.01])
def test_an_evaluation_of_several_launches_knows_how_well_it_knows(launch: float) -> None:
    """Samples alone would say that launches which differ by 1 % are known to 0.3 %."""
    chance, trials = random.Random(3), 400
    found = [estimate(evaluation(chance, launch), guessed(chance, max(launch, 0.002))) for _ in range(trials)]
    missed = sum(not one.ci[0] <= 1 <= one.ci[1] for one in found if one.ci)
    assert all(one.launches == 4 for one in found)
    assert missed <= 0.075 * trials


def test_what_launches_differ_by_is_in_the_interval_and_weighs_more_than_what_is_usual_the_more_they_are() -> None:
    chance, usual = random.Random(4), stats.LaunchNoise(sd=0.001, freedom=4)
    few, many = (estimate(evaluation(chance, 0.02, launches=count), usual) for count in (4, 64))
    assert few.ci is not None
    assert many.ci is not None
    assert math.log(few.ci[1] / few.ci[0]) > 0.01, "though only few were seen"
    assert math.log(many.ci[1] / many.ci[0]) == pytest.approx(2 * 1.98 * 0.02 / 8, rel=0.25)


@pytest.mark.parametrize("times", [0.3, 1.0, 2.0, 4.0, 10.0])
def test_a_file_that_is_noisier_than_what_is_known_gains_nothing_by_it(times: float) -> None:
    """If quiet launches always counted, 83 of 100 intervals would hold the truth where they differ 3 times as much."""
    chance, usual, trials, missed = random.Random(5), stats.LaunchNoise(sd=0.002, freedom=4), 2000, 0
    for _ in range(trials):
        cases = [CaseLogs(logs=[chance.gauss(0, times * usual.sd) for _ in range(4)], launches=[1] * 4)]
        low, high = stats.over_own_launches(cases, usual).interval()
        missed += not low <= 1 <= high
    assert missed <= 0.065 * trials


def test_what_launches_differ_by_is_pooled_with_what_is_usual_unless_it_is_more() -> None:
    usual = stats.LaunchNoise(sd=0.006, freedom=4)
    assert stats.with_usual(0.002**2, 3, usual) == (pytest.approx((3 * 0.002**2 + 4 * 0.006**2) / 7), 7)
    assert stats.with_usual(0.01**2, 3, usual) == (0.01**2, 3)
    assert stats.with_usual(0.002**2, 3, None) == (0.002**2, 3)


def test_a_launch_counts_once_however_many_samples_it_has() -> None:
    logs = [0.1] * 100 + [0.0] * 3
    [found] = [estimate([CaseLogs(logs=logs, launches=[100, 3])], stats.LaunchNoise(sd=0.01, freedom=4))]
    assert found.value == pytest.approx(math.exp(0.05))


def guessed(chance: random.Random, sd: float) -> stats.LaunchNoise:
    """A guess of a standard deviation with four degrees of freedom."""
    squares = math.fsum(chance.gauss(0, sd) ** 2 for _ in range(4))
    return stats.LaunchNoise(sd=math.sqrt(squares / 4), freedom=4)


def test_degrees_of_freedom_of_a_sum_of_variances() -> None:
    assert stats.satterthwaite([(1.0, 4)]) == 4
    assert stats.satterthwaite([(1.0, 4), (1.0, 4)]) == 8
    assert stats.satterthwaite([(1.0, 4), (0.0, 9)]) == 4
    assert NOISE.apart == stats.LaunchNoise(sd=math.hypot(0.06, 0.05), freedom=7)
