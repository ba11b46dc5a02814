"""The properties of this machine on which results depend: model, cores, memory, versions. Reads, never changes.

Knows /proc and installed packages; does not import torch.
"""

import errno
import hmac
import importlib.metadata
import itertools
import os
import platform
import resource
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness.core.errors import UsageError
from harness.core.files import text_if_any
from harness.core.machine_records import Environment, class_of_gpus
from harness.core.version import __version__

RANK_BYTES = 130 << 20  # what one rank of all groups takes beside its tensors; docs/measurements.md, start-up
RANK_FILES, MORE_FILES = 12, 24  # both ends of a socket and a pipe for a rank of each group; and what all share
# Of a Unix socket's name (linux/un.h), and what a rank's is below the temporary folder: torch's symmetric memory meets
# at one a process.
SOCKET_NAME_BYTES, RANKS_SOCKET = 107, "/kernel-eval-12345678/candidate/tmp/symm_mem-4194304"
MACHINE_IDS = (  # the first that can be read; only root reads the board's
    "/etc/machine-id",
    "/var/lib/dbus/machine-id",
    "/sys/class/dmi/id/product_uuid",
    "/sys/class/dmi/id/board_serial",
)
_ROOM, _FILES, _TASKS = "make room there", "raise the limit of open files (`ulimit -n`)", "end other processes"
ADVICE = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: "raise the limit of file sizes (`ulimit -f`)",
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.EAGAIN: _TASKS,
    errno.ENOMEM: _TASKS,
}


def cpu_model() -> str:
    for line in text_if_any("/proc/cpuinfo").splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def machine_id() -> str:
    """An anonymous id of this machine, the same at every call: 12 hexadecimal digits, empty where it cannot be known.

    A keyed hash of systemd's machine id, or else of an id of the board, and of what everyone can see of the hardware
    (containers of one image may share a machine id). The ids themselves are never shown, and cannot be had from it
    (as machine-id(5) demands).
    """
    own = next((text for path in MACHINE_IDS if (text := text_if_any(path).strip())), "")
    seen = [text_if_any(f"/sys/class/dmi/id/{name}").strip() for name in ("sys_vendor", "product_name", "board_name")]
    if not own:
        return ""
    told = "\0".join([*seen, cpu_model()])
    return hmac.new(own.encode(), b"kernel-eval machine 1\0" + told.encode(), "sha256").hexdigest()[:12]


def near_cores(world_size: int) -> tuple[tuple[int, ...], ...]:
    """This process's cores in equal shares by rank, each of neighbours on one memory node where that goes up.

    Boards number their GPUs along their memory nodes, so a rank's share is on its GPU's side.
    """
    ordered = sorted(os.sched_getaffinity(0), key=lambda core: (_memory_node(core), core))
    share = len(ordered) // world_size
    return tuple(tuple(ordered[share * rank : share * (rank + 1)]) for rank in range(world_size))


def _memory_node(core: int) -> int:
    found = Path(f"/sys/devices/system/cpu/cpu{core}").glob("node[0-9]*")
    return min((int(path.name[4:]) for path in found), default=0)


def available_bytes() -> int:
    """Memory that can still be allocated: the kernel's estimate, or what a cgroup's limit leaves if that is less."""
    free = int(psutil.virtual_memory().available)
    limit, used = text_if_any("/sys/fs/cgroup/memory.max").strip(), text_if_any("/sys/fs/cgroup/memory.current").strip()
    if limit.isdigit() and used.isdigit():
        free = min(free, max(0, int(limit) - int(used)))
    return free


@dataclass(frozen=True, kw_only=True)
class CpuTime:
    """The ticks of this process's cores since they started, and those that went to other guests and to processes."""

    total: int
    stolen: int
    used: int = 0

    def stolen_since(self, before: "CpuTime") -> float:
        """The part of the time since then that was stolen; 0 where the kernel does not tell."""
        total = self.total - before.total
        return max(0, self.stolen - before.stolen) / total if total > 0 else 0.0

    def others_since(self, before: "CpuTime", own_s: float) -> float | None:
        """How many cores, on average since then, went to processes beside those that used `own_s` seconds, and to other
        guests; None where the kernel does not tell."""
        total, used = self.total - before.total, self.used + self.stolen - before.used - before.stolen
        return max(0.0, used - own_s * os.sysconf("SC_CLK_TCK")) / total * cores() if total > 0 else None


def cpu_time() -> CpuTime:
    """The kernel's count of now (proc(5), /proc/stat)."""
    own = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    rows = [line.split() for line in text_if_any("/proc/stat").splitlines() if line.startswith("cpu")]
    counts = [[int(count) for count in row[1:9]] for row in rows if row[0] in own]  # further ones are within these
    return CpuTime(
        total=sum(map(sum, counts)),
        stolen=sum(count[7] for count in counts if len(count) > 7),
        used=sum(map(sum, (count[:3] for count in counts))),  # user, nice, system: interrupts are nobody's
    )


def check_memory(world_size: int) -> None:
    """UsageError where this many ranks cannot fit into memory."""
    free = available_bytes()
    if world_size * RANK_BYTES > free:
        raise UsageError(
            f"{world_size} ranks need about {world_size * RANK_BYTES / 2**30:.1f} GiB of memory before any input, "
            f"{free / 2**30:.1f} GiB are free; ask for at most {free // RANK_BYTES} (--ranks, RANKS=)"
        )


def check_files(world_size: int) -> None:
    """UsageError where the limit of open files is too low for the pipes and sockets of so many ranks."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    needed = len(os.listdir("/proc/self/fd")) + world_size * RANK_FILES + MORE_FILES
    if needed > limit != resource.RLIM_INFINITY:
        raise UsageError(
            f"{world_size} ranks need about {needed} open files, {limit} are allowed; raise that "
            f"(`ulimit -n {needed}`), or ask for fewer ranks (--ranks, RANKS=)"
        )


def check_temporary(device: str) -> None:
    """UsageError where the temporary folder's name is too long for the sockets by which ranks on GPUs share memory."""
    folder, most = tempfile.gettempdir(), SOCKET_NAME_BYTES - len(RANKS_SOCKET)
    if device != "cpu" and len(os.fsencode(folder)) > most:
        raise UsageError(
            f"the temporary folder {folder} has too long a name for the sockets in it; set TMPDIR to one of at most "
            f"{most} bytes, such as TMPDIR=/tmp"
        )


def check_executes() -> None:
    """UsageError where the temporary folder's file system executes no program: mounted noexec, as some do with /tmp."""
    folder = tempfile.gettempdir()
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        raise UsageError(
            f"the submission is a program, and the temporary folder {folder}, where it would run, is mounted noexec; "
            "set TMPDIR to a folder elsewhere"
        )


def environment(device_model: str, world_size: int, nodes: int = 1) -> Environment:
    """This machine and its software, one of `nodes` alike. `device_model` is the GPUs', or empty."""
    model = cpu_model()
    one = class_of_gpus(device_model, world_size // nodes) if device_model else f"{cores()} cores of {model}"
    return Environment(
        machine_class=f"{nodes} nodes of {one}" if nodes > 1 else one,
        cpu=model,
        cores=cores(),
        memory_bytes=int(psutil.virtual_memory().total),
        python=platform.python_version(),
        torch=installed("torch") or "none",
        triton=installed("triton"),
        platform=f"{platform.system()} {platform.release()} {platform.machine()}",
        harness=__version__,
        machine=machine_id(),
    )


@dataclass(frozen=True, kw_only=True)
class UsableGpus:
    """The GPUs that torch can use here: `device` is their --device name, cpu where there are none."""

    device: str
    count: int

    def has(self, name: str) -> bool:
        """Whether GPU MODE's name (MI300, B200x8) may be of these: only the make is known without a driver."""
        return self.device == ("rocm" if name.upper().startswith("MI") else "cuda")

    @property
    def told(self) -> str:
        return f"{self.count} {self.device} GPUs" if self.count else "no GPU that this torch can use"


VISIBLE_DEVICES = {  # the variables that hide GPUs; the first that is set counts
    "cuda": ("CUDA_VISIBLE_DEVICES",),
    "rocm": ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
}


def gpus() -> UsableGpus:
    """By the driver's own lists, since torch would take a second to ask, and respecting VISIBLE_DEVICES."""
    torch = installed("torch") or ""
    nvidia = [Path("/dev", name) for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()]
    nodes = Path("/sys/class/kfd/kfd/topology/nodes").glob("*/gpu_id")
    for device, count in (
        ("cuda", len(nvidia)),
        ("rocm", sum(text_if_any(node).strip() not in ("", "0") for node in nodes)),
    ):
        text = next((os.environ[name] for name in VISIBLE_DEVICES[device] if name in os.environ), None)
        if text is not None:
            count = _visible(count, text)
        if count and not torch.endswith("+cpu"):
            return UsableGpus(device=device, count=count)
    return UsableGpus(device="cpu", count=0)


def _visible(count: int, text: str) -> int:
    """How many of `count` GPUs that variable leaves: as CUDA reads it, the first entry that names none ends the list
    (-1 hides all). A name that is no number is believed."""
    words = [word.strip() for word in text.split(",")]
    named = itertools.takewhile(
        lambda word: word and (int(word) < count if word.isdecimal() else word[0].isalpha()), words
    )
    return min(count, len(list(named)))


def refusal(error: OSError | MemoryError) -> str:
    """The resource that the machine did not give, and what to do about it, as one line."""
    if isinstance(error, MemoryError):
        return "no memory left for the harness itself; end other work, or ask for fewer ranks (--ranks, RANKS=)"
    try:
        os.getcwd()
    except FileNotFoundError:
        return "the working folder is gone; `cd` to one that is there"
    what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
    return f"{what}; {ADVICE.get(error.errno or 0, 'check its rights, and what else runs here')}"


def installed(package: str) -> str | None:
    """The version of an installed package; None where it is not."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def cores() -> int:
    """How many cores this process may run on."""
    return len(os.sched_getaffinity(0))
