"""The rules of measuring: what a sample is, who goes when, and when it is enough."""

import dataclasses
import math
from collections import Counter
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.ranks import clocks, credibility
from harness.ranks.clocks import Budget, Samples, device_us, enough, gpumode_us, relative_error, turns, wall_us
from harness.ranks.wire import CallSample


def called(*ranks: tuple[int, int], device_us: float | None = None) -> list[CallSample]:
    return [CallSample(start_ns=start, end_ns=end, device_us=device_us, output=None) for start, end in ranks]


def test_the_wall_clock_runs_from_the_first_start_to_the_last_end() -> None:
    """Whichever ranks these are, and however long the others took."""
    assert wall_us(called((2_000, 5_000), (1_000, 3_000), (4_000, 9_000))) == 8.0


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
    blocks = [number for number in range(30) if len(clocks.due(("wall", "device"), number)) == 2]
    assert blocks == [0, 2, 8, 16, 24]
    assert all(clocks.due(("wall", "device"), number)[0] == "wall" for number in range(30))


def test_the_device_clock_needs_no_bursts() -> None:
    order = turns(Budget(seconds=1, block=3, burst=True), "device", 0)
    assert all(len(indices) == 1 for _, indices in order)
    assert len(order) == 6


def series(own_us: list[float], ref_us: list[float]) -> Samples:
    made = Samples(["wall"], block=1)
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
    made = Samples(["wall", "device"], block=1)
    made.add("wall", [called((1_000, 5_000), (2_000, 9_000))], [called((0, 4_000), (0, 4_000))])
    made.add("device", [called((0, 1), device_us=2.0)], [called((0, 1), device_us=4.0)])
    measured = made.measured()
    assert (measured.ranked.own, measured.ranked.baseline, measured.rank_ends_us) == ((8.0,), (4.0,), (4.0, 8.0))
    assert [(one.metric.name, one.own, one.baseline) for one in measured.series[1:]] == [("device", (2.0,), (4.0,))]
    assert measured.against_bound.metric.name == "device"


def test_a_series_keeps_what_each_device_says() -> None:
    """Whose device began a call early shows: it waits for the others, while all end at the same time."""
    made = Samples(["wall", "device"], block=1)
    for early_us in (2.0, 3.0, 9.0):
        own, ref = called((0, 1), (0, 1)), called((0, 1), (0, 1))
        own = [dataclasses.replace(call, device_us=us) for call, us in zip(own, (40.0 + early_us, 40.0), strict=True)]
        ref = [dataclasses.replace(call, device_us=80.0) for call in ref]
        made.add("device", [own], [ref])
    made.add("wall", [called((0, 4_000))], [called((0, 4_000))])
    _, device = made.measured().series
    assert (device.own_ranks, device.baseline_ranks) == ((43.0, 40.0), (80.0, 80.0))
    assert device.own == (42.0, 43.0, 49.0)


def turn(unclaimed_us: float, claimed_us: float = 1000.0, began_ns: int = 0) -> clocks.Turn:
    """One call of one rank."""
    start_ns = began_ns + 1000
    call = CallSample(start_ns=start_ns, end_ns=start_ns + int(1000 * claimed_us), device_us=None, output=None)
    ended_ns = began_ns + int(1000 * (claimed_us + unclaimed_us))
    return clocks.Turn(began_ns=began_ns, ended_ns=ended_ns, called=((call,),))


def noisy(base_us: float) -> list[clocks.Turn]:
    return [turn(base_us + 37 * index % 16 * 40.0) for index in range(16)]


def unaccounted(own: list[clocks.Turn], ref: list[clocks.Turn], own_us: float = nan, ref_us: float = nan) -> str:
    """With so much CPU time, where it is known."""
    return credibility.unaccounted(clocks.Side(turns=own, busy_us=own_us), clocks.Side(turns=ref, busy_us=ref_us))


def test_time_that_passes_outside_the_calls_has_to_be_as_with_the_reference() -> None:
    """Honest, hidden work of twice the claim, and a machine so busy that nothing can be said."""
    assert unaccounted(noisy(2000), noisy(2000)) == ""
    assert unaccounted(noisy(2200), noisy(2000)) == ""
    assert "but 2000 us more" in unaccounted(noisy(4000), noisy(2000))
    busy = [turn(2000 + index * 1500.0) for index in range(16)]
    assert unaccounted(busy[2:], busy[:-2]) == ""


def test_a_process_that_waited_for_a_core_did_no_work() -> None:
    """16 calls that claim 1 ms; 2 ms more than the reference passed around each."""
    own, ref = noisy(4000), noisy(2000)
    outside_us = 500.0  # of either side's CPU time a call, for getting ready and handing over
    honest_us, hidden_us = 16 * (1000 + outside_us), 16 * (1000 + outside_us + 2000)
    assert unaccounted(own, ref, honest_us, 16 * outside_us) == ""
    assert "us more" in unaccounted(own, ref, hidden_us, 16 * outside_us)


def test_of_few_turns_each_has_to_be_longer_than_all_of_the_reference() -> None:
    """As of bursts: three of either side."""
    few, more = noisy(2000)[:3], noisy(4000)[:3]
    assert "us more" in unaccounted(more, few)
    assert unaccounted([*more[:2], few[0]], few) == ""


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
    early = clocks.Turn(began_ns=5000, ended_ns=9_000_000, called=turn(2000.0).called)
    assert "began before" in credibility.impossible(early, "wall")
    assert credibility.impossible(turn(2000.0), "wall") == ""


@pytest.mark.parametrize("device_us", [None, 0.0, -1.0, float("nan"), float("inf"), 1100.0])
def test_a_device_works_no_longer_than_its_call_takes(device_us: float | None) -> None:
    def on_device(device_us: float | None) -> clocks.Turn:
        (call,) = turn(2000.0, claimed_us=1000.0).called[0]
        return dataclasses.replace(turn(2000.0), called=((dataclasses.replace(call, device_us=device_us),),))

    assert "its device took" in credibility.impossible(on_device(device_us), "device")
    assert credibility.impossible(on_device(900.0), "device") == ""


def test_results_are_kept_where_a_second_call_takes_less_than_half_of_the_first() -> None:
    """In all pairs but one: a call that the machine slows down neither hides it nor looks like it."""

    def pairs(fresh_us: list[int], again_us: list[int]) -> str:
        times_ns = [1000 * time for pair in zip(fresh_us, again_us, strict=True) for time in pair]
        return credibility.kept([called((0, time_ns)) for time_ns in times_ns], "wall")

    assert "100.0 us on a new input, but 49.0 us on the same again" in pairs([100, 120, 90], [49, 20, 300])
    assert pairs([100, 120, 100], [51, 20, 90]) == ""
    assert pairs([1000, 90, 90], [49, 49, 49]) == ""
