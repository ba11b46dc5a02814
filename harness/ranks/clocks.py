"""When to stop measuring, and in which order: pure rules over samples.

The source of error on a shared machine is drift, so reference and submission take turns call by call on the same
inputs, and what is judged is the logarithm of their ratio, in which drift cancels.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from harness.core.records import Clock, Measured, Metric, Series
from harness.ranks.wire import CallSample

WARM_CALLS = 3  # that a burst begins with: how long a host's times fell on the host of 2x H200
LEAD_S = 0.002  # on the device's clock: what hosts need to submit a call's work behind the wait; 5 to 20 times that

# Every clock is a metric of its own; docs/clocks.md says what each of them times.
METRICS: dict[Clock, Metric] = {
    "wall": Metric(name="wall", unit="us"),
    "device": Metric(name="device", unit="us"),
    "gpumode": Metric(name="gpumode", unit="us"),
}


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How long one case is measured: until the ratio is known to `target_error` (relative standard error), but at
    least `min_samples`, at most `max_samples`, and no longer than `seconds` once the minimum is there."""

    seconds: float
    min_samples: int = 16
    max_samples: int = 200
    target_error: float = 0.004
    block: int = 4  # samples between two checks, made and verified together
    burst: bool = False  # a block's calls without a pause, behind WARM_CALLS that are not counted; see `turns`


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Calls that followed each other, by call and rank, and what the parent's own clock (CLOCK_MONOTONIC, as the
    ranks') read before it handed out their inputs and after it had all replies; of ranks on devices, after
    trusted ranks had copied what they returned."""

    began_ns: int
    ended_ns: int
    called: tuple[tuple[CallSample, ...], ...]

    @property
    def unclaimed_us(self) -> float:
        """What passed outside the calls, a call, if what their ranks say is true."""
        claimed_us = sum(map(wall_us, self.called))
        return ((self.ended_ns - self.began_ns) / 1000 - claimed_us) / len(self.called)


def block(device: str) -> int:
    """How many samples are taken together there."""
    return 4 if device == "cpu" else 7


def wall_us(called: Sequence[CallSample]) -> float:
    """The ranked clock: from the first rank's start to the last rank's end."""
    return (max(call.end_ns for call in called) - min(call.start_ns for call in called)) / 1000


def device_us(called: Sequence[CallSample]) -> float:
    """The slowest rank's time by its device's own events."""
    return max(call.device_us or 0.0 for call in called)


def gpumode_us(called: Sequence[CallSample]) -> float:
    """GPU MODE's: what rank 0's host clock says of a clone of the inputs, the call and a barrier."""
    return (called[0].end_ns - called[0].start_ns) / 1000


SAMPLE_US: dict[Clock, Callable[[Sequence[CallSample]], float]] = {
    "wall": wall_us,
    "device": device_us,
    "gpumode": gpumode_us,
}


class Samples:
    """The samples of one case so far, on each of `clocks` ("wall" among them), in blocks of so many."""

    def __init__(self, clocks: Sequence[Clock], block: int) -> None:
        self.block = block
        self.own_us: dict[Clock, list[float]] = {clock: [] for clock in clocks}
        self.ref_us: dict[Clock, list[float]] = {clock: [] for clock in clocks}
        self.ends_us: list[list[float]] = []  # of the submission's ranks, wall clock; a list a call, as the next two
        self.own_ranks_us: list[list[float]] = []  # device clock
        self.ref_ranks_us: list[list[float]] = []

    def count(self, clock: Clock) -> int:
        """How many samples that clock has."""
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

    def measured(self) -> Measured:
        """The record of it: the wall clock ranks, and the device's, where there is one, is held against the bound."""
        ranks = {"device": (_by_rank(self.own_ranks_us), _by_rank(self.ref_ranks_us))}
        series = [
            Series(
                metric=METRICS[clock],
                own=tuple(own),
                baseline=tuple(self.ref_us[clock]),
                block=self.block,
                own_ranks=ranks.get(clock, ((), ()))[0],
                baseline_ranks=ranks.get(clock, ((), ()))[1],
            )
            for clock, own in self.own_us.items()
        ]
        bounded = "device" if "device" in self.own_us else "wall"
        return Measured(series=tuple(series), bounded=bounded, rank_ends_us=_by_rank(self.ends_us))


def _by_rank(calls: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Each rank's median over calls."""
    return tuple(statistics.median(rank) for rank in zip(*calls, strict=True))


@dataclass(kw_only=True)
class Side:
    """What the parent saw of one group's calls on the wall clock: its turns, and the CPU time that its processes had
    during them (nan: not to be gone by)."""

    turns: list[Turn] = field(default_factory=list)
    busy_us: float = math.nan

    @property
    def calls(self) -> list[CallSample]:
        """Of all ranks."""
        return [call for turn in self.turns for ranks in turn.called for call in ranks]


def relative_error(samples_us: Sequence[float], ref_samples_us: Sequence[float], together: int = 1) -> float:
    """Relative standard error of the speedup, from paired samples, of which so many at a time were taken `together` and
    resemble each other; infinite below two of those."""
    logs = [math.log(ref / own) for own, ref in zip(samples_us, ref_samples_us, strict=True)]
    ratios = [statistics.fmean(logs[start : start + together]) for start in range(0, len(logs), together)]
    if len(ratios) < 2:
        return math.inf
    return statistics.stdev(ratios) / math.sqrt(len(ratios))


def enough(budget: Budget, series: Samples, elapsed_s: float) -> bool:
    """Whether another block would not be worth its time. The ranked clock decides for all."""
    count = series.count("wall")
    if count < budget.min_samples:
        return False
    if count >= budget.max_samples or elapsed_s >= budget.seconds:
        return True
    together = budget.block if budget.burst else 1
    return relative_error(series.own_us["wall"], series.ref_us["wall"], together) < budget.target_error


def due(clocks: Sequence[Clock], number: int) -> Sequence[Clock]:
    """The clocks that are read in a case's block `number`. Those that do not rank need few samples, and leave their
    time to the one that does: they are read in two of the first blocks, then in every eighth."""
    return clocks if number == 2 or number % 8 == 0 else clocks[:1]


def turns(budget: Budget, clock: Clock, first: int) -> list[tuple[bool, list[int]]]:
    """The calls of one block, from sample `first` on: (is it the reference's turn, indices of the inputs).

    Call by call in turn, ABBA, so that neither always runs in the other's wake and drift cancels within
    milliseconds; and every second block the other way round, since its first call finds caches as cold as what came
    between two blocks has left them (on 8 CPU ranks 4 % slower than others). Or in bursts, where a call is so short
    that what a host has not in its caches would be most of it (measured on an H200's host: the same three kernels took
    62 us called again and again, 265 us after 2 ms of sleep, 445 us out of cold caches): then a block's calls follow
    each other at once, and the first are not counted. The device's clock sees nothing of the host, so there calls are
    always in turn.
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
