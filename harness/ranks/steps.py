"""Words of 32 bits by which the parent lets the devices of a group go on, step by step, and sees how far they are.

A device's stream waits for one word before a step and sets another one behind it, so that no host of a rank's lies
between the parent's clock and the device (harness.ranks.stepped has what the steps are). All words of one kind lie side
by side: the parent sets those of all ranks by one store, and sees by one read whether all have come.

The words lie in the barrier's page, which ranks map too. Their values are epochs, which only grow.
"""

import mmap
import struct
import time
from collections.abc import Callable, Iterable

STEPS = 3
WRITE, COPY, BACK = range(STEPS)  # the trusted ranks'; the last is only told, by a device that is about to copy
COME, CALL = 0, 1  # any other group's
LINE_BYTES = 64  # of a cache
WORD = struct.Struct("<I")


def nbytes(world_size: int) -> int:
    """The bytes of all words of a group of so many ranks."""
    return 2 * STEPS * _row_nbytes(world_size)


def _row_nbytes(world_size: int) -> int:
    return WORD.size * world_size + -WORD.size * world_size % LINE_BYTES


class Steps:
    """One process's view of them, from `offset` on in a page. Steps are numbered from 0."""

    def __init__(self, page: mmap.mmap, offset: int, world_size: int) -> None:
        self.page, self.offset, self.world_size = page, offset, world_size
        self.words = memoryview(page).cast("I")

    def let_at(self, step: int, rank: int) -> int:
        """The offset in the page of the word that this rank's device waits for before the step, in bytes."""
        return self.offset + 2 * step * _row_nbytes(self.world_size) + WORD.size * rank

    def done_at(self, step: int, rank: int) -> int:
        """The offset in the page of the word that this rank's device sets after the step, in bytes."""
        return self.let_at(step, rank) + _row_nbytes(self.world_size)

    def let(self, step: int, epoch: int, ranks: Iterable[int] | None = None) -> tuple[int, int]:
        """Lets these ranks' devices (None: all) into the step of that epoch. Returns the time before (CLOCK_MONOTONIC),
        and how long it took (ns): the parent loses its core now and then."""
        return self.letting(step, epoch, ranks)()

    def letting(self, step: int, epoch: int, ranks: Iterable[int] | None = None) -> Callable[[], tuple[int, int]]:
        """What does the same when it is called, with nothing left to do but the store."""
        word, start, page, now = WORD.pack(epoch), self.let_at(step, 0), self.page, time.monotonic_ns
        data = word * self.world_size
        stores = [(start, data)] if ranks is None else [(start + WORD.size * rank, word) for rank in ranks]
        slices = [(slice(at, at + len(words)), words) for at, words in stores]

        def let() -> tuple[int, int]:
            began_ns = now()
            for where, words in slices:
                page[where] = words
            return began_ns, now() - began_ns

        return let

    def done_by(self, step: int, epoch: int) -> list[int]:
        """The ranks whose devices have done the step of that epoch."""
        first = self.done_at(step, 0) // WORD.size
        return [rank for rank in range(self.world_size) if self.words[first + rank] == epoch]


class Stamping:
    """A look for the end of a step of that epoch, which notes when each device had done it (CLOCK_MONOTONIC), by rank.
    All that a look needs is made here, so that looks are close together.

    `then` is called at once when all have done it. `gap_ns` is how long before the last stamp it had last looked, or
    None as long as some have not. Whoever lets devices go may set `looked_ns` to when that was: the first look comes
    some time later."""

    def __init__(self, steps: Steps, step: int, epoch: int, then: Callable[[], object] | None = None) -> None:
        self.words, self.first = steps.words, steps.done_at(step, 0) // WORD.size
        self.epoch, self.then = epoch, then
        self.stamps_ns = [0] * steps.world_size
        self.waiting = list(range(steps.world_size))
        self.looked_ns: int | None = None
        self.gap_ns: int | None = None

    @property
    def last_ns(self) -> int:
        return max(self.stamps_ns)

    def look(self, longest_ns: int) -> bool:
        """Looks until all have done it, but no longer than that. Whether they have."""
        first, words, epoch, waiting, now = self.first, self.words, self.epoch, self.waiting, time.monotonic_ns
        seen_ns = now()
        looked_ns, until_ns = self.looked_ns or seen_ns, seen_ns + longest_ns
        while self.gap_ns is None and seen_ns < until_ns:
            done = [rank for rank in waiting if words[first + rank] == epoch]
            seen_ns = now()
            for rank in done:
                self.stamps_ns[rank] = seen_ns
                waiting.remove(rank)
            if not waiting:
                self.gap_ns = seen_ns - looked_ns
                if self.then is not None:
                    self.then()
            looked_ns = seen_ns
        self.looked_ns = None
        return self.gap_ns is not None
