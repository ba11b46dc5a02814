"""The rules of measuring: what a sample is, who goes when, and when it is enough."""

import contextlib
import dataclasses
import math
import random
import statistics
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from harness.core import metrics
from harness.core.records import Series
from harness.core.stats import ratio
from harness.kinds.op.measure import FEWER_INPUTS, CaseMeasurement
from harness.ranks import clocks, credibility
from harness.ranks.clocks import Budget, Samples, device_us, enough, gpumode_us, relative_error, turns
from harness.ranks.stopwatch import cloned
from harness.ranks.wire import CallSample
from harness.ranks.witness import Bursts, EachCall, Turn, wall_us


def called(*ranks: tuple[int, int], device_us: float | None = None) -> list[CallSample]:
    return [CallSample(start_ns=start, end_ns=end, device_us=device_us, output=None) for start, end in ranks]


def test_the_wall_clock_runs_from_the_first_start_to_the_last_end() -> None:
    """Whichever ranks these are, and however long the others took."""
    assert wall_us(called((2_000, 5_000), (1_000, 3_000), (4_000, 9_000))) == 8.0


def test_the_copy_of_an_input_keeps_the_names_of_a_tuple() -> None:
    class Saved(NamedTuple):
        gradient: torch.Tensor

    gradient = torch.ones(2)
    (saved, number), copied = (Saved(gradient), 3), cloned((Saved(gradient), 3))
    assert type(copied) is tuple
    assert copied[1] == number
    assert torch.equal(copied[0].gradient, saved.gradient)
    assert copied[0].gradient is not gradient


def test_the_device_clock_is_the_slowest_ranks_and_gpu_modes_is_rank_0s() -> None:
    assert device_us([*called((0, 1), device_us=3.0), *called((0, 1), device_us=7.5)]) == 7.5
    assert gpumode_us(called((1_000, 4_000), (0, 99_000))) == 3.0


@given(first=st.integers(0, 400), block=st.integers(1, 12), burst=st.booleans())
def test_in_every_block_both_sides_call_on_every_input_once(first: int, block: int, burst: bool) -> None:
    """So that samples of one index saw the same input."""
    order = turns(Budget(seconds=1, block=block, burst=burst), "wall", first)
    calls = Counter((reference, index) for reference, indices in order for index in indices)
    inputs = range(block + (clocks.WARM_CALLS if burst else 0))
    assert calls == Counter((side, index) for side in (True, False) for index in inputs)


def test_neither_side_goes_first_more_often() -> None:
    in_turn = Budget(seconds=1, block=4)
    order = [reference for reference, _ in turns(in_turn, "wall", 0)]
    assert order == [True, False, False, True, False, True, True, False]
    assert [reference for reference, _ in turns(in_turn, "wall", 4)] == [not reference for reference in order]
    for block in (1, 4, 7):  # the first call of a block, and the first with an input
        of_blocks = [turns(Budget(seconds=1, block=block), "wall", number * block) for number in range(4)]
        assert sum(calls[0][0] for calls in of_blocks) == 2
        assert sum(reference for calls in of_blocks for reference, _ in calls[::2]) == 2 * block
    bursts = [turns(Budget(seconds=1, block=7, burst=True), "wall", sample)[0][0] for sample in range(0, 140, 7)]
    assert bursts[:4] == [True, False, False, True]
    assert sum(bursts) == sum(bursts[::2]) * 2 == 10


def test_clocks_that_do_not_rank_leave_their_time_to_the_one_that_does() -> None:
    """They still get blocks in which either side goes first."""
    blocks = [number for number in range(40) if len(clocks.due(("wall", "device"), number)) == 2]
    assert blocks == [0, 16, 32]
    assert all(clocks.due(("wall", "device"), number)[0] == "wall" for number in range(30))


def test_the_device_clock_needs_no_bursts() -> None:
    order = turns(Budget(seconds=1, block=3, burst=True), "device", 0)
    assert all(len(indices) == 1 for _, indices in order)
    assert len(order) == 6


def series(own_us: list[float], ref_us: list[float]) -> Samples:
    made = Samples(["wall"], 1)
    for own, ref in zip(own_us, ref_us, strict=True):
        made.add("wall", [called((0, int(own * 1000)))], [called((0, int(ref * 1000)))])
    return made


def test_measuring_goes_on_until_the_ratio_is_known_or_time_is_up() -> None:
    budget = Budget(seconds=2.0, min_samples=4, max_samples=12, target_error=0.01)
    steady, shaky = series([100.0] * 6, [200.0] * 6), series([100.0, 150.0] * 3, [200.0] * 6)
    assert not enough(budget, series([100.0] * 3, [200.0] * 3), 99.0), "the minimum is always taken"
    assert enough(budget, steady, 0.0)
    assert not enough(budget, shaky, 0.0)
    assert enough(budget, shaky, 2.0)
    assert enough(budget, series([100.0, 150.0] * 6, [200.0] * 12), 0.0)


def test_what_is_left_of_a_measurement_is_its_time_or_its_least_samples() -> None:
    budget = Budget(seconds=2.0, min_samples=4, max_samples=12)
    begun = series([100.0] * 3, [200.0] * 3)
    assert clocks.left_s(budget, begun, 0.5, 0.25) == 1.5
    assert clocks.left_s(budget, begun, 60.0, 20.0) == 20.0, "the minimum is always taken"
    assert clocks.left_s(budget, begun, 0.5, 0.01) == pytest.approx(9 * 0.01)
    assert clocks.left_s(budget, series([100.0] * 4, [200.0] * 4), 80.0, 20.0) == 0.0


def test_drift_that_both_sides_share_does_not_count_as_error() -> None:
    """Half the speed after half the samples, for both: the ratio is known exactly."""
    slower = [1.0] * 5 + [2.0] * 5
    assert relative_error([100 * s for s in slower], [300 * s for s in slower]) == pytest.approx(0.0)


def test_calls_of_one_burst_resemble_each_other_and_are_one_observation() -> None:
    """Two bursts, one of which saw the submission at twice its time, tell little, however many calls they had."""
    own, ref = [100.0] * 8 + [200.0] * 8, [200.0] * 16
    assert relative_error(own, ref) < relative_error(own, ref, 8) == pytest.approx(math.log(2) / 2)
    assert relative_error(own[:8], ref[:8], 8) == math.inf
    budget = Budget(seconds=2.0, min_samples=4, max_samples=99, target_error=0.1, block=8)
    assert enough(budget, series(own, ref), 0.0)
    assert not enough(dataclasses.replace(budget, burst=True), series(own, ref), 0.0)


def test_a_series_keeps_when_each_rank_had_finished() -> None:
    made = Samples(["wall", "device"], 1)
    made.add("wall", [called((1_000, 5_000), (2_000, 9_000))], [called((0, 4_000), (0, 4_000))])
    made.add("device", [called((0, 1), device_us=2.0)], [called((0, 1), device_us=4.0)])
    measured = made.measured()
    assert (measured.ranked.own, measured.ranked.baseline, measured.rank_ends_us) == ((8.0,), (4.0,), (4.0, 8.0))
    assert [(one.metric.name, one.own, one.baseline) for one in measured.series[1:]] == [("device", (2.0,), (4.0,))]
    assert measured.against_bound.metric.name == "device"


def test_a_series_keeps_what_each_device_says() -> None:
    """Whose device began a call early shows: it waits for the others, while all end at the same time."""
    made = Samples(["wall", "device"], 1)
    for early_us in (2.0, 3.0, 9.0):
        own, ref = called((0, 1), (0, 1)), called((0, 1), (0, 1))
        own = [dataclasses.replace(call, device_us=us) for call, us in zip(own, (40.0 + early_us, 40.0), strict=True)]
        ref = [dataclasses.replace(call, device_us=80.0) for call in ref]
        made.add("device", [own], [ref])
    made.add("wall", [called((0, 4_000))], [called((0, 4_000))])
    _, device = made.measured().series
    assert (device.own_ranks, device.baseline_ranks) == ((43.0, 40.0), (80.0, 80.0))
    assert device.own == (42.0, 43.0, 49.0)


def turn(unclaimed_us: float, claimed_us: float = 1000.0, began_ns: int = 0) -> Turn:
    """One call of one rank."""
    start_ns = began_ns + 1000
    call = CallSample(start_ns=start_ns, end_ns=start_ns + int(1000 * claimed_us), device_us=None, output=None)
    ended_ns = began_ns + int(1000 * (claimed_us + unclaimed_us))
    return Turn(began_ns=began_ns, ended_ns=ended_ns, called=((call,),))


def noisy(base_us: float) -> list[Turn]:
    return [turn(base_us + 37 * index % 16 * 40.0) for index in range(16)]


def in_bursts(own: list[Turn], ref: list[Turn]) -> str:
    return Bursts(claim=wall_us, is_trusted=True, own=own, ref=ref).doubt("the reference")


def test_time_that_passes_outside_the_calls_has_to_be_as_with_the_reference() -> None:
    """Honest, hidden work of twice the claim, and a machine so busy that nothing can be said."""
    assert in_bursts(noisy(2000), noisy(2000)) == ""
    assert in_bursts(noisy(2200), noisy(2000)) == ""
    assert "parent saw 1880 us more" in in_bursts(noisy(4000), noisy(2000)), "the slack is what may be chance"
    assert "parent saw 2000 us more" in EachCall(
        claim=wall_us, is_trusted=True, own=noisy(4000), ref=noisy(2000), idle=noisy(2000)
    ).doubt("the reference")
    busy = [turn(2000 + index * 1500.0) for index in range(16)]
    assert in_bursts(busy[2:], busy[:-2]) == ""


def test_of_few_turns_each_has_to_be_longer_than_all_of_the_reference() -> None:
    """As of bursts: three of either side."""
    few, more = noisy(2000)[:3], noisy(4000)[:3]
    assert "us more" in in_bursts(more, few)
    assert in_bursts([*more[:2], few[0]], few) == ""


OUTSIDE_US = 2000.0


def counted(own: list[Turn], ref: list[Turn]) -> tuple[list[float], list[float]]:
    """What they count beside idle calls, around which as much passes as around the reference's."""
    claims_us = ([wall_us(one.called[0]) for one in side] for side in (own, ref))
    idle = [turn(one.unclaimed_us(wall_us), 1.0) for one in ref[::2]]
    return EachCall(claim=wall_us, is_trusted=True, own=own, ref=ref, idle=idle).counted_us(*claims_us)


def quiet_reference(claimed_us: float = 5000.0, noise_us: float = 100.0) -> list[Turn]:
    """What passes outside its calls varies by so much either way."""
    shifts = (-1.0, -0.5, 0.0, 0.5, 1.0, 0.0, -0.2, 0.2) * 2
    return [turn(OUTSIDE_US + noise_us * shift, claimed_us) for shift in shifts]


CLAIMS = {
    "a quarter": lambda index: 0.25,
    "a twentieth in two of three": lambda index: 1.0 if index % 3 == 2 else 0.05,
    "half in every second": lambda index: 0.5 if index % 2 else 1.0,
    "nothing in seven of sixteen": lambda index: 0.001 if index < 7 else 1.0,
    "nothing in nine of sixteen": lambda index: 0.001 if index < 9 else 1.0,
    "nine tenths": lambda index: 0.9,
}


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS.keys())
@pytest.mark.parametrize("true_us", [80.0, 1000.0, 5000.0, 50000.0])
def test_whatever_calls_claim_they_count_what_was_seen(claim: Callable[[int], float], true_us: float) -> None:
    """By their median and by their mean, to 4 % or 10 us, where it is quiet."""
    ref = quiet_reference(noise_us=min(100.0, 0.1 * true_us))
    own = []
    for index, like in enumerate(ref):
        claimed_us = true_us * claim(index)
        own.append(turn(like.unclaimed_us(wall_us) + true_us - claimed_us, claimed_us))
    own_us, ref_us = counted(own, ref)
    least_us = true_us - max(10.0, 0.04 * true_us) - 0.1
    assert statistics.median(own_us) >= least_us
    assert statistics.fmean(own_us) >= least_us
    assert statistics.median(ref_us) == pytest.approx(5000.0, abs=30.0), "the reference counts by the same rule"


def test_on_a_busy_machine_a_lie_counts_what_the_truth_does() -> None:
    """What is chance is not known to be no lie: what was seen counts, of either."""
    busy = quiet_reference(noise_us=1000.0)
    honest = [turn(one.unclaimed_us(wall_us) + 60.0, 1000.0) for one in (*busy[3:], *busy[:3])]
    liar = [turn(one.unclaimed_us(wall_us) + 900.0, 100.0) for one in honest]
    assert counted(honest, busy) == counted(liar, busy)
    assert statistics.median(counted(honest, busy)[0]) == pytest.approx(1060.0, abs=150.0)


def test_less_passes_around_calls_whose_ranks_end_together_and_they_can_hide_none_of_it() -> None:
    """Around the reference's, whose ranks wait for each other, half a millisecond more than around idle calls."""
    ref, idle = [turn(OUTSIDE_US + 500.0, 20000.0)] * 16, [turn(OUTSIDE_US, 50.0)] * 8
    for part in (1.0, 0.8, 0.25):
        own = [turn(OUTSIDE_US + 3000.0 * (1 - part), 3000.0 * part)] * 16
        witness = EachCall(claim=wall_us, is_trusted=True, own=own, ref=ref, idle=idle)
        own_us, ref_us = witness.counted_us([3000.0 * part] * 16, [20000.0] * 16)
        assert own_us == pytest.approx([3000.0] * 16)
        assert ref_us == pytest.approx([20000.0 + 500.0 * (part < 1)] * 16)


@pytest.mark.parametrize("more_us", [0.0, 300.0, 900.0])
def test_who_slows_down_idle_calls_alone_gains_nothing(more_us: float) -> None:
    """By as much as its calls claim less."""
    own, ref = [turn(OUTSIDE_US + more_us, 2000.0 - more_us)] * 16, [turn(OUTSIDE_US, 2000.0)] * 16
    idle = [turn(OUTSIDE_US + more_us, 50.0)] * 8
    witness = EachCall(claim=wall_us, is_trusted=True, own=own, ref=ref, idle=idle)
    assert witness.counted_us([2000.0 - more_us] * 16, [2000.0] * 16)[0] == pytest.approx([2000.0] * 16)


def shown_ratio(own_us: list[float], ref_us: list[float]) -> float:
    """As boards rank by it."""
    return ratio(Series(metric=metrics.CLOCKS["wall"], own=tuple(own_us), baseline=tuple(ref_us), block=1))


@given(parts=st.lists(st.floats(0.001, 4.0), min_size=1, max_size=200), true_us=st.floats(50.0, 50000.0))
@example(parts=[0.025, 1.975] * 8, true_us=4000.0)  # nothing but the ratio shows it
@example(parts=[0.5, 0.5, 1.5, 2.5] * 4, true_us=4000.0)  # whose two in the middle are not alike
def test_no_pattern_of_claims_gains_more_than_the_slack(parts: list[float], true_us: float) -> None:
    """Too little in some calls and too much in others, in any that are shown: median, score (of means), ratio."""
    own = [turn(OUTSIDE_US + true_us * (1 - part), true_us * part) for part in parts]
    own_us, ref_us = counted(own, [turn(OUTSIDE_US, 5000.0) for _ in own])
    slack_us = max(10.0, 0.04 * true_us) + 0.1
    assert statistics.median(own_us) >= true_us - slack_us
    assert statistics.fmean(own_us) >= true_us - slack_us
    assert shown_ratio(own_us, ref_us) <= 5000.0 / true_us * (1 + slack_us / true_us) * 1.001


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("part", [0.3, 0.6, 0.975])
def test_claims_that_are_short_by_turns_gain_nothing_on_a_busy_machine(part: float, seed: int) -> None:
    """Half claim less and half as much more, while what passes outside varies by an eighth of a call: at most the slack
    more than whoever claims nothing, of whom what was seen counts."""
    rng = random.Random(seed)
    around_us = [rng.gauss(OUTSIDE_US, 500.0) for _ in range(64)]
    ref = [turn(rng.gauss(OUTSIDE_US, 500.0), 20000.0) for _ in around_us]

    def shown(short: Callable[[int], float]) -> float:
        hidden_us = [4000.0 * short(at) for at in range(len(around_us))]
        return shown_ratio(
            *counted([turn(us + hidden, 4000.0 - hidden) for us, hidden in zip(around_us, hidden_us, strict=True)], ref)
        )

    assert shown(lambda at: part * (-1) ** at) <= 1.041 * shown(lambda at: 0.999)  # and not 1 / sqrt(1 - part**2)


@given(noise_us=st.lists(st.floats(-100.0, 100.0), min_size=16, max_size=16), true_us=st.floats(2000.0, 50000.0))
def test_noise_outside_honest_calls_costs_little(noise_us: list[float], true_us: float) -> None:
    """It is as often less than the reference's as more: what counts is close to what is claimed."""
    noise_us = [us - statistics.fmean(noise_us) for us in noise_us]
    own_us, ref_us = counted([turn(OUTSIDE_US + us, true_us) for us in noise_us], quiet_reference())
    assert statistics.median(own_us) <= true_us + 120.0
    assert statistics.fmean(own_us) <= true_us + 120.0
    assert statistics.median(ref_us) <= 5000.0 + 120.0


def test_honest_calls_count_what_they_claim() -> None:
    """Though the parent's time around them is not always the same, and once far more."""
    assert counted(quiet_reference(1000.0), quiet_reference()) == ([1000.0] * 16, [5000.0] * 16)
    once = [*quiet_reference(1000.0)[:15], turn(OUTSIDE_US + 30000.0, 1000.0)]
    own_us, _ = counted(once, quiet_reference())
    assert statistics.median(own_us) < 1020.0, "the mean of 16 is off by a sixteenth"


TRUE_US = 5000.0


def head_to_head(claims_us: list[float], is_baseline: bool, seed: int) -> EachCall:
    """Two files whose calls take as long, one of which claims so much, and idle calls of trusted ranks."""
    rng = random.Random(seed)

    def around_us() -> float:
        return rng.gauss(OUTSIDE_US, 0.02 * TRUE_US)

    liar = [turn(around_us() + TRUE_US - us, us) for us in claims_us]
    honest = [turn(around_us(), TRUE_US) for _ in claims_us]
    own, ref = (honest, liar) if is_baseline else (liar, honest)
    idle = [turn(around_us(), 50.0) for _ in claims_us[::2]]
    return EachCall(claim=wall_us, is_trusted=False, own=own, ref=ref, idle=idle)


def gain(claims_us: list[float], is_baseline: bool, seed: int) -> float:
    """How many times as fast as the honest side the liar is shown."""
    witness = head_to_head(claims_us, is_baseline, seed)
    claims = ([wall_us(one.called[0]) for one in turns] for turns in (witness.own, witness.ref))
    ratio_shown = shown_ratio(*witness.counted_us(*claims))
    return 1 / ratio_shown if is_baseline else ratio_shown


@pytest.mark.parametrize("is_baseline", [False, True])
@pytest.mark.parametrize(
    "parts",
    [
        [1.3, 1.3, 1.3, 0.1, 0.1],  # by each other's overhead, a median, such claims gained 1.13 on either side
        [1.6, 1.6, 1.6, 0.5, 0.5],
        [1.1, 1.1, 1.1, 0.85, 0.85],
        [0.2] * 5,
        [0.2, 1.8] * 2,
    ],
)
def test_no_pattern_of_claims_gains_head_to_head_on_either_side(parts: list[float], is_baseline: bool) -> None:
    """30 seeds each: what is shown is what is shown of a file that claims nothing, and as close to 1 as that."""
    gains, of_the_silent = (
        [math.log(gain([TRUE_US * part for part in claimed] * 8, is_baseline, seed)) for seed in range(30)]
        for claimed in (parts, [0.001] * len(parts))
    )
    assert statistics.fmean(gains) == pytest.approx(statistics.fmean(of_the_silent), abs=0.002)
    assert abs(statistics.fmean(gains)) < 0.01
    assert max(map(abs, gains)) <= max(map(abs, of_the_silent)) + 0.002


def test_on_a_busy_machine_no_call_counts_next_to_nothing() -> None:
    """As seen at load 12 on 2 cores, where equal files were shown at 0.02 and 3433: the median of what passed around
    idle calls exceeded whole calls."""
    idle = [turn(us, 25.0) for us in (2837, 5590, 755, 3912, 7476, 595, 9033, 1534)]
    own = [turn(us, 1600.0) for us in (733, 3230, 860, 2800, 3071, 1042, 4600, 5650) * 2]
    ref = [turn(us, 1600.0) for us in (831, 1029, 906, 800, 806, 821, 788, 948) * 2]
    witness = EachCall(claim=wall_us, is_trusted=False, own=own, ref=ref, idle=idle)
    own_us, ref_us = witness.counted_us(*([1600.0] * 16 for _ in range(2)))
    assert min(own_us + ref_us) > 1500
    assert shown_ratio(own_us, ref_us) > 0.4


@pytest.mark.parametrize("is_baseline", [False, True])
def test_the_side_that_plainly_lies_is_named_head_to_head(is_baseline: bool) -> None:
    witness = head_to_head([0.2 * TRUE_US] * 16, is_baseline, seed=1)
    assert "us a call, but" in witness.doubt("A", is_baseline)
    assert witness.doubt("A", not is_baseline) == ""
    assert not any(head_to_head([TRUE_US] * 16, is_baseline, seed=1).doubt("A", side) for side in (False, True))


def test_honest_claims_of_both_sides_count_head_to_head() -> None:
    quiet = EachCall(
        claim=wall_us,
        is_trusted=False,
        own=[turn(OUTSIDE_US, 1000.0)] * 16,
        ref=[turn(OUTSIDE_US, 2000.0)] * 16,
        idle=[turn(OUTSIDE_US, 50.0)] * 8,
    )
    assert quiet.counted_us([1000.0] * 16, [2000.0] * 16) == ([1000.0] * 16, [2000.0] * 16)


def test_whoever_hides_a_third_of_its_calls_is_held() -> None:
    ref = quiet_reference()
    liar = [turn(one.unclaimed_us(wall_us) + 4000.0, 1000.0) for one in ref]
    assert "us a call, but" in EachCall(claim=wall_us, is_trusted=True, own=liar, ref=ref).doubt("the reference")
    assert EachCall(claim=wall_us, is_trusted=True, own=ref, ref=ref).doubt("the reference") == ""


def test_a_record_has_the_claims_where_others_count() -> None:
    for hidden_us, claims in ((0.0, ()), (4000.0, (1000.0,) * 16)):
        own = [turn(OUTSIDE_US + hidden_us, 1000.0) for _ in range(16)]
        made = Samples(["wall"], 4)
        for is_baseline, side in ((False, own), (True, quiet_reference())):
            for one in side:
                made.saw("wall", one, is_baseline)
        made.own_us["wall"], made.ref_us["wall"] = [1000.0] * 16, [5000.0] * 16
        assert made.measured().ranked.own_claims == claims


CALLS, WARM, AROUND_US, END_US = 7, 3, 150.0, 400.0  # of a burst; outside each call, and at the end


def burst(told_us: list[float], seen_us: list[float], end_us: float = END_US) -> Turn:
    """Calls of one rank that claim so much and take so much as the parent sees them, behind WARM ones."""
    at_us, told, calls = 0.0, [0.0], []
    for claimed_us, call_us in zip(told_us, seen_us, strict=True):
        start_ns = int(1000 * at_us) + 1
        end_ns = start_ns + max(1, int(1000 * claimed_us) - 2)
        calls.append((CallSample(start_ns=start_ns, end_ns=end_ns, device_us=None, output=None),))
        at_us += call_us
        told.append(at_us)
    ns = [int(1000 * us) for us in (*told, at_us + end_us)]
    return Turn(began_ns=0, ended_ns=ns[-1], called=tuple(calls), told_ns=tuple(ns[:-1]))


def burst_of(true_us: float, part: Callable[[int], float]) -> Turn:
    """Of calls that take so long, and claim that part of it, warm ones all."""
    claims_us = [true_us] * WARM + [true_us * part(index) for index in range(CALLS)]
    return burst(claims_us, [true_us + AROUND_US] * (WARM + CALLS))


def unfinished(true_us: float) -> Turn:
    """Of calls that claim to have finished at once, while the device works on: it all comes to light after the last."""
    return burst([1.0] * (WARM + CALLS), [1.0 + AROUND_US] * (WARM + CALLS), END_US + true_us * CALLS)


LIES: dict[str, Callable[[float], Turn]] = {
    "a quarter": lambda us: burst_of(us, lambda index: 0.25),
    "nothing in four of seven": lambda us: burst_of(us, lambda index: 0.01 if index < 4 else 1.0),
    "nothing in four, for which the others claim what is outside them": lambda us: burst_of(
        us, lambda index: 0.01 if index < 4 else 1.0 + AROUND_US / us
    ),
    "less in every second, and as much more in the others": lambda us: burst_of(
        us, lambda index: 0.1 if index % 2 else 1.0 + min(0.9, AROUND_US / us)
    ),
    "finished before its device has": unfinished,
}


def counted_in_bursts(own: list[Turn], ref: list[Turn]) -> list[float]:
    made = Samples(["wall"], CALLS, in_pairs=True)
    for is_baseline, side in ((False, own), (True, ref)):
        for one in side:
            made.saw("wall", one, is_baseline)
    made.add("wall", *([calls for one in side for calls in one.called[WARM:]] for side in (own, ref)))
    return made.counted_us()[0]


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
@pytest.mark.parametrize("true_us", [60.0, 400.0, 5000.0])
def test_no_pattern_of_claims_gains_in_bursts_either(lie: Callable[[float], Turn], true_us: float) -> None:
    ref = [burst_of(1000.0, lambda index: 1.0)] * 4
    own_us = counted_in_bursts([lie(true_us)] * 4, ref)
    least_us = true_us - max(10.0, 0.04 * true_us) - 0.1
    assert statistics.median(own_us) >= least_us
    assert statistics.fmean(own_us) >= least_us


def test_honest_bursts_count_what_they_claim() -> None:
    """Its warm calls may be slow, whatever they claim; nor does it matter which of its calls are."""
    honest = burst_of(60.0, lambda index: 1.0 + 0.3 * (index % 2))
    slow_first = burst([5000.0, 60.0, 60.0, *[60.0] * CALLS], [9000.0, *[60.0 + AROUND_US] * (WARM + CALLS - 1)])
    ref = [burst_of(1000.0, lambda index: 1.0)] * 4
    for own in (burst_of(60.0, lambda index: 1.0), slow_first):
        assert counted_in_bursts([own] * 4, ref) == pytest.approx([60.0] * 4 * CALLS, abs=0.01)
    seen_as_claimed = [wall_us(calls) for calls in honest.called[WARM:]]
    own = [
        burst([60.0] * WARM + seen_as_claimed, [60.0 + AROUND_US] * WARM + [us + AROUND_US for us in seen_as_claimed])
    ]
    assert counted_in_bursts(own * 4, ref) == pytest.approx(seen_as_claimed * 4, abs=0.01)


def test_a_call_of_a_burst_ends_before_the_next_ones_key_is_told() -> None:
    honest = burst_of(60.0, lambda index: 1.0)
    assert credibility.impossible(honest, "wall") == ""
    assert credibility.impossible(burst_of(60.0, lambda index: 4.0), "wall") != ""


@pytest.mark.parametrize(
    ("wall_us", "device_us", "ref_wall_us", "ref_device_us", "believed"),
    [
        (300.0, 55.0, 400.0, 70.0, True),
        (60.0, 55.0, 400.0, 70.0, True),
        (900.0, 1700.0, 1000.0, 1600.0, True),  # both wait for a cold host on the device's clock
        (500.0, 1700.0, 1000.0, 3000.0, True),
        (20.0, 55.0, 400.0, 70.0, False),
        (20.0, 55.0, 400.0, 800.0, True),
    ],
)
def test_the_hosts_clock_reads_no_less_than_the_devices(
    wall_us: float, device_us: float, ref_wall_us: float, ref_device_us: float, believed: bool
) -> None:
    made = series([wall_us] * 5, [ref_wall_us] * 5)
    assert credibility.too_short(made) == "", "a CPU has no other clock"
    made.own_us["device"], made.ref_us["device"] = [device_us] * 5, [ref_device_us] * 5
    assert (credibility.too_short(made) == "") == believed


def test_a_call_lies_between_the_handing_out_of_its_input_and_its_reply() -> None:
    early = Turn(began_ns=5000, ended_ns=9_000_000, called=turn(2000.0).called)
    assert "began before" in credibility.impossible(early, "wall")
    assert credibility.impossible(turn(2000.0), "wall") == ""


@pytest.mark.parametrize("device_us", [None, 0.0, -1.0, float("nan"), float("inf"), 1100.0])
def test_a_device_works_no_longer_than_its_call_takes(device_us: float | None) -> None:
    def on_device(device_us: float | None) -> Turn:
        (call,) = turn(2000.0, claimed_us=1000.0).called[0]
        return dataclasses.replace(turn(2000.0), called=((dataclasses.replace(call, device_us=device_us),),))

    assert "its device took" in credibility.impossible(on_device(device_us), "device")
    assert credibility.impossible(on_device(900.0), "device") == ""


def test_results_are_kept_where_a_second_call_takes_less_than_half_of_the_first() -> None:
    """In all pairs but one: a call that the machine slows down neither hides it nor looks like it."""

    def pairs(fresh_us: list[int], again_us: list[int]) -> str:
        times_us = [time for pair in zip(fresh_us, again_us, strict=True) for time in pair]
        return credibility.kept(list(map(float, times_us)))

    assert "100.0 us on a new input, but 49.0 us on the same again" in pairs([100, 120, 90], [49, 20, 300])
    assert pairs([100, 120, 100], [51, 20, 90]) == ""
    assert pairs([1000, 90, 90], [49, 49, 49]) == ""
    assert pairs([38213], [38222]) == "", "a single pair says no more than several do"
    assert pairs([100], [49]) != ""
    assert pairs([], []) == ""


def test_of_several_calls_on_an_input_again_the_slowest_counts() -> None:
    """A machine that delays every second call delays one of two that follow each other."""
    by_turns = [6000.0, 700.0, 6100.0, 700.0, 6000.0, 700.0] * 2
    assert credibility.kept(by_turns) != ""
    assert credibility.kept(by_turns, again=2) == ""
    assert "6000.0 us on a new input, but 700.0 us" in credibility.kept([6000.0, 650.0, 700.0] * 5, again=2)


def test_in_bursts_nothing_counts_less_than_it_claims() -> None:
    """However much less a noisy machine lets the parent see of some bursts."""
    around_us = (10.0, 1100.0, 20.0, 1200.0)
    own = [burst([100.0] * (WARM + CALLS), [100.0 + around] * (WARM + CALLS)) for around in around_us]
    counted_us = counted_in_bursts(own, [burst_of(100.0, lambda index: 1.0)] * 4)
    assert min(counted_us) >= 99.9
    assert max(counted_us) > 500.0  # what was seen did


@pytest.mark.parametrize(
    ("seen", "opponent", "is_held"),
    [
        (["own"], None, False),
        (["own", "reference"], None, False),
        (["own", "", "own"], None, False),
        (["own", "", "own", "own"], None, False),
        (["own", "", "own", "own", "own"], None, True),
        (["own", "own", "own", "own"], "another file", True),
        (["own", "own", "own"], "another file", False),
    ],
)
def test_what_seems_cached_counts_where_every_look_shows_it_and_none_at_the_reference(
    monkeypatch: pytest.MonkeyPatch, seen: list[str], opponent: str | None, is_held: bool
) -> None:
    """Beside busy processes honest files were held: a second call in a row had its core."""
    looks: list[str] = []

    def look(self: CaseMeasurement, group: str, *how: int) -> str:
        looks.append(group)
        return seen[len(looks) - 1] if len(looks) <= len(seen) else ""

    monkeypatch.setattr(CaseMeasurement, "repeated", look)
    calls: Any = SimpleNamespace(plan=SimpleNamespace(opponent=opponent), baseline="reference", at=0, shortened={0})
    own: Any = "own"
    assert bool(CaseMeasurement(calls, calls, None, contextlib.nullcontext).cached(own)) == is_held
    assert len(looks) <= 5, "the looks are bounded"
    assert ("reference" in looks) == (opponent is None)


def test_a_file_in_which_one_look_finds_nothing_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[tuple[int, ...]] = []
    monkeypatch.setattr(CaseMeasurement, "repeated", lambda self, *given: looks.append(given[1:]) or "")
    calls: Any = SimpleNamespace(at=0, shortened={0})
    group: Any = "own"
    assert CaseMeasurement(calls, calls, None, contextlib.nullcontext).cached(group) == ""
    assert looks == [(FEWER_INPUTS, 1)]
