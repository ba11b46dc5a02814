"""The probe among timed calls: one rank is delayed, and no rank that needs its data may finish before."""

from dataclasses import replace

from harness.core.records import Case, Held, Wrong
from harness.kinds.op_calls import Calls
from harness.kinds.op_check import dependents, silent, wrong
from harness.ranks.group import Late

# A call is delayed among so many samples at first, and among so many later: each costs as much as several calls.
PROBE_FIRST, PROBE_EVERY = 16, 64
COUNT_EVERY = 4  # blocks, of which the secret chooses one in which traffic is counted, and the first


class Probe:
    """Delays a rank in a call among the timed ones, so that a submission does not communicate in checked calls alone.
    Which call it is, and which rank, follows from the run's secret. Its time does not count, and its output is judged
    like the others'. `hold_s` is how long a rank is kept out. `salt` is another secret number whenever a case is
    measured, since ranks that have seen one measurement would know the next one's."""

    def __init__(self, calls: Calls, case: Case, hold_s: float, salt: int) -> None:
        self.calls, self.case, self.hold_s, self.salt = calls, case, hold_s, salt
        self.number = 0  # of delayed calls

    def restart(self) -> None:
        """Samples begin anew, and delayed calls among them, at places that nobody has seen."""
        self.salt, self.number = self.salt + 1, 0

    def secret(self, *what: str | int) -> int:
        """A number that nobody can know ahead."""
        return self.calls.plan.seed("measured", self.salt, *what)

    def _secret(self, what: str, below: int) -> int:
        return self.secret("delayed", self.number, what) % below

    def due(self, first: int, block: int) -> Late | None:
        """The rank that is late in the block of samples from number `first` on, if any is."""
        begins, size = (PROBE_FIRST + PROBE_EVERY * (self.number - 1), PROBE_EVERY) if self.number else (0, PROBE_FIRST)
        if first + block <= begins + self._secret("call", size):
            return None
        ranks = range(self.calls.plan.world_size)
        probed = [rank for rank in ranks if dependents(self.calls.plan, self.case, rank)]
        if not probed:
            return None
        self.number += 1
        return Late(rank=probed[self._secret("rank", len(probed))], hold_s=self.hold_s)

    def counts(self, block: int) -> bool:
        """Whether traffic is counted in that block."""
        return not block or self.secret("counted", block) % COUNT_EVERY == 0

    def held(self, late: Late) -> Held | None:
        """Whether a rank did not wait for the late one in the last call, though its result depends on it."""
        return silent(self.calls, late.rank, dependents(self.calls.plan, self.case, late.rank), late.hold_s)

    def place(self, count: int) -> int:
        """Before which of so many turns."""
        return self._secret("place", count)

    def call(self, late: Late, index: int) -> Held | None:
        """One call on that input."""
        self.calls.turn(self.calls.candidate, [index], late=late)
        return self.held(late)

    def burst(self, late: Late, count: int) -> Wrong | Held | None:
        """A burst of so many calls, one of which is delayed: not the first, since all ranks get that input at once."""
        calls = self.calls
        calls.make(self.case, calls.fresh(count, masked=True))
        late = replace(late, at=1 + self._secret("place", count - 1))
        calls.turn(calls.candidate, range(count), late=late)
        return self.held(late) or wrong(calls, range(count), "a call in a burst with a late rank")
