"""When to stop measuring a case, and in which order to call: pure rules over samples.

On a shared machine the main source of error is drift. Reference and submission therefore take turns call by call on the
same inputs. Decisions rest on the logarithm of their ratio, in which drift cancels.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness.core.machine_records import BlockState, Traffic
from harness.core.metrics import CLOCKS, HOST
from harness.core.records import Clock, Measured, Series
from harness.ranks.device_witness import DeviceWitness, is_sharp
from harness.ranks.stepped import Seen
from harness.ranks.wire import CallSample
from harness.ranks.witness import Bursts, EachCall, Turn, wall_us

WARM_CALLS = 3  # that a burst begins with: how long a host's times fell on the host of 2x H200
MIN_SAMPLES = 16  # of a case in one launch
UNSURE_TIMES = 4  # as long as else a case may be measured while it is not clear what its calls count
MOST_BLUNT = 3  # pairs that are left out for one that is kept
UNSEEN = BlockState(own=(), baseline=())


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How long one case is measured: until the ratio is known to `target_error` (relative standard error), but at
    least `min_samples`, at most `max_samples`, and no longer than `seconds` once the minimum is there."""

    seconds: float
    min_samples: int = MIN_SAMPLES
    max_samples: int = 200
    target_error: float = 0.004
    block: int = 4  # samples between two checks, made and verified together
    burst: bool = False  # a block's calls without a pause, behind WARM_CALLS that are not counted; see `turns`


def device_us(called: Sequence[CallSample]) -> float:
    """The slowest rank's time by its device's own events."""
    return max(call.device_us or 0.0 for call in called)


def gpumode_us(called: Sequence[CallSample]) -> float:
    """GPU MODE's clock: rank 0's host time for a clone of the inputs, the call and a barrier."""
    return (called[0].end_ns - called[0].start_ns) / 1000


SAMPLE_US: dict[Clock, Callable[[Sequence[CallSample]], float]] = {
    "wall": wall_us,
    "device": device_us,
    "gpumode": gpumode_us,
}


class Samples:
    """The samples of one case so far, on each of `clocks`, in blocks of `block` calls. The first clock ranks. On the
    host's clocks ranks' times are claims: `witnesses` decide which times count. `in_pairs`: the time around a call is
    compared with the baseline's on the same input, as on GPUs, and not with idle calls. `is_trusted`: the baseline runs
    our reference. Where the device's clock ranks, its calls are stepped, and `device` has the parent's observations."""

    def __init__(
        self,
        clocks: Sequence[Clock],
        block: int,
        in_pairs: bool = False,
        is_trusted: bool = True,
        device: DeviceWitness | None = None,
    ) -> None:
        self.block, self.ranked, self.device = block, clocks[0], device
        witness = Bursts if in_pairs else EachCall
        self.witnesses: dict[Clock, EachCall] = {
            clock: witness(claim=SAMPLE_US[clock], is_trusted=is_trusted) for clock in clocks if clock != "device"
        }
        self.own_us: dict[Clock, list[float]] = {clock: [] for clock in clocks}
        self.ref_us: dict[Clock, list[float]] = {clock: [] for clock in clocks}
        self.ends_us: list[list[float]] = []  # of the submission's ranks, wall clock; a list a call, as the next two
        self.own_ranks_us: list[list[float]] = []  # device clock
        self.ref_ranks_us: list[list[float]] = []
        self.blunt = 0  # pairs of stepped calls that were left out
        self.blocks: list[BlockState] = []  # of stepped calls
        self.traffic: Traffic | None = None  # between GPUs, in calls among these

    def count(self, clock: Clock) -> int:
        return len(self.own_us[clock])

    def add(
        self, clock: Clock, called: Sequence[Sequence[CallSample]], ref_called: Sequence[Sequence[CallSample]]
    ) -> None:
        """Calls of the submission and of the reference on the same inputs, each by rank."""
        self.own_us[clock] += map(SAMPLE_US[clock], called)
        self.ref_us[clock] += map(SAMPLE_US[clock], ref_called)
        if clock == "wall":
            for ranks in called:
                first_ns = min(call.start_ns for call in ranks)
                self.ends_us.append([(call.end_ns - first_ns) / 1000 for call in ranks])
        if clock == "device":
            for kept, calls in ((self.own_ranks_us, called), (self.ref_ranks_us, ref_called)):
                kept += [[call.device_us or 0.0 for call in ranks] for ranks in calls]

    def add_stepped(self, own: Sequence[Seen], ref: Sequence[Seen], state: BlockState = UNSEEN) -> None:
        """Stepped calls of the submission and of the reference on the same inputs. Pairs are left out, unless there are
        too many of them, in which the parent was elsewhere when a call began or ended, or between whose sides a GPU
        began or ceased to be held down."""
        assert self.device is not None
        before = len(self.device.own)
        for pair in zip(own, ref, strict=True):
            is_like = all(map(is_sharp, pair)) and not state.changes
            is_kept = is_like or self.blunt >= MOST_BLUNT * (1 + len(self.device.own))
            self.blunt += not is_kept
            if is_kept:
                self.device.own.append(pair[0])
                self.device.ref.append(pair[1])
        self.blocks.append(replace(state, pairs=len(self.device.own) - before))
        own, ref = self.device.own, self.device.ref
        self.own_us["device"], self.ref_us["device"] = map(self.device.claims_us, (own, ref))

    def restart(self) -> None:
        """Forgets the stepped calls: those to come are made in another way."""
        assert self.device is not None
        self.device.own, self.device.ref, self.blocks = [], [], []
        self.own_us["device"], self.ref_us["device"] = [], []

    def saw(self, clock: Clock, turn: Turn, is_baseline: bool) -> None:
        """Adds the parent's observation of the turn of these calls, which may begin with others that are no samples."""
        if clock in self.witnesses:
            witness = self.witnesses[clock]
            (witness.ref if is_baseline else witness.own).append(turn.last(self.block))

    def saw_idle(self, turn: Turn) -> None:
        """Adds the parent's observation of a call without a kernel."""
        self.witnesses["wall"].idle.append(turn)

    def counted_us(self, clock: Clock | None = None) -> tuple[list[float], list[float]]:
        """The times of submission and reference that count on that clock (None: the clock that ranks), in us."""
        clock = clock or self.ranked
        if clock == "device" and self.device is not None:
            return self.device.counted_us()
        own_us, ref_us = self.own_us[clock], self.ref_us[clock]
        return self.witnesses[clock].counted_us(own_us, ref_us) if clock in self.witnesses else (own_us, ref_us)

    def doubt(self, baseline: str, is_baseline: bool = False) -> str:
        """Why the claims of either side on the host's clock cannot be believed at all, or "". Where another clock ranks
        a lie on the host's gains nothing, and a busy machine may look like one: what was observed is shown instead."""
        return self.witnesses["wall"].doubt(baseline, is_baseline) if self.ranked == "wall" else ""

    def measured(self) -> Measured:
        """The record of it: the first clock ranks, and the device's, where there is one, is held against the bound."""
        if self.device is not None:
            for kept, calls in ((self.own_ranks_us, self.device.own), (self.ref_ranks_us, self.device.ref)):
                kept += map(self.device.ranks_us, calls)
        ranks = {"device": (_by_rank(self.own_ranks_us), _by_rank(self.ref_ranks_us))}
        times = {clock: self.counted_us(clock) for clock in self.own_us}
        series = [
            Series(
                metric=CLOCKS[clock],
                own=tuple(own),
                baseline=tuple(ref),
                block=self.block,
                own_ranks=ranks.get(clock, ((), ()))[0],
                baseline_ranks=ranks.get(clock, ((), ()))[1],
                own_claims=() if own == self.own_us[clock] else tuple(self.own_us[clock]),
            )
            for clock, (own, ref) in times.items()
        ]
        if self.device is not None:
            own_host, ref_host = (tuple(one.host_us for one in calls) for calls in (self.device.own, self.device.ref))
            series.append(Series(metric=HOST, own=own_host, baseline=ref_host, block=self.block))
        bounded = "device" if "device" in self.own_us else "wall"
        ends_us = _by_rank(self.ends_us)
        blocks = tuple(one for one in self.blocks if one.own or one.baseline)
        return Measured(
            series=tuple(series), bounded=bounded, rank_ends_us=ends_us, traffic=self.traffic, blocks=blocks
        )


def _by_rank(calls: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Each rank's median over calls."""
    return tuple(statistics.median(rank) for rank in zip(*calls, strict=True))


def relative_error(samples_us: Sequence[float], ref_samples_us: Sequence[float], together: int = 1) -> float:
    """The relative standard error of the speedup. Samples are paired, and each `together` of them resemble each other,
    since they were taken together. Infinite for fewer than two such groups."""
    logs = [math.log(ref / own) for own, ref in zip(samples_us, ref_samples_us, strict=True)]
    ratios = [statistics.fmean(logs[start : start + together]) for start in range(0, len(logs), together)]
    if len(ratios) < 2:
        return math.inf
    center, count = statistics.fmean(ratios), len(ratios)
    # statistics.stdev is exact, by fractions: ten times as slow, and asked after each block
    return math.sqrt(math.fsum((one - center) ** 2 for one in ratios) / (count - 1) / count)


def enough(budget: Budget, series: Samples, elapsed_s: float) -> bool:
    """Whether another block is not worth its time. The ranked clock decides for all clocks."""
    count = series.count(series.ranked)
    if count < budget.min_samples:
        return False
    is_unsure = series.device is not None and series.device.is_unsure
    if count >= budget.max_samples or elapsed_s >= budget.seconds * (UNSURE_TIMES if is_unsure else 1):
        return True
    together = budget.block if budget.burst and series.device is None else 1
    return relative_error(*series.counted_us(), together) < budget.target_error


def left_s(budget: Budget, series: Samples, elapsed_s: float, each_s: float) -> float:
    """About how many seconds further samples will take if one takes `each_s` and the error stays too large."""
    count = series.count(series.ranked)
    longest_s = min(budget.seconds - elapsed_s, each_s * (budget.max_samples - count))
    return max(0.0, longest_s, each_s * (budget.min_samples - count))


def due(clocks: Sequence[Clock], number: int) -> Sequence[Clock]:
    """The clocks that are read in block `number` of a case. A clock that does not rank needs few samples: it is read in
    the first block, then in every sixteenth, which leaves the time to the ranked clock."""
    return clocks if number % 16 == 0 else clocks[:1]


def turns(budget: Budget, clock: Clock, first: int) -> list[tuple[bool, list[int]]]:
    """The calls of one block, from sample `first` on, as (is it the reference's turn, indices of the inputs).

    Long calls take turns one by one, in the order ABBA, so that neither side always follows the other and drift cancels
    within milliseconds. Every second block is reversed, because the first call of a block finds colder caches than the
    others do (on 8 CPU ranks it is 4 % slower).

    Short calls run in bursts: the calls of a block follow each other at once, and the first ones are not counted. With
    cold caches, host overhead would exceed the run time of such kernels. Measured on an H200's host: the same three
    kernels took 62 us called again and again, 265 us after 2 ms of sleep, and 445 us with cold caches. On the device
    clock calls always take turns, because that clock sees nothing of the host.
    """
    if budget.burst and clock != "device":
        indices = list(range(WARM_CALLS + budget.block))
        reference_first = first // budget.block % 4 in (0, 3)  # ABBA of blocks
        return [(reference_first, indices), (not reference_first, indices)]
    order = []
    for index in range(budget.block):
        reference_first = ((first + index) % 4 in (0, 3)) != (first // budget.block % 2 == 1)
        order += [(reference_first, [index]), (not reference_first, [index])]
    return order
