"""The barrier: nobody leaves before it is released, everybody does afterwards, and the last to finish lets all go."""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from harness.ranks.barrier import Barrier, make_barrier

RANKS = 4


@pytest.fixture(params=[False, True], ids=["sleeping", "spinning"])
def barrier(request: pytest.FixtureRequest) -> Iterator[Barrier]:
    fd = make_barrier(RANKS)
    yield Barrier(fd, RANKS, request.param)
    os.close(fd)


def on_all_ranks(work: Callable[[int], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    return threads


def ended(threads: list[threading.Thread]) -> bool:
    for thread in threads:
        thread.join(60)  # four that spin under one interpreter lock, on a busy machine
    return not any(thread.is_alive() for thread in threads)


def test_nobody_leaves_before_the_release(barrier: Barrier) -> None:
    left: list[int] = []

    def wait(rank: int) -> None:
        barrier.wait(3)
        left.append(rank)

    threads = on_all_ranks(wait)
    barrier.release(2)
    time.sleep(0.05)
    assert left == []
    barrier.release(3)
    assert ended(threads)
    assert sorted(left) == list(range(RANKS))


def test_a_release_that_came_first_is_not_lost(barrier: Barrier) -> None:
    barrier.release(7)
    assert ended(on_all_ranks(lambda rank: barrier.wait(7)))


@pytest.mark.parametrize("meet", [Barrier.open, Barrier.finish], ids=["open", "finish"])
def test_ranks_meet_again_and_again_without_a_hang(barrier: Barrier, meet: Callable[[Barrier, int, int], None]) -> None:
    """A rank is never more than one meeting ahead of another, over many in random order."""
    at = [0] * RANKS
    apart: list[int] = []

    def work(rank: int) -> None:
        rng = random.Random(rank)
        for epoch in range(1, 16 if barrier.spin else 101):  # spinning threads hold the interpreter up
            if rng.random() < 0.2:
                time.sleep(rng.random() * 0.002)
            at[rank] = epoch
            meet(barrier, rank, epoch)
            apart.append(epoch - min(at))

    assert ended(on_all_ranks(work))
    assert max(apart) == 0, "everyone had come to this meeting when anyone left it"


def test_who_waits_long_sleeps_and_does_not_miss_the_last_to_come(
    barrier: Barrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a rank that had left its call would keep its group from being idle, for as long as the others hang."""
    looks: list[int] = []
    sleep = Barrier._sleep

    def counted(self: Barrier, word: int, seen: int, waited_ns: int = 0) -> None:
        if waited_ns > 1_100_000_000:
            looks.append(waited_ns)
        sleep(self, word, seen, waited_ns)

    monkeypatch.setattr(Barrier, "_sleep", counted)
    threads = [threading.Thread(target=barrier.finish, args=(rank, 1), daemon=True) for rank in range(RANKS)]
    threads[0].start()
    time.sleep(1.6)
    count = len(looks)
    for thread in threads[1:]:
        thread.start()
    assert ended(threads)
    assert count < 100, "every 2 ms it would be 250 times"


def test_a_key_is_told_with_its_epoch(barrier: Barrier) -> None:
    """Nobody has it before, and not another epoch's."""
    barrier.tell(range(RANKS), 7, 41)
    keys: dict[int, int] = {}

    def take(rank: int) -> None:
        keys[rank] = barrier.key(rank, 8)

    threads = on_all_ranks(take)
    time.sleep(0.05)
    assert keys == {}
    barrier.tell(range(RANKS), 8, 2**42 - 1)
    assert ended(threads)
    assert set(keys.values()) == {2**42 - 1}


def test_the_parent_sees_when_all_have_finished(barrier: Barrier) -> None:
    assert not barrier.all_finished(1)
    assert ended(on_all_ranks(lambda rank: barrier.finish(rank, 1)))
    assert barrier.all_finished(1)
    assert not barrier.all_finished(2)


def test_a_late_rank_gets_its_key_later_and_nobody_waits_for_it(barrier: Barrier) -> None:
    left: list[int] = []

    def take(rank: int) -> None:
        barrier.key(rank, 8)
        barrier.open(rank, 8)
        left.append(rank)

    threads = on_all_ranks(take)
    barrier.stand_in(2, 8)
    barrier.tell([0, 1, 3], 8, 41)
    assert ended([threads[0], threads[1], threads[3]])
    assert sorted(left) == [0, 1, 3]
    barrier.tell([2], 8, 41)
    assert ended(threads)
