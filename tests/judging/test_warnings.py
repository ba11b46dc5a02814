"""Warnings come when there is something to say, and only then."""

from dataclasses import replace

from factories import case, timed, track

from harness.core.machine_records import BlockState, CpuUse
from harness.core.records import CaseResult, Measured, Verdict, Verdicts
from harness.judging import warnings

SHAPE = {"m": 64, "n": 64, "k": 64, "has_bias": False}
RIGHT = Verdict(passed=True)


def result(outcome: Measured, gpumode: Verdict = RIGHT) -> CaseResult:
    return CaseResult(case=case(SHAPE), outcome=outcome, verdicts=Verdicts(strict=RIGHT, gpumode=gpumode))


def test_a_quiet_run_of_a_slow_shape_has_no_warning() -> None:
    assert warnings.warnings([result(timed(time_us=1000.0))], [50.0, 60.0, 70.0]) == ()


def test_a_call_that_is_hardly_longer_than_an_empty_one_is_doubtful() -> None:
    (warning,) = warnings.warnings([result(timed(time_us=500.0)), result(timed(time_us=9000.0))], [90.0, 100.0, 110.0])
    assert "an empty call reads 100 us, 20% of the fastest shape" in warnings.text_of(warning)


def test_a_restless_machine_is_said() -> None:
    steady = timed(time_us=1000.0)
    own = tuple(us * (1 + index % 2) for index, us in enumerate(steady.ranked.own))
    restless = replace(steady, series=(replace(steady.ranked, own=own),))
    (warning,) = warnings.warnings([result(restless), result(steady)], [1.0])
    assert warnings.text_of(warning).startswith("in 1 of 2 shapes the ratio to the reference spreads by more than 50%")


def test_blocks_in_which_a_gpu_was_held_down_for_one_side_are_said_where_they_do_not_count() -> None:
    hot, cool = (track("hardware thermal slowdown"),), (track(),)
    blocks = tuple(BlockState(own=hot, baseline=cool, pairs=pairs) for pairs in (0, 0, 7))
    (warning,) = warnings.warnings([result(replace(timed(), blocks=blocks)), result(timed())], [1.0])
    said = "in 2 blocks no call counts, of either side: a GPU was held down (hardware thermal slowdown) in"
    assert warnings.text_of(warning).startswith(said)


def test_cores_that_others_used_and_ranks_needed_are_said() -> None:
    """Those beside a busy process, as read on 2 cores; not the fifth of a core that there always is."""
    (warning,) = warnings.of_cpu_use(CpuUse(cores=2, spare=0, others=(0.19, 0.98, 0.51)))
    assert warnings.text_of(warning).startswith("other processes used up to 1.0 of 2 cores in 2 of 3 measurements: ")
    quiet = CpuUse(cores=2, spare=0, others=(0.0, 0.19)), CpuUse(cores=12, spare=4, others=(4.4, 0.98))
    assert [warnings.of_cpu_use(use) for use in (*quiet, None)] == [(), (), ()]


def test_right_here_and_refused_by_gpu_mode_is_said() -> None:
    refused = result(timed(), gpumode=Verdict(passed=False, message="rank 2: 3 elements"))
    (warning,) = warnings.warnings([refused], [1.0])
    assert "1 cases pass the strict verdict" in warnings.text_of(warning)
    assert "rank 2: 3 elements" in warnings.text_of(warning)
