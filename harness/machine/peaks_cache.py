"""Measured peaks, the best seen, remembered in the checkout.

The first evaluation on a machine measures them. Other work makes a measured peak low and never high, and what others
use of the cores does not show all of it, such as a shared host's memory. So evaluations that measure shapes measure
peaks again, at most once a day, until measurements of QUIET_DAYS days were quiet, and when
the last of these is older than STALE_DAYS.
"""

import contextlib
import hashlib
import time
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from harness.core.files import replace_file
from harness.core.json_file import file_if_any, line_of
from harness.core.machine_records import Peaks
from harness.machine import host
from harness.machine.host_findings import BUSY_LOAD

FOLDER = ".cache"
STOLEN = 0.05  # of the cores' time that went to other guests, from which on a measurement was not quiet
QUIET_DAYS, STALE_DAYS = 3, 30
METHOD = 2  # of harness/ranks/peaks.py; a change there makes what was measured before void


def path(root: Path, device: str, world_size: int, nodes: int = 1) -> Path:
    """Where this machine's peaks lie: a name of their own for whatever they depend on."""
    environment = host.environment(device, world_size, nodes)
    what = f"{METHOD}/{world_size}/{environment.machine_class}/{environment.machine}/{environment.torch}"
    return root / FOLDER / f"peaks-{hashlib.sha256(what.encode()).hexdigest()[:16]}.json"


@dataclass(frozen=True, kw_only=True)
class _KeptPeaks:
    """The best rates of `count` measurements from `first` to `last` (dates), and the least load of a core that one was
    made under. `quiet` are the latest days of quiet measurements. `due` asks for another."""

    peaks: Peaks
    count: int
    first: str
    last: str
    load: float
    due: bool = False
    quiet: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for day in self.quiet:
            date.fromisoformat(day)


def load(file: Path) -> Peaks | None:
    """The peaks in `file`; None where there are none, or none that can be read (they are then measured again)."""
    kept = _read(file)
    return kept.peaks if kept else None


def is_due(file: Path, load_per_core: float, measures: bool = True, today: str | None = None) -> bool:
    """Whether to measure (again): nothing is kept, or another measurement was asked for. Where the evaluation
    `measures` shapes, and the machine is quiet now, also if every earlier measurement was made on a busy one, or if
    another quiet day is needed; that is tried once a day."""
    kept, today = _read(file), today or _today()
    if kept is None or kept.due:
        return True
    if not measures or load_per_core > BUSY_LOAD:
        return False
    if kept.load > BUSY_LOAD:
        return True
    if kept.last == today:
        return False
    if len(kept.quiet) < QUIET_DAYS:
        return True
    return (date.fromisoformat(today) - date.fromisoformat(kept.quiet[-1])).days > STALE_DAYS


def ask_again(root: Path) -> None:
    """Has the peaks of this checkout measured at the next evaluation; what is kept is still compared with them."""
    for file in (root / FOLDER).glob("peaks-*.json"):
        if (kept := _read(file)) is not None:
            _write(file, replace(kept, due=True))


def store(file: Path, peaks: Peaks, load_per_core: float = 0.0, stolen: float = 0.0, today: str | None = None) -> Peaks:
    """Remembers the best rates seen, and returns them with where they come from. `stolen` is the part of the cores'
    time that went to other guests meanwhile. If it cannot be written, it is measured again next time."""
    today = today or _today()
    old = _read(file)
    quiet = set(old.quiet if old else ())
    if load_per_core <= BUSY_LOAD and stolen <= STOLEN:
        quiet.add(today)
    days = tuple(sorted(quiet)[-QUIET_DAYS:])
    kept = _KeptPeaks(peaks=peaks, count=1, first=today, last=today, load=load_per_core, quiet=days)
    if old is not None:
        rates = ("flops_per_s", "hbm_bytes_per_s", "link_bytes_per_s")
        best = {name: max(getattr(old.peaks, name), getattr(peaks, name)) for name in rates}
        since = today if old.first == today else f"{old.first} to {today}"
        source = f"the best of {old.count + 1} measurements on this machine, {since}"
        kept = replace(
            kept,
            peaks=Peaks(**best, source=source),
            count=old.count + 1,
            first=old.first,
            load=min(old.load, load_per_core),
        )
    _write(file, kept)
    return kept.peaks


def _today() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())


def _read(file: Path) -> _KeptPeaks | None:
    kept = file_if_any(_KeptPeaks, file)
    if kept is None:
        return None
    peaks = kept.peaks
    usable = min(peaks.flops_per_s, peaks.hbm_bytes_per_s) > 0 and peaks.link_bytes_per_s >= 0  # one rank has no links
    return kept if usable else None


def _write(file: Path, kept: _KeptPeaks) -> None:
    with contextlib.suppress(OSError):
        file.parent.mkdir(exist_ok=True)
        replace_file(file, line_of(kept).encode())
