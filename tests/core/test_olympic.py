"""MLPerf's score of several runs: the Olympic mean, runs that do not converge, and convergence that is too fast."""

import pytest
from scipy import stats

from harness.core.olympic import NoScoreError, converges_too_fast, olympic_mean


def test_fastest_and_slowest_do_not_count() -> None:
    assert olympic_mean([9.0, 1.0, 2.0, 3.0, 100.0]) == pytest.approx((2 + 3 + 9) / 3)
    assert olympic_mean([5.0, 5.0, 7.0]) == 5.0


def test_a_run_that_does_not_converge_is_the_slowest() -> None:
    assert olympic_mean([9.0, 1.0, None, 3.0, 2.0]) == pytest.approx((2 + 3 + 9) / 3)


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ([1.0, 2.0, None, None, 3.0], "2 of 5 runs did not converge; at most 1 may"),
        ([1.0, 2.0], "2 runs: an Olympic mean needs at least 3"),
        ([1.0], "1 run: an Olympic mean needs at least 3"),
        ([], "0 runs: an Olympic mean needs at least 3"),
    ],
)
def test_what_has_no_score(times: list[float | None], said: str) -> None:
    with pytest.raises(NoScoreError, match=f"^{said}$"):
        olympic_mean(times)


REFERENCE = [4096.0, 4352.0, 4096.0, 4608.0, 4352.0, 4096.0, 4352.0, 4096.0]


@pytest.mark.parametrize("shift", [-1024, -512, -256, -192, -64, 0, 64, 512])
def test_convergence_is_held_against_the_reference_as_scipy_does(shift: int) -> None:
    """Without rounding it is Welch's test, but for the degrees of freedom, which are rounded down."""
    own = [4096.0 + shift, 4352.0 + shift, 4224.0 + shift, 4352.0 + shift, 4096.0 + shift]
    p = stats.ttest_ind(own, REFERENCE, equal_var=False, alternative="less").pvalue
    assert p < 0.045 or p > 0.055, "too close to say"
    assert converges_too_fast(own, REFERENCE, step=0) == (p < 0.05)


def test_runs_that_all_need_the_same_differ_by_rounding_alone() -> None:
    same, step = [4096.0] * 5, 256.0
    assert not converges_too_fast(same, same, step)
    assert not converges_too_fast([4096.0 - 64] * 5, same, step), "less than is seen between two evaluations"
    assert converges_too_fast([4096.0 - 512] * 5, same, step)
    assert converges_too_fast([4095.0] * 5, same, step=0), "nothing is left to chance"
    assert not converges_too_fast([4097.0] * 5, same, step=0)
