"""When a phase of calls has to be over, and where its time went."""

import contextlib
import time
from collections.abc import Callable, Iterator

SHOWN_S = 0.1
MAKING, JUDGING = "making inputs", "judging"


class Deadline:
    """The deadline of a phase, `limit_s` seconds from now.

    With `longest` above 1, the time that trusted ranks take to make inputs and judge outputs does not count, until the
    phase has taken `longest` times its limit. The limits of a KernelBot folder are meant for one input and one check a
    case, as in its own eval.py; here there are several of each.
    """

    def __init__(self, limit_s: float, longest: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._limit_s, self._began_s = clock, limit_s, clock()
        self.at_s = self._began_s + limit_s  # of the clock
        self.last_s = self._began_s + limit_s * longest  # which no judge may pass
        self._spent_s: dict[str, float] = {}

    @contextlib.contextmanager
    def spent_on(self, what: str) -> Iterator[None]:
        """The time within was spent on that."""
        began_s = self._clock()
        try:
            yield
        finally:
            took_s = self._clock() - began_s
            self._spent_s[what] = self._spent_s.get(what, 0.0) + took_s
            if what in (MAKING, JUDGING):
                self.at_s = min(self.at_s + took_s, self.last_s)

    def spent_s(self, what: str) -> float:
        """How long that took so far."""
        return self._spent_s.get(what, 0.0)

    def told(self) -> str:
        """Where the time went, in words, the longest part first."""
        went = sorted(self._spent_s.items(), key=lambda item: -item[1])
        spent = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in went if seconds >= SHOWN_S)
        return f"the phase's limit is {self._limit_s:g} s{f', and its time went to: {spent}' if spent else ''}"
