"""Whether the times that ranks report can be true, given what the parent saw. Pure rules over samples."""

import math
import statistics
from collections.abc import Sequence

from harness.core.records import Clock
from harness.ranks.clocks import SAMPLE_US, Samples, Side, Turn, wall_us
from harness.ranks.wire import CallSample

DEVICE_CLOCK_SLACK = 1.02  # two clocks
BUSY_PART = 0.5  # of the time that passed outside the calls, which CPUs must have worked for it to count
UNCLAIMED_US, UNCLAIMED_PART, UNCLAIMED_Z = 500.0, 0.5, 3.0  # what `unaccounted` lets pass
KEPT_PART = 0.5  # of a fresh input's time, from which on `kept` believes that a result was kept
HOST_LEAST = 0.4  # of the device's time, from which on `too_short` believes the host's


def impossible(turn: Turn, clock: Clock) -> str:
    """Why the samples of a turn cannot be true, or "". Called before anything is computed from them.

    A call cannot begin before its input was handed out, end before it began, or end after its reply came. A device
    cannot work in a call for longer than the call takes.
    """
    for call in (call for ranks in turn.called for call in ranks):
        if not turn.began_ns <= call.start_ns < call.end_ns <= turn.ended_ns:
            return "a rank says that a call began before its input was handed out, or ended before it began or too late"
        most_us = DEVICE_CLOCK_SLACK * (call.end_ns - call.start_ns) / 1000
        if clock == "device" and not (call.device_us is not None and 0 < call.device_us <= most_us):
            return f"a rank says that its device took {call.device_us} us in a call of {most_us:.0f} us"
    return ""


def unaccounted(own: Side, ref: Side, baseline: str = "the reference") -> str:
    """Why the submission's times on the wall clock do not fit what the parent saw, or "".

    Between calls, ranks read inputs and hand over outputs, by the same code on both sides. If the submission takes
    significantly longer between its calls, by a good part of what its calls claim, it did work of its calls there.

    Significance is judged by the Mann-Whitney test, because a busy machine adds to some of these times and takes from
    none. With few turns (on GPUs each is a burst), every turn must be longer than all of the reference's. On CPUs a
    busy machine may slow down one side alone, whose processes wait for a core; there the CPU time must also show that
    the processes worked and did not only wait.
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
        f"its ranks say that a call takes {claimed_us:.0f} us, but {more_us:.0f} us more than around {baseline}'s "
        "calls passed between handing out the input and taking the result"
    )


def _busier_us(own: Side, ref: Side) -> float:
    """How much more CPU time per call the submission's processes had outside their calls than the reference's. Infinite
    if unknown. A rank of the submission is assumed to have had a core for as long as its calls claim."""
    if math.isnan(own.busy_us + ref.busy_us):
        return math.inf
    own_outside_us = own.busy_us - sum((call.end_ns - call.start_ns) / 1000 for call in own.calls)
    ref_outside_us = ref.busy_us - sum(call.busy_us for call in ref.calls)
    return own_outside_us / _count(own) - ref_outside_us / _count(ref)


def _count(side: Side) -> int:
    return sum(len(turn.called) for turn in side.turns)


def too_short(series: Samples) -> str:
    """Why the times on the host's clock cannot be true, or "". A call that ends when its device is done takes at least
    as long as the device works on it. If a call waits for its device half-way, the device's clock also sees how long a
    cold host takes; the reference shows whether that is much."""
    if not series.own_us.get("device"):
        return ""
    wall_us, device_us = (statistics.median(series.own_us[clock]) for clock in ("wall", "device"))
    ref_wall_us, ref_device_us = (statistics.median(series.ref_us[clock]) for clock in ("wall", "device"))
    if wall_us >= HOST_LEAST * device_us * min(1, ref_wall_us / ref_device_us):
        return ""
    return f"a call takes {wall_us:.1f} us by the host's clock, but its device works {device_us:.1f} us on it"


def kept(called: Sequence[Sequence[CallSample]], clock: Clock) -> str:
    """Why a submission seems to cache results, or "". `called` has pairs of calls: one on an input that the submission
    has not seen, and one on the same input right after it. A submission caches results if, in all pairs but one, the
    second call took less than half the time of the first."""
    times_us = list(map(SAMPLE_US[clock], called))
    pairs = list(zip(times_us[::2], times_us[1::2], strict=True))
    if sum(again < KEPT_PART * fresh for fresh, again in pairs) < len(pairs) - 1:
        return ""
    fresh_us, again_us = map(statistics.median, zip(*pairs, strict=True))
    return f"a call takes {fresh_us:.1f} us on a new input, but {again_us:.1f} us on the same again"


def _quartile(values: Sequence[float]) -> float:
    """The lower quartile."""
    return sorted(values)[len(values) // 4]


def _larger_z(values: Sequence[float], others: Sequence[float]) -> float:
    """How many standard deviations the Mann-Whitney statistic of `values` lies above that of equal distributions."""
    wins = sum((value > other) + 0.5 * (value == other) for value in values for other in others)
    return _z(wins, len(values), len(others))


def _largest_z(count: int, others: int) -> float:
    """The value of that if every value is larger than every other."""
    return _z(count * others, count, others)


def _z(wins: float, count: int, others: int) -> float:
    pairs = count * others
    return (wins - pairs / 2) / math.sqrt(pairs * (count + others + 1) / 12)
