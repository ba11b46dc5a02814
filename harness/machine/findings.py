"""What is good and bad for results on a machine: a judge a check, all listed in CHECKS.

Pure functions over `Readings`; nothing here touches the world, and no fix is ever carried out.

fail: ranks cannot run here, or their times mean nothing. warn: times vary or are worse than they could be.
unknown: it could not be read, so nothing is said.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from harness.machine.readings import (
    NOT_THROTTLING,
    UNLIMITED,
    Clocks,
    Ecc,
    Gpu,
    Gpus,
    Heat,
    Pcie,
    Power,
    Readings,
    SmokeFailed,
    Unread,
    Usage,
)

GIB = 1 << 30
TORCH_TESTED = ((2, 11), (2, 13))  # what the harness is tested with, first and last
NEAR_SLOWDOWN_C = 10  # degrees below the slowdown from which on a GPU is called hot
HOT_C = 85  # where the GPU does not tell its slowdown
FULL_CLOCK = 0.9  # of the maximum
FULL_POWER = 0.95  # of the limit
FOREIGN_BYTES = 2 * GIB  # a driver keeps up to about 1 GiB of a GPU's memory for itself
FOREIGN_BUSY_PERCENT = 5
SLOW_LINKS = 0.25  # of the table's rate, for 64 MB
SHM_BYTES = GIB  # NCCL and gloo share buffers through it; containers have 64 MiB by default
RANK_GIB = 2.5  # of host memory that a rank with a CUDA context and NCCL takes
CPU_RANKS_GIB = 2.0  # what 8 ranks of all groups take on CPU cores, about
CORES_A_GPU = 3  # trusted rank, candidate rank and a share of parent and NCCL's threads
BUSY_LOAD = 0.25  # of the cores
FILES_ENOUGH, FILES_LEAST = 1024, 256  # a group of 8 ranks needs a few hundred
HARD_THROTTLING = ("hardware slowdown", "hardware thermal slowdown", "power brake")
Status = Literal["pass", "warn", "fail", "unknown"]
ORDER: tuple[Status, ...] = ("fail", "warn", "unknown", "pass")  # the worst first
T = TypeVar("T")


@dataclass(frozen=True)
class Judged:
    """A finding whose check is not named yet."""

    status: Status
    found: str
    fix: str = ""


NO_GPU = Judged("unknown", "no GPU")


# ---- judges: GPUs ------------------------------------------------------------------------------------------------
def used_gpus(found: Gpus | Unread | None) -> list[Gpu]:
    """The GPUs that torch may use."""
    return [found.gpus[index] for index in found.visible] if isinstance(found, Gpus) else []


def _each(
    found: Readings,
    pick: Callable[[Gpu], T | Unread],
    judge: Callable[[T], tuple[Status, str]],
    describe: Callable[[list[T]], str],
) -> Judged:
    """Judges one reading of every usable GPU: `judge` gives status and fix, `describe` words for GPUs that have both
    in common. The worst comes first and decides."""
    if not (used := used_gpus(found.gpus)):
        return NO_GPU if found.gpus is None else Judged("unknown", "no GPU can be asked")
    groups: dict[tuple[Status, str], list[tuple[int, T]]] = {}
    unread: dict[str, list[int]] = {}
    for gpu in used:
        value = pick(gpu)
        if isinstance(value, Unread):
            unread.setdefault(value.why, []).append(gpu.index)
        else:
            groups.setdefault(judge(value), []).append((gpu.index, value))
    parts = [
        (status, fix, [index for index, _ in members], describe([value for _, value in members]))
        for (status, fix), members in groups.items()
    ]
    parts += [("unknown", "", indices, f"cannot be read: {why}") for why, indices in unread.items()]
    parts.sort(key=lambda part: ORDER.index(part[0]))
    words = (f"{_gpus(indices)}: {text}" if len(parts) > 1 else text for _, _, indices, text in parts)
    return Judged(parts[0][0], "; ".join(words), parts[0][1])


def judge_count(found: Readings) -> Judged:
    if found.gpus is None:
        return Judged("pass", "no GPU: ranks run on CPU cores")
    if isinstance(found.gpus, Unread):
        fix = "install the driver's libraries and nvidia-ml-py (NVIDIA) or amdsmi (AMD) for this Python"
        return Judged("unknown", f"there are GPUs that cannot be asked: {found.gpus.why}", fix)
    used, present = used_gpus(found.gpus), len(found.gpus.gpus)
    models = Counter(gpu.name for gpu in used)
    text = ", ".join(f"{count} x {name}" for name, count in models.items()) or "none"
    text += f" (of {present}; the environment hides the rest)" if len(used) < present else ""
    if not used:
        return Judged("fail", f"{present} GPUs, of which the environment shows none", "unset CUDA_VISIBLE_DEVICES")
    if len(models) > 1:
        return Judged("warn", text, "show only GPUs of one model (CUDA_VISIBLE_DEVICES): the slowest sets the pace")
    if len(used) == 1:
        return Judged("warn", text, "ranks need a GPU each: only one rank runs here, or several on --device cpu")
    return Judged("pass", text)


def judge_driver(found: Readings) -> Judged:
    if not isinstance(found.gpus, Gpus):
        return NO_GPU if found.gpus is None else Judged("unknown", "no GPU can be asked")
    runtime, built = found.gpus.driver_runtime, found.software.torch_cuda
    is_amd = any(gpu.vendor == "amd" for gpu in found.gpus.gpus)
    name = "ROCm" if is_amd else "CUDA"
    text = f"driver {found.gpus.driver}" + (f", up to {name} {runtime}" if runtime else "")
    if not is_amd and built and runtime and _number(built)[0] > _number(runtime)[0]:
        fix = f"update the driver, or install a torch built for CUDA {_number(runtime)[0]}"
        return Judged("fail", f"{text}; torch was built for CUDA {built}", fix)
    return Judged("pass", text)


def judge_software(found: Readings) -> Judged:
    software, used = found.software, used_gpus(found.gpus)
    if software.torch is None:
        return Judged("fail", f"Python {software.python} without torch", "make setup, or pip install torch")
    built = f"CUDA {software.torch_cuda}" if software.torch_cuda else ""
    built = f"ROCm {software.torch_hip}" if software.torch_hip else built
    text = f"Python {software.python}, torch {software.torch}" + (f" for {built}" if built else "")
    text += f", triton {software.triton}" if software.triton else ", no triton"
    serves = {"nvidia": software.torch_cuda, "amd": software.torch_hip}
    if used and not serves[used[0].vendor]:
        fix = "install a torch built for CUDA or ROCm (pytorch.org says how)"
        return Judged("fail", f"{text}: this torch sees no {used[0].name}", fix)
    first, last = TORCH_TESTED
    if not first <= _number(software.torch) <= last:
        fix = f"pip install 'torch>={first[0]}.{first[1]},<{last[0]}.{last[1] + 1}'"
        return Judged("warn", f"{text}; tested are torch {first[0]}.{first[1]} to {last[0]}.{last[1]}", fix)
    if software.triton is None:
        return Judged("warn", text, "pip install triton: most submissions need it")
    return Judged("pass", text)


def judge_clocks(found: Readings) -> Judged:
    def judge(clocks: Clocks) -> tuple[Status, str]:
        return "pass", ""  # low clocks mean nothing while a GPU idles; what holds them down is the next check

    def describe(all_clocks: list[Clocks]) -> str:
        sm, memory = [one.sm_mhz for one in all_clocks], [one.memory_mhz for one in all_clocks]
        most, memory_most = [one.sm_max_mhz for one in all_clocks], [one.memory_max_mhz for one in all_clocks]
        idle = " (idling)" if min(sm) < FULL_CLOCK * max(most) else ""
        return f"SM {_range(sm)} of {_range(most)} MHz, memory {_range(memory)} of {_range(memory_most)} MHz{idle}"

    return _each(found, lambda gpu: gpu.clocks, judge, describe)


def judge_throttling(found: Readings) -> Judged:
    def judge(reasons: tuple[str, ...]) -> tuple[Status, str]:
        active = [reason for reason in reasons if reason not in NOT_THROTTLING]
        if any(reason in HARD_THROTTLING for reason in active):
            return "fail", "check cooling and power supply; use other GPUs (CUDA_VISIBLE_DEVICES) until it is gone"
        if "application clocks" in active:
            return "warn", "nvidia-smi -rac and -rgc take clock limits away (the machine's owner decides)"
        return ("warn", "let the GPUs cool and idle, then look again") if active else ("pass", "")

    def describe(all_reasons: list[tuple[str, ...]]) -> str:
        names = dict.fromkeys(reason for reasons in all_reasons for reason in reasons)
        return ", ".join(reason for reason in names if reason not in NOT_THROTTLING) or "none"

    return _each(found, lambda gpu: gpu.throttling, judge, describe)


def judge_temperature(found: Readings) -> Judged:
    def judge(heat: Heat) -> tuple[Status, str]:
        if isinstance(heat.slowdown_c, Unread):
            near, at = float(HOT_C), float("inf")
        else:
            near, at = heat.slowdown_c - NEAR_SLOWDOWN_C, heat.slowdown_c
        if heat.temperature_c >= at:
            return "fail", "the GPU slows itself down: check its cooling"
        return ("warn", "let it cool; check fans and air flow") if heat.temperature_c >= near else ("pass", "")

    def describe(heats: list[Heat]) -> str:
        slowdowns = [heat.slowdown_c for heat in heats if not isinstance(heat.slowdown_c, Unread)]
        text = f"{_range([heat.temperature_c for heat in heats])} C"
        return text + (f" (slows down at {_range(slowdowns)} C)" if slowdowns else "")

    return _each(found, lambda gpu: gpu.heat, judge, describe)


def judge_power(found: Readings) -> Judged:
    def judge(power: Power) -> tuple[Status, str]:
        if power.limit_w < 0.99 * power.default_limit_w:
            return "warn", f"nvidia-smi -pl {power.default_limit_w:.0f} restores the default (the owner decides)"
        if power.draw_w > FULL_POWER * power.limit_w:
            return "warn", "the GPU is at its power limit before anything is measured: see who uses it"
        return "pass", ""

    def describe(powers: list[Power]) -> str:
        defaults, limits = [power.default_limit_w for power in powers], [power.limit_w for power in powers]
        text = f"{_range([power.draw_w for power in powers])} of {_range(limits)} W"
        return text if limits == defaults else f"{text}, by default {_range(defaults)} W"

    return _each(found, lambda gpu: gpu.power, judge, describe)


def judge_ecc(found: Readings) -> Judged:
    def judge(ecc: Ecc) -> tuple[Status, str]:
        if not isinstance(ecc.uncorrected, Unread) and ecc.uncorrected > 0:
            return "fail", "results cannot be trusted: reset the GPU, and have it looked at if that does not help"
        if not ecc.enabled:
            return "warn", "nvidia-smi -e 1 and a reset turn it on: without it memory errors go unnoticed"
        return "pass", ""

    def describe(eccs: list[Ecc]) -> str:
        counts = [ecc.uncorrected for ecc in eccs if not isinstance(ecc.uncorrected, Unread)]
        words = "on" if all(ecc.enabled for ecc in eccs) else "off" if not any(e.enabled for e in eccs) else "mixed"
        return f"{words}, {_range(counts)} uncorrected errors" if counts else words

    return _each(found, lambda gpu: gpu.ecc, judge, describe)


def judge_partition(found: Readings) -> Judged:
    def judge(partition: str) -> tuple[Status, str]:
        if partition == "MIG":
            return "fail", "nvidia-smi -mig 0 (the owner decides): slices of a GPU cannot form a group of ranks"
        if partition != "none":
            return "warn", "amd-smi set --compute-partition SPX makes it whole again (the owner decides)"
        return "pass", ""

    return _each(found, lambda gpu: gpu.partition, judge, lambda words: ", ".join(dict.fromkeys(words)))


def judge_compute_mode(found: Readings) -> Judged:
    def judge(mode: str) -> tuple[Status, str]:
        if mode == "default":
            return "pass", ""
        return "fail", "nvidia-smi -c DEFAULT (the owner decides): a trusted and a candidate rank share each GPU"

    return _each(found, lambda gpu: gpu.compute_mode, judge, lambda words: ", ".join(dict.fromkeys(words)))


def judge_persistence(found: Readings) -> Judged:
    def judge(persistent: bool) -> tuple[Status, str]:
        if persistent:
            return "pass", ""
        return "warn", "nvidia-smi -pm 1 (the owner decides): else the driver reloads and clocks drop between runs"

    return _each(found, lambda gpu: gpu.persistent, judge, lambda values: "on" if values[0] else "off")


def judge_gpu_processes(found: Readings) -> Judged:
    def judge(usage: Usage) -> tuple[Status, str]:
        if usage.processes:
            return "warn", "wait for them, end them, or use other GPUs (CUDA_VISIBLE_DEVICES)"
        if usage.memory_bytes > FOREIGN_BYTES or usage.busy_percent > FOREIGN_BUSY_PERCENT:
            return "warn", "somebody who is not visible from here uses it: another container, or another machine"
        return "pass", ""

    def describe(usages: list[Usage]) -> str:
        processes = dict.fromkeys(one for usage in usages for one in usage.processes)
        names = dict.fromkeys(f"{one.name} ({one.pid})" for one in processes)
        memory, busy = max(usage.memory_bytes for usage in usages), max(usage.busy_percent for usage in usages)
        if not names and memory <= FOREIGN_BYTES and busy <= FOREIGN_BUSY_PERCENT:
            return "none"
        return f"{_some(list(names)) or 'none visible'}, up to {memory / GIB:.1f} GiB and {busy} % busy"

    return _each(found, lambda gpu: gpu.usage, judge, describe)


def judge_p2p(found: Readings) -> Judged:
    if not isinstance(found.gpus, Gpus):
        return NO_GPU if found.gpus is None else Judged("unknown", "no GPU can be asked")
    pairs = found.gpus.pairs
    if isinstance(pairs, Unread):
        return Judged("unknown", f"cannot be read: {pairs.why}")
    pairs = tuple(pair for pair in pairs if {pair.a, pair.b} <= set(found.gpus.visible))
    if not pairs:
        return Judged("pass", "one GPU has no peer")
    apart = [f"{pair.a}-{pair.b}" for pair in pairs if not pair.reaches]
    atomics = sum(pair.atomics for pair in pairs)
    if apart:
        fix = "kernels that write to peers cannot run and NCCL goes through the host: check IOMMU, ACS and MIG"
        return Judged("warn", f"{len(apart)} of {len(pairs)} pairs do not reach each other: {_some(apart)}", fix)
    return Judged("pass", f"all {len(pairs)} pairs reach each other, {atomics or 'none'} with atomics")


def judge_links(found: Readings) -> Judged:
    if not isinstance(found.gpus, Gpus):
        return NO_GPU if found.gpus is None else Judged("unknown", "no GPU can be asked")
    used, pairs = used_gpus(found.gpus), found.gpus.pairs
    known = [(gpu.index, gpu.nvlinks) for gpu in used if not isinstance(gpu.nvlinks, Unread)]
    links = [one for _, one in known if one.present]
    down = [index for index, one in known if one.active < one.present]
    nvlink = ""
    if links:
        version = links[0].version
        nvlink = f"{_range([one.active for one in links])} NVLinks a GPU" + (f", version {version}" if version else "")
    if down:
        text = f"{nvlink}; some are down on {_gpus(down)}"
        return Judged("warn", text, "check fabric manager and `nvidia-smi nvlink -s`")
    if isinstance(pairs, Unread):
        return Judged("pass", nvlink) if nvlink else Judged("unknown", f"cannot be read: {pairs.why}")
    pairs = tuple(pair for pair in pairs if {pair.a, pair.b} <= set(found.gpus.visible))
    paths = Counter(pair.path for pair in pairs)
    between = ", ".join(f"{count} pairs by {path}" for path, count in paths.most_common())
    text = "; ".join(part for part in (nvlink, between) if part) or "one GPU has no peer"
    if len(paths) > 1:
        return Judged("warn", text, "choose GPUs that are linked alike (CUDA_VISIBLE_DEVICES; nvidia-smi topo -m)")
    if pairs and not nvlink and "xGMI" not in paths and "NVLink" not in paths:
        return Judged("warn", text, "PCIe is all there is between them: compare times with such machines only")
    return Judged("pass", text)


def judge_pcie(found: Readings) -> Judged:
    def judge(pcie: Pcie) -> tuple[Status, str]:
        if pcie.width < pcie.max_width:
            return "warn", "the slot or riser gives fewer lanes than the GPU has: reseat it, or use other GPUs"
        return "pass", ""

    def describe(all_pcie: list[Pcie]) -> str:
        widths, most = [one.width for one in all_pcie], [one.max_width for one in all_pcie]
        return (
            f"{_range(widths)} of {_range(most)} lanes, up to generation {_range([p.max_generation for p in all_pcie])}"
        )

    return _each(found, lambda gpu: gpu.pcie, judge, describe)


# ---- judges: the host --------------------------------------------------------------------------------------------
def judge_collectives(found: Readings) -> Judged:
    ran = found.smoke
    if isinstance(ran, Unread):
        return Judged("unknown", ran.why)
    if isinstance(ran, SmokeFailed):
        return Judged("fail", ran.why, "NCCL_DEBUG=INFO python -m harness doctor --smoke says more")
    text = (
        f"{ran.backend} on {ran.world_size} ranks, {ran.nbytes / 2**20:.0f} MiB: all-reduce "
        f"{ran.all_reduce_bytes_per_s / 1e9:.3g} GB/s, all-gather {ran.all_gather_bytes_per_s / 1e9:.3g} GB/s a rank"
    )
    expected = found.link_bytes_per_s
    if ran.backend == "gloo" or expected is None or ran.world_size == 1:
        return Judged("pass", text)
    text += f" (links: {expected / 1e9:.0f})"
    if ran.all_gather_bytes_per_s < SLOW_LINKS * expected:
        return Judged("warn", text, "far below the links: see p2p and links above, and NCCL_DEBUG=INFO")
    return Judged("pass", text)


def judge_cores(found: Readings) -> Judged:
    if isinstance(found.cpus, Unread):
        return Judged("unknown", found.cpus.why)
    cpus, gpus_used = found.cpus, len(used_gpus(found.gpus))
    text = f"{cpus.allowed} of {cpus.present} cores, {cpus.model}"
    if cpus.allowed < CORES_A_GPU * gpus_used:
        fix = f"{CORES_A_GPU} cores a GPU keep launches from waiting: widen the affinity, or use fewer GPUs"
        return Judged("warn", text, fix)
    return Judged("pass", text)


def judge_quota(found: Readings) -> Judged:
    if isinstance(found.cpus, Unread):
        return Judged("unknown", found.cpus.why)
    quota = found.cpus.quota_cores
    if quota is None:
        return Judged("pass", "none")
    text = f"{quota:g} cores' worth of time on {found.cpus.allowed} cores"
    if quota < found.cpus.allowed:
        fix = "ranks are stopped when the share is used up: give the container whole cores (--cpuset-cpus)"
        return Judged("warn", text, fix)
    return Judged("pass", text)


def judge_governor(found: Readings) -> Judged:
    if isinstance(found.governors, Unread):
        return Judged("unknown", found.governors.why)
    text = ", ".join(found.governors)
    if found.governors == ("performance",):
        return Judged("pass", text)
    return Judged("warn", text, "cpupower frequency-set -g performance: cores take time to speed up after a wait")


def judge_load(found: Readings) -> Judged:
    if isinstance(found.load, Unread):
        return Judged("unknown", found.load.why)
    count = found.cpus.allowed if not isinstance(found.cpus, Unread) else 1
    text = f"{found.load:.2f} over the last minute, on {count} cores"
    if found.load > BUSY_LOAD * count:
        return Judged("warn", text, "others compute here: wait until they are done (top shows them)")
    return Judged("pass", text)


def judge_memory(found: Readings) -> Judged:
    if isinstance(found.memory, Unread):
        return Judged("unknown", found.memory.why)
    memory, used = found.memory, len(used_gpus(found.gpus))
    needed = max(CPU_RANKS_GIB, 2 * RANK_GIB * used) * GIB
    text = f"{memory.available_bytes / GIB:.1f} of {memory.total_bytes / GIB:.1f} GiB available"
    if memory.available_bytes < needed:
        fix = f"three groups of ranks take about {needed / GIB:.0f} GiB: free memory, or use fewer ranks (--ranks)"
        return Judged("fail" if memory.available_bytes < needed / 4 else "warn", text, fix)
    return Judged("pass", text)


def judge_shm(found: Readings) -> Judged:
    if isinstance(found.shm, Unread):
        return Judged("unknown", found.shm.why)
    text = f"{_size(found.shm.free_bytes)} of {_size(found.shm.total_bytes)} free"
    if found.shm.free_bytes < SHM_BYTES:
        return Judged("warn", text, "give the container more (docker run --shm-size=8g), or remove what lies there")
    return Judged("pass", text)


def judge_numa(found: Readings) -> Judged:
    if isinstance(found.numa, Unread):
        return Judged("unknown", found.numa.why)
    nodes = f"{found.numa.nodes} node" + ("" if found.numa.nodes == 1 else "s")
    if found.numa.balancing and found.numa.nodes > 1:
        fix = "sysctl kernel.numa_balancing=0: the kernel stops to move pages while ranks run"
        return Judged("warn", f"on, {nodes}", fix)
    return Judged("pass", f"{'on' if found.numa.balancing else 'off'}, {nodes}")


def judge_huge_pages(found: Readings) -> Judged:
    if isinstance(found.huge_pages, Unread):
        return Judged("unknown", found.huge_pages.why)
    if found.huge_pages == "always":
        fix = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: first touches vary less"
        return Judged("warn", "always", fix)
    return Judged("pass", found.huge_pages)


def judge_aslr(found: Readings) -> Judged:
    if isinstance(found.aslr, Unread):
        return Judged("unknown", found.aslr.why)
    words = {0: "off", 1: "partial", 2: "full"}.get(found.aslr, str(found.aslr))
    if found.aslr != 2:
        fix = "sysctl kernel.randomize_va_space=2: else every run has the same layout, and the spread looks too small"
        return Judged("warn", words, fix)
    return Judged("pass", words)


def judge_open_files(found: Readings) -> Judged:
    if isinstance(found.open_files, Unread):
        return Judged("unknown", found.open_files.why)
    soft, hard = found.open_files.soft, found.open_files.hard
    text = "no limit" if soft >= UNLIMITED else f"up to {soft}"
    if soft < FILES_ENOUGH:
        fix = f"ulimit -n {min(hard, 4 * FILES_ENOUGH)}: a group of 8 ranks needs a few hundred"
        return Judged("fail" if soft < FILES_LEAST else "warn", text, fix)
    return Judged("pass", text)


CHECKS: list[tuple[str, Callable[[Readings], Judged]]] = [
    ("GPUs", judge_count),
    ("driver", judge_driver),
    ("software", judge_software),
    ("clocks", judge_clocks),
    ("throttling", judge_throttling),
    ("temperature", judge_temperature),
    ("power", judge_power),
    ("ECC", judge_ecc),
    ("MIG", judge_partition),
    ("compute mode", judge_compute_mode),
    ("persistence", judge_persistence),
    ("GPU processes", judge_gpu_processes),
    ("P2P", judge_p2p),
    ("links", judge_links),
    ("PCIe", judge_pcie),
    ("collectives", judge_collectives),
    ("CPU cores", judge_cores),
    ("CPU quota", judge_quota),
    ("CPU governor", judge_governor),
    ("load", judge_load),
    ("memory", judge_memory),
    ("/dev/shm", judge_shm),
    ("NUMA balancing", judge_numa),
    ("huge pages", judge_huge_pages),
    ("ASLR", judge_aslr),
    ("open files", judge_open_files),
]


# ---- words -------------------------------------------------------------------------------------------------------
def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return low if low == high else f"{low} to {high}"


def _gpus(indices: Sequence[int]) -> str:
    """`GPU 3`, `GPUs 0-2, 5`"""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    words = ", ".join(f"{one[0]}" if len(one) == 1 else f"{one[0]}-{one[-1]}" for one in runs)
    return f"GPU{'' if len(indices) == 1 else 's'} {words}"


def _some(words: Sequence[str], most: int = 6) -> str:
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def _size(nbytes: int) -> str:
    return f"{nbytes / GIB:.1f} GiB" if nbytes >= GIB else f"{nbytes / 2**20:.0f} MiB"


def _number(version: str) -> tuple[int, int]:
    """The first two numbers of a version: 2.13.0+cu130 is (2, 13)."""
    numbers = [int(word) for word in re.findall(r"\d+", version)[:2]] + [0, 0]
    return numbers[0], numbers[1]
