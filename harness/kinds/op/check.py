"""Is a submission right in a case, and do its ranks communicate? Checked calls, and the probe: one rank is delayed, and
no rank that needs its data may finish before."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from harness.core.records import Case, Held, Verdicts, Wrong
from harness.kinds.kind import SubmissionFailed
from harness.kinds.op.calls import Calls
from harness.kinds.op.plan import OpPlan
from harness.ranks import wire
from harness.ranks.group import CallOrder, Group, Late
from harness.ranks.witness import Turn

PROBE_S = (0.02, 0.3)  # at least and at most, how long a probe keeps a rank out of a call
PROBE_CALLS = 4  # so many times as long as a call, in between
# A call is delayed among so many samples at first, and among so many later: each costs as much as several calls.
PROBE_FIRST, PROBE_EVERY = 16, 64
COUNT_EVERY = 4  # blocks, of which the secret chooses one in which traffic is counted, and the first


def check(calls: Calls, case: Case, probe_all: bool) -> Verdicts:
    """One call on the case's published input and one on a fresh hardened one, both verified; then the probe, of every
    rank where `probe_all` says so, else of one that nobody can foresee. Of each rival, on the same inputs."""
    groups = calls.in_order("check", calls.at)
    fresh = wire.InputSpec(seed=calls.plan.seed("check", calls.at), hardened=True)
    turns: dict[Group, Turn] = {}
    found: dict[Group, list[Verdicts]] = {group: [] for group in groups}
    began = time.monotonic()
    for spec in (wire.InputSpec(seed=case.seed, hardened=False), fresh):  # one by one, since they may be large
        calls.make(case, [spec])
        for group in groups:
            turns[group] = calls.turn(group, CallOrder(indices=[0]))
            found[group] += calls.verify(0, published=not spec.hardened)
    calls.checked_s = (time.monotonic() - began) / 2
    failed = {group: failure for group in groups if (failure := _failure(found[group])) is not None}
    if calls.baseline in failed:
        raise calls.blamed(calls.baseline, case, failed[calls.baseline])
    as_published, hardened = found[calls.candidate]
    strict = hardened.strict if as_published.strict.passed and not hardened.strict.passed else as_published.strict
    verdicts = Verdicts(strict=strict, gpumode=as_published.gpumode)
    if calls.candidate in failed:
        raise SubmissionFailed(failed[calls.candidate], verdicts)
    try:
        _probe(calls, case, {group: probe_s(turn.seen_us) for group, turn in turns.items()}, probe_all)
    except SubmissionFailed as failure:
        raise SubmissionFailed(failure.outcome, verdicts) from None
    return verdicts


def _failure(found: list[Verdicts]) -> Wrong | None:
    return next((Wrong(message=one.strict.message) for one in found if not one.strict.passed), None)


def _probe(calls: Calls, case: Case, hold_s: dict[Group, float], probe_all: bool) -> None:
    """Calls that one rank enters late, by `hold_s`."""
    plan, probe = calls.plan, Probe(calls, case, hold_s, salt=0)
    for late in range(plan.world_size) if probe_all else [plan.seed("late", calls.at) % plan.world_size]:
        if dependents(plan, case, late):
            calls.make(case, [wire.InputSpec(seed=plan.seed("probe", calls.at, late), hardened=True)])
            probe.call(Late(rank=late, hold_s=0.0), [0])
            expect_right(calls, case, [(group, 0) for group in hold_s], f"a call that rank {late} entered late")


def dependents(plan: OpPlan, case: Case, late: int) -> set[int]:
    """The ranks whose results depend on that one's data."""
    return {rank for rank in range(plan.world_size) if late in plan.problem.depends_on(case, rank)}


def probe_s(seen_us: float) -> float:
    """The seconds to delay a rank, from the observed time of such a call: ranks may claim too short a time."""
    return min(max(1e-6 * PROBE_CALLS * seen_us, PROBE_S[0]), PROBE_S[1])


def first_wrong(calls: Calls, judged: Sequence[tuple[Group, int]], what: str) -> tuple[Group, Wrong] | None:
    """The first wrong one of the outputs taken next, each a rival's for an input, and whose it is."""
    for (group, _), one in zip(judged, calls.verify(*(index for _, index in judged)), strict=True):
        if not one.strict.passed:
            return group, Wrong(message=f"{what}: {one.strict.message}")
    return None


def expect_right(calls: Calls, case: Case, judged: Sequence[tuple[Group, int]], what: str) -> None:
    """Raises SubmissionFailed or OpponentFailed if one of the outputs taken next is wrong."""
    if found := first_wrong(calls, judged, what):
        raise calls.blamed(found[0], case, found[1])


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
        return not block or self.secret("counted", block) % COUNT_EVERY == 0

    def place(self, count: int) -> int:
        """Before which of so many turns."""
        return self._secret("place", count)

    def call(self, late: Late, indices: Sequence[int]) -> None:
        """Calls of each rival on these inputs. Raises what `blamed` makes if a rank did not wait for the late one."""
        order = CallOrder(indices=indices)
        if found := self.first_silent(late, lambda group, late: self.calls.turn(group, replace(order, late=late))):
            raise self.calls.blamed(found[0], self.case, found[1])

    def burst(self, late: Late, count: int) -> None:
        """A burst of so many calls of each rival, one of which is delayed: not the first, since all ranks get that
        input at once."""
        calls = self.calls
        calls.make(self.case, calls.fresh(count, masked=True))
        self.call(replace(late, at=1 + self._secret("place", count - 1)), range(count))
        judged = [(group, index) for group in self.hold_s for index in range(count)]
        expect_right(calls, self.case, judged, "a call in a burst with a late rank")

    def first_silent(self, late: Late, turn: Callable[[Group, Late], object]) -> tuple[Group, Held] | None:
        """The first rival with a rank that did not wait for the late one; `turn` makes the calls of each."""
        needed_by = dependents(self.calls.plan, self.case, late.rank)
        for group, hold_s in self.hold_s.items():
            turn(group, replace(late, hold_s=hold_s))
            if early := needed_by.intersection(group.early):
                evidence = (
                    f"rank {late.rank} was kept out of a call for {hold_s * 1000:.0f} ms, and rank {min(early)}, whose "
                    "result depends on its data, finished meanwhile"
                )
                return group, Held(check="communication", evidence=evidence)
        return None
