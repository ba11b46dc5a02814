"""Peaks of known GPUs (hardware.yaml) and the roofline over them.

Knows vendor figures and the arithmetic; does not know the machine at hand, torch or measurements: who asks brings
the device's name, and measures the peaks where `match` has none.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from harness.core.decode import did_you_mean, part
from harness.core.errors import UsageError
from harness.core.limits import Limit, Limited, above_0
from harness.core.machine_records import Peaks, class_of_gpus
from harness.core.records import Bound, Cost
from harness.core.yaml_file import read_yaml

TABLE = Path(__file__).resolve().parent / "hardware.yaml"
Term = Literal["flops", "hbm", "link"]


Rate = Annotated[float, above_0("a rate")]
Named = Annotated[str, Limit(bool, "is empty; name the figure's source and date")]


@dataclass(frozen=True, kw_only=True)
class _Row(Limited):
    """One GPU of the table; rates are per GPU, the link's per direction to all peers in the node together."""

    device_names: tuple[str, ...]
    flops_per_s: Rate
    hbm_bytes_per_s: Rate
    link_bytes_per_s: Rate
    source: Named
    date: Named

    def peaks(self) -> Peaks:
        return part(self, Peaks, source=f"{self.source}, {self.date}")


@dataclass(frozen=True, kw_only=True)
class _Table:
    gpus: dict[str, _Row]


def peaks(name: str, table: Path = TABLE) -> Peaks:
    """The peaks of the GPU that the table calls `name` (case does not matter); UsageError for an unknown one."""
    gpus = read_yaml(_Table, table).gpus
    for known, row in gpus.items():
        if known.lower() == name.lower():
            return row.peaks()
    hint = did_you_mean(name.upper(), gpus)
    raise UsageError(f"no GPU '{name}' in hardware.yaml{hint} (known: {', '.join(gpus)})")


def match(device_name: str, table: Path = TABLE) -> Peaks | None:
    """The peaks of the device that torch calls `device_name`, or None where the table does not know it."""
    for row in read_yaml(_Table, table).gpus.values():
        if device_name.lower() in (name.lower() for name in row.device_names):
            return row.peaks()
    return None


def of_class(machine_class: str, world_size: int, table: Path = TABLE) -> Peaks | None:
    """The peaks of a machine class of `world_size` GPUs that the table knows, or None."""
    for row in read_yaml(_Table, table).gpus.values():
        if machine_class.lower() in (class_of_gpus(name, world_size).lower() for name in row.device_names):
            return row.peaks()
    return None


def times_us(cost: Cost, peaks: Peaks) -> dict[Term, float]:
    """The time that each term of `cost` takes alone, in us. A term that costs nothing takes no time, whatever its rate:
    one rank has no links, and so a rate of 0 for them."""
    terms: dict[Term, tuple[float, float]] = {
        "flops": (cost.flops, peaks.flops_per_s),
        "hbm": (cost.hbm_bytes, peaks.hbm_bytes_per_s),
        "link": (cost.link_bytes, peaks.link_bytes_per_s),
    }
    return {term: amount / rate * 1e6 if amount and rate else 0.0 for term, (amount, rate) in terms.items()}


def bound(cost: Cost, peaks: Peaks) -> tuple[float, Term]:
    """The roofline in us, and the term that sets it: the largest of `times_us`.

    No call can be faster: each of the three has to happen, and at best all at the same time.
    Anchor: official gemm_rs case 6 (8192, 8192, 29568) at W = 8 on MI300X: 379.43 us, by flops.
    """
    times = times_us(cost, peaks)
    term = max(times, key=lambda each: times[each])
    return times[term], term


def limit(cost: Cost, peaks: Peaks) -> Bound | None:
    """The largest of these times as a case's bound; None where the call costs only what has no rate here."""
    value, by = bound(cost, peaks)
    return Bound(value=value, by=by) if value > 0 else None
