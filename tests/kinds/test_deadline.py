"""A phase's deadline: what counts towards it, and where its time went."""

import contextlib

import pytest

from harness.kinds.op.groups import JUDGING, MAKING, Deadline


class Clock:
    """Seconds that pass when they are told to."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def spend(deadline: Deadline, clock: Clock, what: str, seconds: float) -> None:
    with deadline.spent_on(what):
        clock.now_s += seconds


def test_making_inputs_and_judging_do_not_use_up_the_submissions_limit(clock: Clock) -> None:
    deadline = Deadline(45.0, 135.0, clock)
    for what, seconds in ((MAKING, 30.0), ("calls of the submission", 5.0), (JUDGING, 20.0)):
        spend(deadline, clock, what, seconds)
    assert deadline.at_s - clock.now_s == pytest.approx(40.0)  # of 45 s, less the calls
    assert deadline.judged_by_s - clock.now_s == pytest.approx(85.0)  # of 135 s, less making and judging
    assert deadline.told() == (
        "the phase's limit is 45 s without making inputs and judging, and its time went to: making inputs 30.0 s, "
        "judging 20.0 s, calls of the submission 5.0 s"
    )


def test_however_long_either_takes_a_phase_ends(clock: Clock) -> None:
    """Whoever hangs is waited for until its own deadline, and both together end the phase."""
    deadline = Deadline(45.0, 135.0, clock)
    spend(deadline, clock, JUDGING, 5.0)
    spend(deadline, clock, MAKING, deadline.judged_by_s - clock.now_s)
    assert deadline.judged_by_s == clock.now_s, "nothing is left to judges that hung"
    assert deadline.at_s - clock.now_s == pytest.approx(45.0), "all of it is left to the submission"
    spend(deadline, clock, "calls of the submission", 45.0)
    assert deadline.at_s == clock.now_s == 100.0 + 45.0 + 135.0


def test_what_ends_in_an_error_is_told_too(clock: Clock) -> None:
    deadline = Deadline(45.0, 135.0, clock)
    with contextlib.suppress(TimeoutError), deadline.spent_on(JUDGING):
        clock.now_s += 50.0
        raise TimeoutError
    assert "judging 50.0 s" in deadline.told()
