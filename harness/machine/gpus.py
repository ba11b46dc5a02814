"""The machine's GPUs, read by their vendor's library: NVML (nvml.py) or AMD SMI (amd_smi.py)."""

import os
from collections.abc import Mapping
from pathlib import Path

from harness.machine.amd_smi import read_amd
from harness.machine.nvml import read_nvidia
from harness.machine.readings import Gpus, Unread, module


def read_gpus(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> Gpus | Unread | None:
    """The machine's GPUs: NVIDIA's, else AMD's; None where there are neither."""
    whys: list[str] = []
    for devices, name, reader in (
        ("nvidia[0-9]*", "pynvml", read_nvidia),
        ("kfd", "amdsmi", read_amd),
    ):
        library = module(name)
        found = library if isinstance(library, Unread) else reader(library, environ)
        if isinstance(found, Gpus) and found.gpus:
            return found
        if isinstance(found, Unread) and any((root / "dev").glob(devices)):
            whys.append(found.why)
    return Unread(why="; ".join(whys)) if whys else None


def gpu_names() -> tuple[str, ...]:
    """The names of the machine's GPUs; empty where there are none or none can be asked."""
    found = read_gpus()
    return tuple(gpu.name for gpu in found.gpus) if isinstance(found, Gpus) else ()
