"""Whether ranks that are waited for do anything at all: the processor time of their processes and of all below them.

A rank that sleeps, or waits for what never comes, uses none. Whoever compiles, computes, reads a disk or is kept from
running by other work does: a process counts as idle only while it sleeps interruptibly.
"""

import time
from collections.abc import Callable, Sequence

from harness.core.processes import descendants
from harness.process import usage
from harness.ranks.rank import Rank

LOOK_S = 1.0  # between two looks, and before the first: shorter waits cost nothing
PART = 0.01  # of a processor, below which a group is idle; threads that wake up to look use less


class Idleness:
    """How long the ranks that are waited for have been idle. A new wait begins with `begin`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Forgets what was seen."""
        self._looked_s = self._since_s = self._clock()
        self._used_s: float | None = None

    def seconds(self, ranks: Sequence[Rank]) -> float:
        """For how long, at least, no process of these ranks has done anything; looks at most every LOOK_S."""
        now = self._clock()
        if now < self._looked_s + LOOK_S:
            return 0.0
        pids = {pid for rank in ranks if rank.pid for pid in (rank.pid, *descendants(rank.pid))}
        found = [usage.processor(pid) for pid in pids]
        used_s = sum(seconds for seconds, _ in found)
        is_idle = bool(found) and all(state in "SZ" for _, state in found)  # none: they are still being started
        if self._used_s is None or not is_idle or abs(used_s - self._used_s) > PART * (now - self._since_s):
            self._since_s, self._used_s = now, used_s
        self._looked_s = now
        return now - self._since_s
