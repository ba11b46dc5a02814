"""What NVLinks carried in timed calls, in words."""

from collections.abc import Sequence

from harness.core.machine_records import LinkTraffic, NoTraffic
from harness.core.records import CaseResult, Measured
from harness.core.words import clean_line, times_text


def traffic_words(results: Sequence[CaseResult]) -> str:
    """How much passed between GPUs in the shapes where it was counted, or why it was in none; empty where it was not to
    be, on CPUs and on one GPU."""
    found = [one.outcome.traffic for one in results if isinstance(one.outcome, Measured) and one.outcome.traffic]
    parts = [one.own_bytes / one.least_bytes for one in found if isinstance(one, LinkTraffic)]
    if parts:
        among = f"in {len(parts)} of {len(found)} shapes" if len(parts) < len(found) else "in all shapes"
        return f"by traffic {among}: NVLink carried {times_text(min(parts))} to {times_text(max(parts))} the least"
    return next((f"not by traffic: {clean_line(one.why)}" for one in found if isinstance(one, NoTraffic)), "")
