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


def test_a_folders_judges_do_not_use_up_its_limit(clock: Clock) -> None:
    deadline = Deadline(45.0, 4.0, clock)
    for what, seconds in ((MAKING, 30.0), ("calls of the submission", 5.0), (JUDGING, 20.0)):
        spend(deadline, clock, what, seconds)
    assert deadline.at_s - clock.now_s == pytest.approx(40.0)  # of 45 s, less the calls
    assert deadline.told() == (
        "the phase's limit is 45 s, and its time went to: making inputs 30.0 s, judging 20.0 s, "
        "calls of the submission 5.0 s"
    )


def test_however_long_they_take_a_phase_ends(clock: Clock) -> None:
    deadline = Deadline(45.0, 4.0, clock)
    for _ in range(20):
        spend(deadline, clock, MAKING, 40.0)
    assert deadline.at_s == deadline.last_s == 100.0 + 4 * 45.0


def test_elsewhere_all_time_counts(clock: Clock) -> None:
    deadline = Deadline(45.0, clock=clock)
    spend(deadline, clock, MAKING, 30.0)
    assert deadline.at_s == deadline.last_s == 145.0


def test_what_ends_in_an_error_is_told_too(clock: Clock) -> None:
    deadline = Deadline(45.0, 4.0, clock)
    with contextlib.suppress(TimeoutError), deadline.spent_on(JUDGING):
        clock.now_s += 50.0
        raise TimeoutError
    assert "judging 50.0 s" in deadline.told()
