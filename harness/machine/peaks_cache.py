"""Measured peaks, the best seen, remembered in the checkout: only the first evaluation on a machine pays for them, and
one on a machine that has become quieter."""

import hashlib
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path

from harness.core.decode import decode, encode
from harness.core.files import read_text, replace_file
from harness.core.machine_records import Peaks
from harness.machine import host

FOLDER = ".cache"
BUSY = 0.5  # runnable processes a core from which on a measurement is not the last word
METHOD = 2  # of harness/ranks/peaks.py; a change there makes what was measured before void


def path(root: Path, device: str, world_size: int, nodes: int = 1) -> Path:
    """Where this machine's peaks lie: a name of their own for whatever they depend on."""
    environment = host.environment(device, world_size, nodes)
    what = f"{METHOD}/{world_size}/{environment.machine_class}/{environment.machine}/{environment.torch}"
    return root / FOLDER / f"peaks-{hashlib.sha256(what.encode()).hexdigest()[:16]}.json"


@dataclass(frozen=True, kw_only=True)
class _Kept:
    """The best rates of `count` measurements from `first` to `last` (dates), and the least load of a core that one was
    made under. `due` asks for another."""

    peaks: Peaks
    count: int
    first: str
    last: str
    load: float
    due: bool = False


def load(file: Path) -> Peaks | None:
    """The peaks in `file`; None where there are none, or none that can be read (they are then measured again)."""
    kept = _read(file)
    return kept.peaks if kept else None


def is_due(file: Path, load_per_core: float) -> bool:
    """Whether to measure (again): nothing is kept, another measurement was asked for, or what is kept was measured on
    a busy machine that is quieter now."""
    kept = _read(file)
    return kept is None or kept.due or (kept.load > BUSY and load_per_core < kept.load / 2)


def ask_again(root: Path) -> None:
    """Has the peaks of this checkout measured at the next evaluation; what is kept is still compared with them."""
    for file in (root / FOLDER).glob("peaks-*.json"):
        if (kept := _read(file)) is not None:
            _write(file, replace(kept, due=True))


def store(file: Path, peaks: Peaks, load_per_core: float = 0.0, today: str | None = None) -> Peaks:
    """Remembers the best rates seen, and returns them with where they come from: other work makes a measured peak low
    and never high. A checkout that cannot be written to is measured again next time."""
    today = today or time.strftime("%Y-%m-%d", time.gmtime())
    old = _read(file)
    if old is None:
        kept = _Kept(peaks=peaks, count=1, first=today, last=today, load=load_per_core)
    else:
        rates = ("flops_per_s", "hbm_bytes_per_s", "link_bytes_per_s")
        best = {name: max(getattr(old.peaks, name), getattr(peaks, name)) for name in rates}
        since = today if old.first == today else f"{old.first} to {today}"
        source = f"the best of {old.count + 1} measurements on this machine, {since}"
        kept = _Kept(
            peaks=Peaks(**best, source=source),
            count=old.count + 1,
            first=old.first,
            last=today,
            load=min(old.load, load_per_core),
        )
    _write(file, kept)
    return kept.peaks


def _read(file: Path) -> _Kept | None:
    try:
        kept = decode(_Kept, json.loads(read_text(file)))
    except (OSError, ValueError, RecursionError):  # ValueError: not UTF-8, not JSON, not peaks
        return None
    peaks = kept.peaks
    usable = min(peaks.flops_per_s, peaks.hbm_bytes_per_s) > 0 and peaks.link_bytes_per_s >= 0  # one rank has no links
    return kept if usable else None


def _write(file: Path, kept: _Kept) -> None:
    try:
        file.parent.mkdir(exist_ok=True)
        replace_file(file, json.dumps(encode(kept)).encode())
    except OSError:
        pass
