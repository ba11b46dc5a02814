"""Measured peaks, remembered in the checkout so that only the first evaluation on a machine pays for them."""

import hashlib
import json
from pathlib import Path

from harness.core.decode import decode, encode
from harness.core.files import read_text, replace_file
from harness.core.machine_records import Peaks
from harness.machine import host

FOLDER = ".cache"
METHOD = 2  # of harness/ranks/peaks.py; a change there makes what was measured before void


def path(root: Path, device: str, world_size: int) -> Path:
    """Where this machine's peaks lie: a name of their own for whatever they depend on."""
    environment = host.environment(device, world_size)
    what = f"{METHOD}/{world_size}/{environment.machine_class}/{environment.torch}"
    return root / FOLDER / f"peaks-{hashlib.sha256(what.encode()).hexdigest()[:16]}.json"


def load(file: Path) -> Peaks | None:
    """The peaks in `file`; None where there are none, or none that can be read (they are then measured again)."""
    try:
        peaks = decode(Peaks, json.loads(read_text(file)))
    except (OSError, ValueError, RecursionError):  # ValueError: not UTF-8, not JSON, not peaks
        return None
    usable = min(peaks.flops_per_s, peaks.hbm_bytes_per_s) > 0 and peaks.link_bytes_per_s >= 0  # one rank has no links
    return peaks if usable else None


def store(file: Path, peaks: Peaks) -> None:
    """Remember; a checkout that cannot be written to is measured again next time."""
    try:
        file.parent.mkdir(exist_ok=True)
        replace_file(file, json.dumps(encode(peaks)).encode())
    except OSError:
        pass
