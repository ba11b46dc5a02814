"""Readings of this machine, taken once: the records, and the host's through psutil, /proc and /sys (gpus.py reads the
GPUs). Only reads; the checks are in host_findings.py and gpu_findings.py. Does not import torch.

A reading that cannot be taken (no such file, no permission, a driver that does not answer) is an `Unread` with the
reason, in place of the record. So nothing here raises, in whatever container it runs.
"""

import ast
import functools
import importlib.util
import os
import platform
import resource
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

import psutil

from harness.core.files import taken_bytes
from harness.machine import host
from harness.machine.host import cores

NOT_THROTTLING = ("idle", "display clock")  # reasons for low clocks that take nothing from a busy GPU
P = ParamSpec("P")
T = TypeVar("T")
UNLIMITED = 1 << 62


@dataclass(frozen=True, kw_only=True)
class Unread:
    """A reading that could not be had, and why."""

    why: str


@dataclass(frozen=True, kw_only=True)
class Clocks:
    sm_mhz: int
    sm_max_mhz: int
    memory_mhz: int
    memory_max_mhz: int


@dataclass(frozen=True, kw_only=True)
class Heat:
    """`slowdown_c` is where the hardware slows itself down."""

    temperature_c: float
    slowdown_c: float | Unread


@dataclass(frozen=True, kw_only=True)
class Power:
    draw_w: float
    limit_w: float
    default_limit_w: float


@dataclass(frozen=True, kw_only=True)
class Ecc:
    """`uncorrected` errors since the driver was loaded."""

    enabled: bool
    uncorrected: int | Unread


@dataclass(frozen=True, kw_only=True)
class Process:
    pid: int
    name: str
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Who uses a GPU beside this process and its children, and how much of its memory. In a container other processes
    can be invisible: then only `memory_bytes` and `busy_percent` tell of them."""

    processes: tuple[Process, ...]
    memory_bytes: int
    busy_percent: int


@dataclass(frozen=True, kw_only=True)
class Pcie:
    """A GPU's link to its host: lanes now and at most."""

    width: int
    max_width: int
    max_generation: int  # the current one falls while a GPU idles


@dataclass(frozen=True, kw_only=True)
class NvLinks:
    """`present` links of the GPU, of which `active` are up."""

    active: int
    present: int
    version: str


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU. `index` and `uuid` are the management library's; `partition` is none, MIG, or AMD's partition mode."""

    index: int
    name: str
    uuid: str
    vendor: Literal["nvidia", "amd"]
    clocks: Clocks | Unread
    throttling: tuple[str, ...] | Unread
    heat: Heat | Unread
    power: Power | Unread
    ecc: Ecc | Unread
    partition: str | Unread
    compute_mode: str | Unread
    persistent: bool | Unread
    usage: Usage | Unread
    pcie: Pcie | Unread
    nvlinks: NvLinks | Unread


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two GPUs by index: whether each reads and writes the other's memory, with atomics, and what lies between."""

    a: int
    b: int
    reaches: bool
    atomics: bool
    path: str


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """`visible` are the indices that torch may use, in its order (CUDA_VISIBLE_DEVICES and its like)."""

    gpus: tuple[Gpu, ...]
    visible: tuple[int, ...]
    pairs: tuple[Pair, ...] | Unread
    driver: str
    driver_runtime: str  # the newest CUDA or ROCm that the driver serves, or ""


@dataclass(frozen=True, kw_only=True)
class Software:
    """Installed versions; None is not installed. `torch_cuda` and `torch_hip` are what torch was built for."""

    python: str
    torch: str | None
    torch_cuda: str | None
    torch_hip: str | None
    triton: str | None


@dataclass(frozen=True, kw_only=True)
class Shm:
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, kw_only=True)
class Numa:
    """How many nodes memory has, and whether the kernel moves pages between them."""

    nodes: int
    balancing: bool


@dataclass(frozen=True, kw_only=True)
class Cpus:
    """`model` in words; `allowed` of `present` cores by affinity; `quota_cores` by cgroup, None where unlimited."""

    model: str
    present: int
    allowed: int
    quota_cores: float | None


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The host's, or what its cgroup leaves of it."""

    available_bytes: int
    total_bytes: int


@dataclass(frozen=True, kw_only=True)
class OpenFiles:
    soft: int
    hard: int


@dataclass(frozen=True, kw_only=True)
class Disk:
    """What a checkout's runs (with their sources), compile caches and the service's queue take, and what is free."""

    runs_bytes: int
    caches_bytes: int
    queue_bytes: int
    free_bytes: int


@dataclass(frozen=True, kw_only=True)
class Collective:
    """What a smoke test of the collectives moved, in bytes/s over a rank's links: 2(W-1)/W of the buffer for an
    all-reduce, (W-1)/W of the gathered bytes for an all-gather (nccl-tests' busbw)."""

    backend: str
    world_size: int
    nbytes: int
    all_reduce_bytes_per_s: float
    all_gather_bytes_per_s: float
    took_s: float


@dataclass(frozen=True, kw_only=True)
class SmokeFailed:
    """The smoke test ran and went wrong: a wrong sum, a rank that raised, or the deadline."""

    why: str


@dataclass(frozen=True, kw_only=True)
class Readings:
    """Everything that doctor judges. `gpus` is None on a machine without one; Unread is a GPU that cannot be asked.
    `link_bytes_per_s` is what the hardware table says of the links, None where it does not know the GPU."""

    gpus: Gpus | Unread | None
    link_bytes_per_s: float | None
    software: Software
    shm: Shm | Unread
    governors: tuple[str, ...] | Unread
    numa: Numa | Unread
    huge_pages: str | Unread
    aslr: int | Unread
    load: float | Unread
    cpus: Cpus | Unread
    memory: Memory | Unread
    open_files: OpenFiles | Unread
    smoke: Collective | SmokeFailed | Unread
    disk: Disk | Unread


def attempt(reader: Callable[[], T]) -> T | Unread:
    """The reading, or why there is none."""
    try:
        return reader()
    except Exception as error:  # bindings and drivers raise whatever they like, and a doctor must not fall ill
        return Unread(why=printable(str(error)) or type(error).__name__)


def tried(reader: Callable[P, T]) -> Callable[P, T | Unread]:
    """The reader, which returns why there is no reading in place of raising."""
    return functools.wraps(reader)(lambda *args, **kwargs: attempt(lambda: reader(*args, **kwargs)))


def module(name: str) -> Any:
    """A package that may be missing or not load, or an Unread. Any, because none of these has types."""
    found = attempt(lambda: importlib.import_module(name))
    return Unread(why=f"the Python package {name} cannot be used: {found.why}") if isinstance(found, Unread) else found


def printable(text: str) -> str:
    """One line of what other programs call themselves, without control characters."""
    return "".join(char for char in " ".join(text.split()) if char.isprintable())


# ---- software and host -------------------------------------------------------------------------------------------
def read_software() -> Software:
    """Versions from what is installed, without importing any of it."""
    built = _torch_built_for()
    cuda, hip = (None, None) if isinstance(built, Unread) else built
    return Software(
        python=platform.python_version(),
        torch=host.installed("torch"),
        torch_cuda=cuda,
        torch_hip=hip,
        triton=host.installed("triton") or host.installed("pytorch-triton-rocm"),
    )


@tried
def _torch_built_for() -> tuple[str | None, str | None]:
    """CUDA and HIP version in torch/version.py, which is read as text."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None, None
    values: dict[str, str] = {}
    for node in ast.parse((Path(spec.origin).parent / "version.py").read_text()).body:
        target = node.target if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [None])[0]
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
            values[target.id] = value.value
    return values.get("cuda"), values.get("hip")


@tried
def read_shm(root: Path = Path("/")) -> Shm:
    found = os.statvfs(root / "dev/shm")
    return Shm(free_bytes=found.f_bavail * found.f_frsize, total_bytes=found.f_blocks * found.f_frsize)


def read_governors(root: Path = Path("/")) -> tuple[str, ...] | Unread:
    files = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    found = attempt(lambda: tuple(sorted({printable(file.read_text()) for file in files})))
    return found or Unread(why="this kernel shows none (a virtual machine or container, mostly)")


@tried
def read_numa(root: Path = Path("/")) -> Numa:
    """How many memory nodes there are, and whether the kernel moves pages between them on its own."""
    nodes = len(list((root / "sys/devices/system/node").glob("node[0-9]*"))) or 1
    switch = root / "proc/sys/kernel/numa_balancing"
    return Numa(nodes=nodes, balancing=switch.exists() and switch.read_text().strip() != "0")


@tried
def read_huge_pages(root: Path = Path("/")) -> str:
    """always, madvise or never: the word in brackets."""
    return (root / "sys/kernel/mm/transparent_hugepage/enabled").read_text().split("[")[1].split("]")[0]


@tried
def read_aslr(root: Path = Path("/")) -> int:
    """0 off, 1 partial, 2 full."""
    return int((root / "proc/sys/kernel/randomize_va_space").read_text())


@tried
def read_load() -> float:
    """Runnable processes, averaged over the last minute."""
    return float(psutil.getloadavg()[0])


@tried
def read_cpus(root: Path = Path("/")) -> Cpus:
    """Cores there are, cores this process may run on, and the cgroups' share of time."""
    model, present = printable(host.cpu_model()), os.cpu_count() or cores()
    return Cpus(model=model, present=present, allowed=cores(), quota_cores=_quota_cores(root))


def _quota_cores(root: Path) -> float | None:
    """The narrowest CPU quota over this process's cgroup and those above it, in cores; None where none is set."""
    found: list[float] = []
    membership = attempt(lambda: (root / "proc/self/cgroup").read_text())
    for line in [] if isinstance(membership, Unread) else membership.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
        folder = top / path.lstrip("/")
        for group in (folder, *(parent for parent in folder.parents if parent.is_relative_to(top))):
            if isinstance(quota := _quota(group), float):
                found.append(quota)
    return min(found, default=None)


@tried
def _quota(group: Path) -> float | None:
    if (group / "cpu.max").exists():  # cgroup v2: "max 100000" or "150000 100000", in us
        quota, period = (group / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    quota_us = int((group / "cpu.cfs_quota_us").read_text())  # cgroup v1: -1 for none
    return quota_us / int((group / "cpu.cfs_period_us").read_text()) if quota_us > 0 else None


@tried
def read_memory() -> Memory:
    return Memory(available_bytes=host.available_bytes(), total_bytes=int(psutil.virtual_memory().total))


@tried
def read_disk(root: Path) -> Disk:
    queue = taken_bytes(root / "runs" / "serve")
    return Disk(
        runs_bytes=taken_bytes(root / "runs", set()) - queue,
        caches_bytes=taken_bytes(root / ".cache"),
        queue_bytes=queue,
        free_bytes=shutil.disk_usage(root).free,
    )


@tried
def read_open_files() -> OpenFiles:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (UNLIMITED if limit == resource.RLIM_INFINITY else limit for limit in limits)
    return OpenFiles(soft=soft, hard=hard)
