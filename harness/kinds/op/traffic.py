"""Did data pass between GPUs in the timed calls? What NVLinks carried, against the least that a right result needs.

The probe shows that a rank waits for the others, not that it uses what they sent. The counters are the GPUs' own: a
submission cannot set them back. To raise them by sending what nobody needs costs the time that it wanted to save.
"""

from collections.abc import Callable
from typing import TypeVar

from harness.core.machine_records import LinkBytes, LinkTraffic, NoTraffic, Traffic
from harness.core.records import Held
from harness.machine.nvml import LinkCounters
from harness.machine.readings import Unread

T = TypeVar("T")
LEAST_PART = 0.25  # of what cost() says of the busiest rank: the mean over a2a's ranks is about half of that
LEAST_BYTES = 256 << 10  # of a turn and GPU, so that counters of whole KiB, one a link, and retries do not matter


class TrafficCount:
    """Counts what passes in turns of submission and baseline. `least_bytes`: what a rank must move in a call.

    The baseline's own traffic tells whether the counters can be relied on: they may not count what passes between these
    GPUs, or count it later. An opponent in its place is not `is_trusted`: that of either side does.
    """

    def __init__(self, counters: LinkCounters | None, least_bytes: float, is_trusted: bool = True) -> None:
        self.is_trusted = is_trusted
        self.counters = counters if least_bytes > 0 else None
        self.least_bytes = least_bytes
        self.own: list[tuple[int, float]] = []  # of each turn counted: calls, bytes a GPU
        self.baseline: list[tuple[int, float]] = []
        self.why = ""  # nothing can be said

    def turn(self, is_baseline: bool, calls: int, work: Callable[[], T]) -> T:
        """Does the turn, of so many calls, and counts what passes meanwhile."""
        if self.counters is None or self.why:
            return work()
        if calls * self.least_bytes < LEAST_BYTES:
            self.why = f"{calls * self.least_bytes / 1024:.0f} KiB in {calls} calls are too few to count"
            return work()
        before = self.counters.read()
        turn = work()
        after = self.counters.read()
        if isinstance(before, Unread) or isinstance(after, Unread):
            self.why = before.why if isinstance(before, Unread) else after.why  # type: ignore[union-attr]
            return turn
        passed: list[LinkBytes] = [late.since(early) for early, late in zip(before, after, strict=True)]
        counted = self.baseline if is_baseline else self.own
        counted.append((calls, sum(gpu.busier for gpu in passed) / len(passed)))
        return turn

    def record(self) -> Traffic | None:
        """The traffic that was counted, or why it says nothing; None where it was not to be counted."""
        if self.counters is None:
            return None
        if self.why or not self.own or not self.baseline:
            return NoTraffic(why=self.why or "no turn was counted")
        shown = [self.baseline] if self.is_trusted else [self.baseline, self.own]
        if max(map(self._least_part, shown)) < LEAST_PART:
            return NoTraffic(why="the GPUs' counters do not show what the baseline sends")
        own, baseline = (
            sum(nbytes for _, nbytes in turns) / sum(calls for calls, _ in turns) for turns in (self.own, self.baseline)
        )
        calls = sum(calls for calls, _ in self.own)
        return LinkTraffic(calls=calls, own_bytes=own, baseline_bytes=baseline, least_bytes=self.least_bytes)

    def doubt(self, is_baseline: bool = False) -> Held | None:
        """Holds the result if a turn of the submission, or of an opponent as the baseline, moved too few bytes."""
        turns = self.baseline if is_baseline else self.own
        if not isinstance(self.record(), LinkTraffic) or (least := self._least_part(turns)) >= LEAST_PART:
            return None
        return Held(
            check="communication",
            evidence=f"in a burst of timed calls each GPU sent or received {least * self.least_bytes / 1024:.0f} KiB a "
            f"call over NVLink, where a right result needs {self.least_bytes / 1024:.0f} KiB of the busiest rank",
        )

    def _least_part(self, turns: list[tuple[int, float]]) -> float:
        """The smallest fraction of the required bytes that any turn moved."""
        return min(nbytes / calls for calls, nbytes in turns) / self.least_bytes
