"""Words of 32 bits by which the parent lets the devices of a group go on, step by step, and sees how far they are.

A device's stream waits for one word before a step and sets another one behind it, so that no host of a rank's lies
between the parent's clock and the device (harness.ranks.stepped has what the steps are). All words of one kind lie side
by side: the parent sets those of all ranks by one store, and sees by one read whether all have come.

The words lie in the barrier's page, which ranks map too. Their values are epochs, which only grow.
"""

import mmap
import struct
import time
from collections.abc import Iterable

STEPS = 2
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
        word, start = WORD.pack(epoch), self.let_at(step, 0)
        data = word * self.world_size
        end, page, now = start + len(data), self.page, time.monotonic_ns
        began_ns = now()
        if ranks is None:
            page[start:end] = data
        else:
            for rank in ranks:
                page[start + WORD.size * rank : start + WORD.size * (rank + 1)] = word
        return began_ns, now() - began_ns

    def done_by(self, step: int, epoch: int) -> list[int]:
        """The ranks whose devices have done the step of that epoch."""
        first = self.done_at(step, 0) // WORD.size
        return [rank for rank in range(self.world_size) if self.words[first + rank] == epoch]

    def stamp(self, step: int, epoch: int, stamps_ns: list[int | None], until_ns: int) -> int | None:
        """Notes when each device had done the step (CLOCK_MONOTONIC), in `stamps_ns` by rank, until all have. Returns
        how long before the last of these stamps it had last looked (ns); None if some have not at `until_ns`."""
        first, words, now = self.done_at(step, 0) // WORD.size, self.words, time.monotonic_ns
        waiting = [rank for rank, stamp_ns in enumerate(stamps_ns) if stamp_ns is None]
        looked_ns = now()
        while True:
            done = [rank for rank in waiting if words[first + rank] == epoch]
            seen_ns = now()
            if done:
                for rank in done:
                    stamps_ns[rank] = seen_ns
                    waiting.remove(rank)
                if not waiting:
                    return seen_ns - looked_ns
            elif seen_ns > until_ns:
                return None
            looked_ns = seen_ns
