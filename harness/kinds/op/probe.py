"""The probe among timed calls: one rank is delayed, and no rank that needs its data may finish before."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from harness.core.records import Case, Held
from harness.kinds.op.calls import Calls
from harness.kinds.op.check import dependents, expect_right, silent
from harness.ranks.group import Group, Late

# A call is delayed among so many samples at first, and among so many later: each costs as much as several calls.
PROBE_FIRST, PROBE_EVERY = 16, 64
COUNT_EVERY = 4  # blocks, of which the secret chooses one in which traffic is counted, and the first


class Probe:
    """Delays a rank in a call among the timed ones, so that a submission does not communicate in checked calls alone.
    Which call it is, and which rank, follows from the run's secret. Its time does not count, and its output is judged
    like the others'. `hold_s` is how long a rank of each rival is kept out. `salt` is another secret number whenever a
    case is measured, since ranks that have seen one measurement would know the next one's."""

    def __init__(self, calls: Calls, case: Case, hold_s: dict[Group, float], salt: int) -> None:
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
        return Late(rank=probed[self._secret("rank", len(probed))], hold_s=0.0)

    def counts(self, block: int) -> bool:
        """Whether traffic is counted in that block."""
        return not block or self.secret("counted", block) % COUNT_EVERY == 0

    def place(self, count: int) -> int:
        """Before which of so many turns."""
        return self._secret("place", count)

    def call(self, late: Late, indices: Sequence[int]) -> None:
        """Calls of each rival on these inputs. Raises what `blamed` makes if a rank did not wait for the late one."""
        if found := self.first_silent(late, indices, self.calls.turn):
            raise self.calls.blamed(found[0], self.case, found[1])

    def burst(self, late: Late, count: int) -> None:
        """A burst of so many calls of each rival, one of which is delayed: not the first, since all ranks get that
        input at once."""
        calls = self.calls
        calls.make(self.case, calls.fresh(count, masked=True))
        self.call(replace(late, at=1 + self._secret("place", count - 1)), range(count))
        judged = [(group, index) for group in self.hold_s for index in range(count)]
        expect_right(calls, self.case, judged, "a call in a burst with a late rank")

    def first_silent(
        self, late: Late, indices: Sequence[int], turn: Callable[..., object]
    ) -> tuple[Group, Held] | None:
        """Calls of each rival on these inputs, by `turn`; the first rival of which a rank did not wait for the late
        one."""
        needed_by = dependents(self.calls.plan, self.case, late.rank)
        for group, hold_s in self.hold_s.items():
            turn(group, indices, late=replace(late, hold_s=hold_s))
            if held := silent(group, late.rank, needed_by, hold_s):
                return group, held
        return None
