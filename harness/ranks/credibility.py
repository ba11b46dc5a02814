"""Whether the times that ranks report are possible at all. Pure rules over samples; witness has what they count."""

import statistics
from collections.abc import Sequence

from harness.core.records import Clock
from harness.ranks.clocks import Samples
from harness.ranks.witness import Turn

DEVICE_CLOCK_SLACK = 1.02  # two clocks
KEPT_PART = 0.5  # of a fresh input's time, from which on `kept` believes that a result was kept
HOST_LEAST = 0.4  # of the device's time, from which on `too_short` believes the host's


def impossible(turn: Turn, clock: Clock) -> str:
    """Why the samples of a turn cannot be true, or "". Called before anything is computed from them.

    A call cannot begin before its input was handed out or its key told, end before it began, or end after its reply
    came or the next key was told. A device cannot work in a call for longer than the call takes.
    """
    for began_ns, ended_ns, call in (
        (one.began_ns, one.ended_ns, call) for one in turn.each() for ranks in one.called for call in ranks
    ):
        if not began_ns <= call.start_ns < call.end_ns <= ended_ns:
            return "a rank reported impossible times: a call that began before its input came, or ended after its reply"
        most_us = DEVICE_CLOCK_SLACK * (call.end_ns - call.start_ns) / 1000
        if clock == "device" and not (call.device_us is not None and 0 < call.device_us <= most_us):
            return f"a rank says that its device took {call.device_us} us in a call of {most_us:.0f} us"
    return ""


def too_short(series: Samples, is_baseline: bool = False) -> str:
    """Why one side's times on the host's clock cannot be true, or "". A call that ends when its device is done takes at
    least as long as the device works on it. If a call waits for its device half-way, the device's clock also sees how
    long a cold host takes; the other side shows whether that is much."""
    if not (series.own_us.get("device") and series.own_us.get("wall")):
        return ""
    (wall_us, device_us), (other_wall_us, other_device_us) = (
        [statistics.median(side[clock]) for clock in ("wall", "device")]
        for side in ((series.ref_us, series.own_us) if is_baseline else (series.own_us, series.ref_us))
    )
    if wall_us >= HOST_LEAST * device_us * min(1, other_wall_us / other_device_us):
        return ""
    return f"a call takes {wall_us:.1f} us by the host's clock, but its device works {device_us:.1f} us on it"


def kept(times_us: Sequence[float], again: int = 1) -> str:
    """Why a submission seems to cache results, or "". The times (us) are of calls on inputs that the submission has not
    seen, each followed by `again` calls on the same input, of which the slowest counts. A submission seems to cache if,
    for all inputs but one, and for one at least, that call took less than half the time of the first."""
    calls = 1 + again
    found = [(times_us[at], max(times_us[at + 1 : at + calls])) for at in range(0, len(times_us), calls)]
    if sum(again_us < KEPT_PART * fresh_us for fresh_us, again_us in found) < max(1, len(found) - 1):
        return ""
    fresh_us, again_us = map(statistics.median, zip(*found, strict=True))
    return f"a call takes {fresh_us:.1f} us on a new input, but {again_us:.1f} us on the same again"
