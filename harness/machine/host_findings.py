"""Checks of the host, its software and its collectives: pure functions over `Readings`, a result each. No fix is ever
carried out."""

from harness.core.words import count_text, size_text
from harness.machine import readings
from harness.machine.findings import GIB, CheckResult, of_reading, used_gpus, version_numbers, warned
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
    fix = "under a quarter of the links' rate: see p2p and links above; try NCCL_DEBUG=INFO"
    return warned(ran.all_gather_bytes_per_s < SLOW_LINKS * expected, text, fix)


@of_reading(lambda found: found.cpus)
def check_cores(cpus: readings.Cpus, found: Readings) -> CheckResult:
    text = f"{cpus.allowed} of {cpus.present} cores, {cpus.model}"
    fix = f"{CORES_A_GPU} cores a GPU keep launches from waiting: widen the affinity, or use fewer GPUs"
    return warned(cpus.allowed < CORES_A_GPU * len(used_gpus(found.gpus)), text, fix)


@of_reading(lambda found: found.cpus)
def check_quota(cpus: readings.Cpus, found: Readings) -> CheckResult:
    if (quota := cpus.quota_cores) is None:
        return CheckResult("pass", "none")
    text = f"{quota:g} cores' worth of time on {cpus.allowed} cores"
    fix = "ranks are stopped when the share is used up: give the container whole cores (--cpuset-cpus)"
    return warned(quota < cpus.allowed, text, fix)


@of_reading(lambda found: found.governors)
def check_governor(governors: tuple[str, ...], found: Readings) -> CheckResult:
    fix = "cpupower frequency-set -g performance: cores take time to speed up after a wait"
    return warned(governors != ("performance",), ", ".join(governors), fix)


@of_reading(lambda found: found.load)
def check_load(load: float, found: Readings) -> CheckResult:
    count = found.cpus.allowed if not isinstance(found.cpus, Unread) else 1
    text = f"{load:.2f} over the last minute, on {count_text(count, 'core')}"
    return warned(
        load > BUSY_LOAD * count, text, "other processes use these cores: wait until they end (`top` lists them)"
    )


@of_reading(lambda found: found.memory)
def check_memory(memory: readings.Memory, found: Readings) -> CheckResult:
    available, needed = memory.available_bytes, max(CPU_RANKS_GIB, 2 * RANK_GIB * len(used_gpus(found.gpus))) * GIB
    text = f"{available / GIB:.1f} of {memory.total_bytes / GIB:.1f} GiB available"
    fix = f"three groups of ranks take about {needed / GIB:.0f} GiB: free memory, or use fewer ranks (--ranks)"
    return warned(available < needed, text, fix, "fail" if available < needed / 4 else "warn")


@of_reading(lambda found: found.shm)
def check_shm(shm: readings.Shm, found: Readings) -> CheckResult:
    text = f"{size_text(shm.free_bytes)} of {size_text(shm.total_bytes)} free"
    fix = "give the container more (docker run --shm-size=8g), or remove what lies there"
    return warned(shm.free_bytes < SHM_BYTES, text, fix)


@of_reading(lambda found: found.disk)
def check_disk(disk: readings.Disk, found: Readings) -> CheckResult:
    text = (
        f"runs take {size_text(disk.runs_bytes)}, compile caches {size_text(disk.caches_bytes)}, the service's queue "
        f"{size_text(disk.queue_bytes)}; {size_text(disk.free_bytes)} are free"
    )
    is_full = disk.free_bytes < FREE_BYTES or disk.runs_bytes + disk.queue_bytes > KEPT_BYTES
    return warned(is_full, text, "python -m harness prune shows what nothing needs; --apply deletes it")


@of_reading(lambda found: found.numa)
def check_numa(numa: readings.Numa, found: Readings) -> CheckResult:
    text = f"{'on' if numa.balancing else 'off'}, {count_text(numa.nodes, 'node')}"
    fix = "sysctl kernel.numa_balancing=0: the kernel stops to move pages while ranks run"
    return warned(numa.balancing and numa.nodes > 1, text, fix)


@of_reading(lambda found: found.huge_pages)
def check_huge_pages(huge_pages: str, found: Readings) -> CheckResult:
    fix = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: first touches vary less"
    return warned(huge_pages == "always", huge_pages, fix)


@of_reading(lambda found: found.aslr)
def check_aslr(aslr: int, found: Readings) -> CheckResult:
    words = {0: "off", 1: "partial", 2: "full"}.get(aslr, str(aslr))
    fix = "sysctl kernel.randomize_va_space=2: else every run has the same layout, and the spread looks too small"
    return warned(aslr != 2, words, fix)


@of_reading(lambda found: found.open_files)
def check_open_files(limits: readings.OpenFiles, found: Readings) -> CheckResult:
    text = "no limit" if limits.soft >= UNLIMITED else f"up to {limits.soft}"
    fix = f"ulimit -n {min(limits.hard, 4 * FILES_ENOUGH)}: a group of 8 ranks needs a few hundred"
    return warned(limits.soft < FILES_ENOUGH, text, fix, "fail" if limits.soft < FILES_LEAST else "warn")
