"""The words of stepped calls: who is let go, and how their ends are stamped."""

import mmap
import threading
import time
from itertools import pairwise

import pytest

from harness.ranks.steps import STEPS, Stamping, Steps, nbytes

RANKS, OFFSET = 3, 64


@pytest.fixture
def steps() -> Steps:
    return Steps(mmap.mmap(-1, OFFSET + nbytes(RANKS)), OFFSET, RANKS)


def say(steps: Steps, epoch: int, *ranks: int) -> None:
    for rank in ranks:
        steps.words[steps.done_at(1, rank) // 4] = epoch


def let(steps: Steps, step: int) -> list[int]:
    return [steps.words[steps.let_at(step, rank) // 4] for rank in range(RANKS)]


def test_no_two_words_share_a_place(steps: Steps) -> None:
    places = [at(step, rank) for step in range(STEPS) for at in (steps.let_at, steps.done_at) for rank in range(RANKS)]
    assert min(places) == OFFSET
    assert all(after - before >= 4 for before, after in pairwise(sorted(places)))
    assert max(places) + 4 <= OFFSET + nbytes(RANKS)


def test_all_ranks_are_let_go_or_those_that_are_named_and_only_when_it_is_called(steps: Steps) -> None:
    all_of_them, two = steps.letting(0, 7), steps.letting(1, 9, [0, 2])
    assert let(steps, 0) == let(steps, 1) == [0, 0, 0]
    before_ns = time.monotonic_ns()
    began_ns, took_ns = all_of_them()
    assert before_ns <= began_ns <= began_ns + took_ns <= time.monotonic_ns()
    two()
    assert let(steps, 0) == [7, 7, 7]
    assert let(steps, 1) == [9, 0, 9]


def test_each_rank_is_stamped_when_it_is_seen_and_what_follows_is_done_once(steps: Steps) -> None:
    followed: list[int] = []
    stamping = Stamping(steps, 1, 5, then=lambda: followed.append(time.monotonic_ns()))
    say(steps, 4, 0, 1, 2)  # of the call before
    say(steps, 5, 1)
    assert not stamping.look(1_000_000)
    assert (stamping.gap_ns, followed) == (None, [])
    first_ns = stamping.stamps_ns[1]
    say(steps, 5, 0, 2)
    assert stamping.look(1_000_000)
    assert stamping.look(1_000_000)
    assert len(followed) == 1
    assert first_ns == stamping.stamps_ns[1] < stamping.stamps_ns[0] == stamping.stamps_ns[2] == stamping.last_ns
    assert stamping.last_ns <= followed[0]


def test_the_gap_is_from_when_devices_were_let_go_or_from_the_look_before(steps: Steps) -> None:
    say(steps, 5, 0, 1, 2)
    late = Stamping(steps, 1, 5)
    late.looked_ns = time.monotonic_ns()
    time.sleep(0.01)
    assert late.look(1_000_000)
    assert late.gap_ns is not None
    assert late.gap_ns >= 10_000_000
    looking = Stamping(steps, 1, 6)
    looking.looked_ns = time.monotonic_ns() - 1_000_000_000
    threading.Timer(0.02, say, (steps, 6, 0, 1, 2)).start()
    assert looking.look(10_000_000_000)
    assert looking.gap_ns is not None
    assert looking.gap_ns < 1_000_000_000
