"""Checks of the host, its software and its collectives: pure functions over `Readings`, a result each. No fix is ever
carried out."""

from harness.core.words import size_text
from harness.machine.findings import GIB, CheckResult, used_gpus, version_numbers
from harness.machine.readings import UNLIMITED, Readings, SmokeFailed, Unread

TORCH_TESTED = ((2, 11), (2, 13))  # what the harness is tested with, first and last
SLOW_LINKS = 0.25  # of the table's rate, for 64 MB
FREE_BYTES, KEPT_BYTES = 2 * GIB, 20 * GIB  # of the disk: left free at least, and kept at most before it is said
SHM_BYTES = GIB  # NCCL and gloo share buffers through it; containers have 64 MiB by default
RANK_GIB = 2.5  # of host memory that a rank with a CUDA context and NCCL takes
CPU_RANKS_GIB = 2.0  # what 8 ranks of all groups take on CPU cores, about
CORES_A_GPU = 3  # trusted rank, candidate rank and a share of parent and NCCL's threads
BUSY_LOAD = 0.25  # of the cores
FILES_ENOUGH, FILES_LEAST = 1024, 256  # a group of 8 ranks needs a few hundred


def check_software(found: Readings) -> CheckResult:
    software, used = found.software, used_gpus(found.gpus)
    if software.torch is None:
        return CheckResult("fail", f"Python {software.python} without torch", "make setup, or pip install torch")
    built = f"CUDA {software.torch_cuda}" if software.torch_cuda else ""
    built = f"ROCm {software.torch_hip}" if software.torch_hip else built
    text = f"Python {software.python}, torch {software.torch}" + (f" for {built}" if built else "")
    text += f", triton {software.triton}" if software.triton else ", no triton"
    serves = {"nvidia": software.torch_cuda, "amd": software.torch_hip}
    if used and not serves[used[0].vendor]:
        fix = "install a torch built for CUDA or ROCm (pytorch.org says how)"
        return CheckResult("fail", f"{text}: this torch sees no {used[0].name}", fix)
    first, last = TORCH_TESTED
    if not first <= version_numbers(software.torch) <= last:
        fix = f"pip install 'torch>={first[0]}.{first[1]},<{last[0]}.{last[1] + 1}'"
        return CheckResult("warn", f"{text}; tested are torch {first[0]}.{first[1]} to {last[0]}.{last[1]}", fix)
    if software.triton is None:
        return CheckResult("warn", text, "pip install triton: most submissions need it")
    return CheckResult("pass", text)


def check_collectives(found: Readings) -> CheckResult:
    ran = found.smoke
    if isinstance(ran, Unread):
        return CheckResult("unknown", ran.why)
    if isinstance(ran, SmokeFailed):
        return CheckResult("fail", ran.why, "NCCL_DEBUG=INFO python -m harness doctor --smoke says more")
    text = (
        f"{ran.backend} on {ran.world_size} ranks, {ran.nbytes / 2**20:.0f} MiB: all-reduce "
        f"{ran.all_reduce_bytes_per_s / 1e9:.3g} GB/s, all-gather {ran.all_gather_bytes_per_s / 1e9:.3g} GB/s a rank"
    )
    expected = found.link_bytes_per_s
    if ran.backend == "gloo" or expected is None or ran.world_size == 1:
        return CheckResult("pass", text)
    text += f" (links: {expected / 1e9:.0f})"
    if ran.all_gather_bytes_per_s < SLOW_LINKS * expected:
        return CheckResult(
            "warn", text, "under a quarter of the links' rate: see p2p and links above; try NCCL_DEBUG=INFO"
        )
    return CheckResult("pass", text)


def check_cores(found: Readings) -> CheckResult:
    if isinstance(found.cpus, Unread):
        return CheckResult("unknown", found.cpus.why)
    cpus, gpus_used = found.cpus, len(used_gpus(found.gpus))
    text = f"{cpus.allowed} of {cpus.present} cores, {cpus.model}"
    if cpus.allowed < CORES_A_GPU * gpus_used:
        fix = f"{CORES_A_GPU} cores a GPU keep launches from waiting: widen the affinity, or use fewer GPUs"
        return CheckResult("warn", text, fix)
    return CheckResult("pass", text)


def check_quota(found: Readings) -> CheckResult:
    if isinstance(found.cpus, Unread):
        return CheckResult("unknown", found.cpus.why)
    quota = found.cpus.quota_cores
    if quota is None:
        return CheckResult("pass", "none")
    text = f"{quota:g} cores' worth of time on {found.cpus.allowed} cores"
    if quota < found.cpus.allowed:
        fix = "ranks are stopped when the share is used up: give the container whole cores (--cpuset-cpus)"
        return CheckResult("warn", text, fix)
    return CheckResult("pass", text)


def check_governor(found: Readings) -> CheckResult:
    if isinstance(found.governors, Unread):
        return CheckResult("unknown", found.governors.why)
    text = ", ".join(found.governors)
    if found.governors == ("performance",):
        return CheckResult("pass", text)
    return CheckResult("warn", text, "cpupower frequency-set -g performance: cores take time to speed up after a wait")


def check_load(found: Readings) -> CheckResult:
    if isinstance(found.load, Unread):
        return CheckResult("unknown", found.load.why)
    count = found.cpus.allowed if not isinstance(found.cpus, Unread) else 1
    text = f"{found.load:.2f} over the last minute, on {count} cores"
    if found.load > BUSY_LOAD * count:
        return CheckResult("warn", text, "other processes use these cores: wait until they end (`top` lists them)")
    return CheckResult("pass", text)


def check_memory(found: Readings) -> CheckResult:
    if isinstance(found.memory, Unread):
        return CheckResult("unknown", found.memory.why)
    memory, used = found.memory, len(used_gpus(found.gpus))
    needed = max(CPU_RANKS_GIB, 2 * RANK_GIB * used) * GIB
    text = f"{memory.available_bytes / GIB:.1f} of {memory.total_bytes / GIB:.1f} GiB available"
    if memory.available_bytes < needed:
        fix = f"three groups of ranks take about {needed / GIB:.0f} GiB: free memory, or use fewer ranks (--ranks)"
        return CheckResult("fail" if memory.available_bytes < needed / 4 else "warn", text, fix)
    return CheckResult("pass", text)


def check_shm(found: Readings) -> CheckResult:
    if isinstance(found.shm, Unread):
        return CheckResult("unknown", found.shm.why)
    text = f"{size_text(found.shm.free_bytes)} of {size_text(found.shm.total_bytes)} free"
    if found.shm.free_bytes < SHM_BYTES:
        return CheckResult(
            "warn", text, "give the container more (docker run --shm-size=8g), or remove what lies there"
        )
    return CheckResult("pass", text)


def check_disk(found: Readings) -> CheckResult:
    if isinstance(found.disk, Unread):
        return CheckResult("unknown", found.disk.why)
    disk = found.disk
    text = (
        f"runs take {size_text(disk.runs_bytes)}, compile caches {size_text(disk.caches_bytes)}, the service's queue "
        f"{size_text(disk.queue_bytes)}; {size_text(disk.free_bytes)} are free"
    )
    if disk.free_bytes < FREE_BYTES or disk.runs_bytes + disk.queue_bytes > KEPT_BYTES:
        return CheckResult("warn", text, "python -m harness prune shows what nothing needs; --apply deletes it")
    return CheckResult("pass", text)


def check_numa(found: Readings) -> CheckResult:
    if isinstance(found.numa, Unread):
        return CheckResult("unknown", found.numa.why)
    nodes = f"{found.numa.nodes} node" + ("" if found.numa.nodes == 1 else "s")
    if found.numa.balancing and found.numa.nodes > 1:
        fix = "sysctl kernel.numa_balancing=0: the kernel stops to move pages while ranks run"
        return CheckResult("warn", f"on, {nodes}", fix)
    return CheckResult("pass", f"{'on' if found.numa.balancing else 'off'}, {nodes}")


def check_huge_pages(found: Readings) -> CheckResult:
    if isinstance(found.huge_pages, Unread):
        return CheckResult("unknown", found.huge_pages.why)
    if found.huge_pages == "always":
        fix = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: first touches vary less"
        return CheckResult("warn", "always", fix)
    return CheckResult("pass", found.huge_pages)


def check_aslr(found: Readings) -> CheckResult:
    if isinstance(found.aslr, Unread):
        return CheckResult("unknown", found.aslr.why)
    words = {0: "off", 1: "partial", 2: "full"}.get(found.aslr, str(found.aslr))
    if found.aslr != 2:
        fix = "sysctl kernel.randomize_va_space=2: else every run has the same layout, and the spread looks too small"
        return CheckResult("warn", words, fix)
    return CheckResult("pass", words)


def check_open_files(found: Readings) -> CheckResult:
    if isinstance(found.open_files, Unread):
        return CheckResult("unknown", found.open_files.why)
    soft, hard = found.open_files.soft, found.open_files.hard
    text = "no limit" if soft >= UNLIMITED else f"up to {soft}"
    if soft < FILES_ENOUGH:
        fix = f"ulimit -n {min(hard, 4 * FILES_ENOUGH)}: a group of 8 ranks needs a few hundred"
        return CheckResult("fail" if soft < FILES_LEAST else "warn", text, fix)
    return CheckResult("pass", text)
