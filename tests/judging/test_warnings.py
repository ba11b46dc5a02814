"""Warnings come when there is something to say, and only then."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from factories import case, report, timed, track

from harness.core.machine_records import BlockState, CpuUse
from harness.core.records import CaseResult, Measured, Verdict, Verdicts, Warning
from harness.judging import warnings

SHAPE = {"m": 64, "n": 64, "k": 64, "has_bias": False}
RIGHT = Verdict(passed=True)


def result(outcome: Measured, gpumode: Verdict = RIGHT) -> CaseResult:
    return CaseResult(case=case(SHAPE), outcome=outcome, verdicts=Verdicts(strict=RIGHT, gpumode=gpumode))


def warned(*results: CaseResult, empty_us: Sequence[float] = (1.0,), clock: str = "wall", **of: Any) -> list[Warning]:
    return list(warnings.warnings(report(results, empty_call_samples_us={clock: tuple(empty_us)}, **of)))


def spread(own: float = 1.0, reference: float = 1.0) -> CaseResult:
    """Calls of 1000 and 2000 us, of which every other one takes that many times as long, the two sides' in turn."""
    steady = timed(samples=16)
    longer = tuple(us * (own if index % 2 else 1) for index, us in enumerate(steady.ranked.own))
    baseline = tuple(us * (1 if index % 2 else reference) for index, us in enumerate(steady.ranked.baseline))
    return result(replace(steady, series=(replace(steady.ranked, own=longer, baseline=baseline),)))


def test_a_quiet_run_of_a_slow_shape_has_no_warning() -> None:
    assert warned(result(timed(time_us=1000.0)), empty_us=[50.0, 60.0, 70.0]) == []


def test_a_call_that_is_hardly_longer_than_an_empty_one_is_doubtful() -> None:
    """Fewer ranks are advised where they are more than the cores, which ENVIRONMENT has two of."""
    short = result(timed(time_us=500.0)), result(timed(time_us=9000.0))
    for ranks, advised in ((2, "use larger shapes for"), (8, "use no more ranks than cores (2), or larger shapes,")):
        (warning,) = warned(*short, empty_us=[90.0, 100.0, 110.0], world_size=ranks)
        assert "an empty call reads 100 us, 20% of the fastest shape" in warnings.text_of(warning)
        assert advised in warnings.text_of(warning)


def test_on_the_device_clock_an_empty_call_is_subtracted_and_what_they_differ_by_is_doubtful() -> None:
    (warning,) = warned(result(timed(time_us=50.0)), empty_us=[5.5, 6.0, 6.1], clock="device", device="cuda")
    assert warnings.text_of(warning).startswith("empty calls differ by 6.0 us, 12% of the fastest shape, whose figures")
    assert warned(result(timed(time_us=50.0)), empty_us=[0.6], clock="device", device="cuda") == []


FREE = CpuUse(cores=2, spare=0, others=(0.1, 0.0))


def test_a_restless_machine_is_said_where_nobody_saw_what_others_used_of_it() -> None:
    """Either both sides' times spread, or the reference's alone, which is no fault of the submission."""
    for restless in (spread(2.5, 2.5), spread(reference=2.5)):
        (warning,) = warned(restless, result(timed()))
        said = "in 1 of 2 shapes the ratio to the reference spreads by more than 50%"
        assert warnings.text_of(warning).startswith(said)
        assert warned(restless, result(timed()), cpu_use=FREE) == []


def test_a_submission_whose_calls_differ_beside_even_ones_of_the_reference_is_said() -> None:
    """Also where the cores were seen to be free; where others took them, that is said instead."""
    for use in (None, FREE):
        (warning,) = warned(spread(2.5), result(timed()), cpu_use=use)
        said = "in 1 of 2 shapes times differ by over 3 times as much as those of the reference in turn with them"
        assert warnings.text_of(warning).startswith(said)
    assert warned(spread(2.5), result(timed()), cpu_use=replace(FREE, others=(1.0, 0.9))) == []
    assert warned(spread(2.5, 2.5), cpu_use=FREE) == [], "as far as the reference's, which take longer"


def test_blocks_in_which_a_gpu_was_held_down_for_one_side_are_said_where_they_do_not_count() -> None:
    hot, cool = (track("hardware thermal slowdown"),), (track(),)
    blocks = tuple(BlockState(own=hot, baseline=cool, pairs=pairs) for pairs in (0, 0, 7))
    (warning,) = warned(result(replace(timed(), blocks=blocks)), result(timed()))
    said = "in 2 blocks no call counts, of either side: a GPU was held down (hardware thermal slowdown) in"
    assert warnings.text_of(warning).startswith(said)


def test_cores_that_others_used_and_ranks_needed_are_said() -> None:
    """Those beside a busy process, as read on 2 cores; not the fifth of a core that there always is."""
    (warning,) = warnings.of_cpu_use(CpuUse(cores=2, spare=0, others=(0.19, 0.98, 0.51)))
    assert warnings.text_of(warning).startswith("other work took up to 1.0 of 2 cores in 2 of 3 measurements: ")
    quiet = CpuUse(cores=2, spare=0, others=(0.0, 0.19)), CpuUse(cores=12, spare=4, others=(4.4, 0.98))
    assert [warnings.of_cpu_use(use) for use in (*quiet, None)] == [(), (), ()]


def test_slow_judges_are_said_unless_others_took_the_cores() -> None:
    (warning,) = warnings.of_judges(1, 2.0, 31.0, FREE)
    assert warnings.text_of(warning).startswith("judging outputs took 31 s and making inputs 2 s, by the problem's own")
    assert warnings.of_judges(1, 2.0, 31.0, replace(FREE, others=(0.9,))) == ()
    assert warnings.of_judges(0, 2.0, 31.0, None) == ()


def test_right_here_and_refused_by_gpu_mode_is_said() -> None:
    refused = result(timed(), gpumode=Verdict(passed=False, message="rank 2: 3 elements"))
    (warning,) = warned(refused)
    assert "1 case passed the strict verdict" in warnings.text_of(warning)
    assert "rank 2: 3 elements" in warnings.text_of(warning)
