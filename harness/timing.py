"""When to stop measuring, and in which order: pure rules over samples.

The source of error on a shared machine is drift, so reference and submission take turns call by call on the same
inputs, and what is judged is the logarithm of their ratio, in which drift cancels.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from harness.records import Clock, ClockSamples, Timed
from harness.wire import CallSample

DEVICE_CLOCK_SLACK = 1.02  # two clocks
BUSY_PART = 0.5  # of the time that passed outside the calls, which CPUs must have worked for it to count
UNCLAIMED_US, UNCLAIMED_PART, UNCLAIMED_Z = 500.0, 0.5, 3.0  # what `unaccounted` lets pass
KEPT_PART = 0.5  # of a fresh input's time, from which on `kept` believes that a result was kept
HOST_LEAST = 0.4  # of the device's time, from which on `too_short` believes the host's
WARM_CALLS = 3  # that a burst begins with: how long a host's times fell on the host of 2x H200
LEAD_S = 0.002  # on the device's clock: what hosts need to submit a call's work behind the wait; 5 to 20 times that


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


class Series:
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

    def timed(self) -> Timed:
        """The record of it."""
        others = [
            ClockSamples(
                clock=clock,
                samples_us=tuple(own),
                ref_samples_us=tuple(self.ref_us[clock]),
                rank_us=_by_rank(self.own_ranks_us) if clock == "device" else (),
                ref_rank_us=_by_rank(self.ref_ranks_us) if clock == "device" else (),
            )
            for clock, own in self.own_us.items()
            if clock != "wall"
        ]
        return Timed(
            samples_us=tuple(self.own_us["wall"]),
            ref_samples_us=tuple(self.ref_us["wall"]),
            block=self.block,
            others=tuple(others),
            rank_ends_us=_by_rank(self.ends_us),
        )


def _by_rank(calls: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Each rank's median over calls."""
    return tuple(statistics.median(rank) for rank in zip(*calls, strict=True))


def impossible(turn: Turn, clock: Clock) -> str:
    """Why the samples of a turn cannot be true, or "". To be asked before anything is computed of them.

    No call begins before its input was handed out, ends before it began, or ends after its reply came; no device works
    in a call for longer than the call takes.
    """
    for call in (call for ranks in turn.called for call in ranks):
        if not turn.began_ns <= call.start_ns < call.end_ns <= turn.ended_ns:
            return "a rank says that a call began before its input was handed out, or ended before it began or too late"
        most_us = DEVICE_CLOCK_SLACK * (call.end_ns - call.start_ns) / 1000
        if clock == "device" and not (call.device_us is not None and 0 < call.device_us <= most_us):
            return f"a rank says that its device took {call.device_us} us in a call of {most_us:.0f} us"
    return ""


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


def unaccounted(own: Side, ref: Side) -> str:
    """Why the submission's times (wall clock) do not fit what the parent saw, or "".

    What passes outside the calls (inputs are read, outputs handed over) is the same for reference and submission, who
    do it by the same code: where a submission's takes longer by a good part of what its calls claim, and not by
    chance, work of its calls was done there. By chance: the Mann-Whitney test, since a busy machine adds to some of
    these times and takes from none; of few turns (on GPUs each is a burst), every one has to be longer than all of the
    reference's. And on CPUs, where it may add to one side alone, whose processes wait for a core, their CPU time has to
    say that they did not only wait.
    """
    own_us, ref_us = ([turn.unclaimed_us for turn in side.turns] for side in (own, ref))
    claimed_us = statistics.median(wall_us(ranks) for turn in own.turns for ranks in turn.called)
    more_us = _quartile(own_us) - _quartile(ref_us)
    chance_z = min(UNCLAIMED_Z, 0.99 * _largest_z(len(own_us), len(ref_us)))
    if more_us <= max(UNCLAIMED_US, UNCLAIMED_PART * claimed_us) or _larger_z(own_us, ref_us) <= chance_z:
        return ""
    if _busier_us(own, ref) < BUSY_PART * more_us:
        return ""
    return (
        f"its ranks say that a call takes {claimed_us:.0f} us, but {more_us:.0f} us more than around the reference's "
        "calls passed between handing out the input and taking the result"
    )


def _busier_us(own: Side, ref: Side) -> float:
    """How much more CPU time a call the submission's processes had outside their calls than the reference's; infinite
    where nobody knows. In its calls a rank of the submission is taken to have had a core, as long as it claims."""
    if math.isnan(own.busy_us + ref.busy_us):
        return math.inf
    own_outside_us = own.busy_us - sum((call.end_ns - call.start_ns) / 1000 for call in own.calls)
    ref_outside_us = ref.busy_us - sum(call.busy_us for call in ref.calls)
    return own_outside_us / _count(own) - ref_outside_us / _count(ref)


def _count(side: Side) -> int:
    return sum(len(turn.called) for turn in side.turns)


def too_short(series: Series) -> str:
    """Why the times on the host's clock cannot be true, or "": a call that ends when its device is done takes no less
    than the device works on it. The device's clock may also see how long a cold host takes, where a call waits for its
    device half-way; the reference's shows whether that is much."""
    if not series.own_us.get("device"):
        return ""
    wall_us, device_us = (statistics.median(series.own_us[clock]) for clock in ("wall", "device"))
    ref_wall_us, ref_device_us = (statistics.median(series.ref_us[clock]) for clock in ("wall", "device"))
    if wall_us >= HOST_LEAST * device_us * min(1, ref_wall_us / ref_device_us):
        return ""
    return f"a call takes {wall_us:.1f} us by the host's clock, but its device works {device_us:.1f} us on it"


def kept(called: Sequence[Sequence[CallSample]], clock: Clock) -> str:
    """Why a submission seems to keep results, or "": `called` are calls in pairs, on an input that it has not seen and
    at once on the same again. It does when in all pairs but one the second call took less than half the first's time.
    """
    times_us = list(map(SAMPLE_US[clock], called))
    pairs = list(zip(times_us[::2], times_us[1::2], strict=True))
    if sum(again < KEPT_PART * fresh for fresh, again in pairs) < len(pairs) - 1:
        return ""
    fresh_us, again_us = map(statistics.median, zip(*pairs, strict=True))
    return f"a call takes {fresh_us:.1f} us on a new input, but {again_us:.1f} us on the same again"


def _quartile(values: Sequence[float]) -> float:
    """The lower one."""
    return sorted(values)[len(values) // 4]


def _larger_z(values: Sequence[float], others: Sequence[float]) -> float:
    """How many standard deviations the Mann-Whitney statistic of `values` lies above that of equal distributions."""
    wins = sum((value > other) + 0.5 * (value == other) for value in values for other in others)
    return _z(wins, len(values), len(others))


def _largest_z(count: int, others: int) -> float:
    """What that is where every value is larger than every other."""
    return _z(count * others, count, others)


def _z(wins: float, count: int, others: int) -> float:
    pairs = count * others
    return (wins - pairs / 2) / math.sqrt(pairs * (count + others + 1) / 12)


def relative_error(samples_us: Sequence[float], ref_samples_us: Sequence[float], together: int = 1) -> float:
    """Relative standard error of the speedup, from paired samples, of which so many at a time were taken `together` and
    resemble each other; infinite below two of those."""
    logs = [math.log(ref / own) for own, ref in zip(samples_us, ref_samples_us, strict=True)]
    ratios = [statistics.fmean(logs[start : start + together]) for start in range(0, len(logs), together)]
    if len(ratios) < 2:
        return math.inf
    return statistics.stdev(ratios) / math.sqrt(len(ratios))


def enough(budget: Budget, series: Series, elapsed_s: float) -> bool:
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
