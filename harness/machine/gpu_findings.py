"""Checks of the GPUs: pure functions over `Readings`, a result each. No fix is ever carried out."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from harness.core.words import count_text, numbered_text
from harness.machine.findings import GIB, NO_GPU, ORDER, CheckResult, Status, of_reading, used_gpus, version_numbers
from harness.machine.readings import NOT_THROTTLING, Clocks, Ecc, Gpu, Gpus, Heat, Pcie, Power, Readings, Unread, Usage

NEAR_SLOWDOWN_C = 10  # degrees below the slowdown from which on a GPU is called hot
HOT_C = 85  # where the GPU does not tell its slowdown
FULL_CLOCK = 0.9  # of the maximum
FULL_POWER = 0.95  # of the limit
FOREIGN_BYTES = 2 * GIB  # a driver keeps up to about 1 GiB of a GPU's memory for itself
FOREIGN_BUSY_PERCENT = 5
HARD_THROTTLING = ("hardware slowdown", "hardware thermal slowdown", "power brake")
MOST_WORDS = 6
T = TypeVar("T")


def _asked(found: Readings) -> Gpus | Unread:
    if isinstance(found.gpus, Gpus):
        return found.gpus
    return Unread(why=NO_GPU.found if found.gpus is None else "no GPU can be asked")


def _each(
    found: Readings,
    pick: Callable[[Gpu], T | Unread],
    rate: Callable[[T], tuple[Status, str]] | None,
    describe: Callable[[list[T]], str],
) -> CheckResult:
    """Checks one reading of every usable GPU: `rate` gives status and fix (None: all pass), `describe` words for GPUs
    that have both in common. The worst comes first and decides."""
    if not (used := used_gpus(found.gpus)):
        return NO_GPU if found.gpus is None else CheckResult("unknown", "no GPU can be asked")
    groups: dict[tuple[Status, str], list[tuple[int, T]]] = {}
    unread: dict[str, list[int]] = {}
    for gpu in used:
        value = pick(gpu)
        if isinstance(value, Unread):
            unread.setdefault(value.why, []).append(gpu.index)
        else:
            groups.setdefault(rate(value) if rate else ("pass", ""), []).append((gpu.index, value))
    parts = [
        (status, fix, [index for index, _ in members], describe([value for _, value in members]))
        for (status, fix), members in groups.items()
    ]
    parts += [("unknown", "", indices, f"cannot be read: {why}") for why, indices in unread.items()]
    parts.sort(key=lambda part: ORDER.index(part[0]))
    words = (f"{numbered_text('GPU', indices)}: {text}" if len(parts) > 1 else text for _, _, indices, text in parts)
    return CheckResult(parts[0][0], "; ".join(words), parts[0][1])


def _unless(good: T, status: Status, fix: str) -> Callable[[T], tuple[Status, str]]:
    """Rates every reading but the good one by that status."""
    return lambda value: ("pass", "") if value == good else (status, fix)


def check_count(found: Readings) -> CheckResult:
    if found.gpus is None:
        return CheckResult("pass", "no GPU: ranks run on CPU cores")
    if isinstance(found.gpus, Unread):
        fix = "install the driver's libraries and nvidia-ml-py (NVIDIA) or amdsmi (AMD) for this Python"
        return CheckResult("unknown", f"there are GPUs that cannot be asked: {found.gpus.why}", fix)
    used, present = used_gpus(found.gpus), len(found.gpus.gpus)
    models = Counter(gpu.name for gpu in used)
    text = ", ".join(f"{count} x {name}" for name, count in models.items()) or "none"
    text += f" (of {present}; the environment hides the rest)" if len(used) < present else ""
    if not used:
        return CheckResult("fail", f"{present} GPUs, of which the environment shows none", "unset CUDA_VISIBLE_DEVICES")
    if len(models) > 1:
        return CheckResult(
            "warn", text, "show only GPUs of one model (CUDA_VISIBLE_DEVICES): the slowest sets the pace"
        )
    if len(used) == 1:
        return CheckResult("warn", text, "ranks need a GPU each: only one rank runs here, or several on --device cpu")
    return CheckResult("pass", text)


@of_reading(_asked)
def check_driver(gpus: Gpus, found: Readings) -> CheckResult:
    runtime, built = gpus.driver_runtime, found.software.torch_cuda
    is_amd = any(gpu.vendor == "amd" for gpu in gpus.gpus)
    name = "ROCm" if is_amd else "CUDA"
    text = f"driver {gpus.driver}" + (f", up to {name} {runtime}" if runtime else "")
    if not is_amd and built and runtime and version_numbers(built)[0] > version_numbers(runtime)[0]:
        fix = f"update the driver, or install a torch built for CUDA {version_numbers(runtime)[0]}"
        return CheckResult("fail", f"{text}; torch was built for CUDA {built}", fix)
    return CheckResult("pass", text)


def check_clocks(found: Readings) -> CheckResult:
    # Low clocks mean nothing while a GPU idles; what holds them down is the next check.
    def describe(all_clocks: list[Clocks]) -> str:
        sm, memory = [one.sm_mhz for one in all_clocks], [one.memory_mhz for one in all_clocks]
        most, memory_most = [one.sm_max_mhz for one in all_clocks], [one.memory_max_mhz for one in all_clocks]
        idle = " (idling)" if min(sm) < FULL_CLOCK * max(most) else ""
        return f"SM {span(sm)} of {span(most)} MHz, memory {span(memory)} of {span(memory_most)} MHz{idle}"

    return _each(found, lambda gpu: gpu.clocks, None, describe)


def check_throttling(found: Readings) -> CheckResult:
    def rate(reasons: tuple[str, ...]) -> tuple[Status, str]:
        active = [reason for reason in reasons if reason not in NOT_THROTTLING]
        if any(reason in HARD_THROTTLING for reason in active):
            return "fail", "check cooling and power supply; use other GPUs (CUDA_VISIBLE_DEVICES) until it is gone"
        if "application clocks" in active:
            return "warn", "nvidia-smi -rac and -rgc take clock limits away (the machine's owner decides)"
        return ("warn", "let the GPUs cool and idle, then look again") if active else ("pass", "")

    def describe(all_reasons: list[tuple[str, ...]]) -> str:
        names = dict.fromkeys(reason for reasons in all_reasons for reason in reasons)
        return ", ".join(reason for reason in names if reason not in NOT_THROTTLING) or "none"

    return _each(found, lambda gpu: gpu.throttling, rate, describe)


def check_temperature(found: Readings) -> CheckResult:
    def rate(heat: Heat) -> tuple[Status, str]:
        if isinstance(heat.slowdown_c, Unread):
            near, at = float(HOT_C), float("inf")
        else:
            near, at = heat.slowdown_c - NEAR_SLOWDOWN_C, heat.slowdown_c
        if heat.temperature_c >= at:
            return "fail", "the GPU slows itself down: check its cooling"
        return ("warn", "let it cool; check fans and air flow") if heat.temperature_c >= near else ("pass", "")

    def describe(heats: list[Heat]) -> str:
        slowdowns = [heat.slowdown_c for heat in heats if not isinstance(heat.slowdown_c, Unread)]
        text = f"{span([heat.temperature_c for heat in heats])} C"
        return text + (f" (slows down at {span(slowdowns)} C)" if slowdowns else "")

    return _each(found, lambda gpu: gpu.heat, rate, describe)


def check_power(found: Readings) -> CheckResult:
    def rate(power: Power) -> tuple[Status, str]:
        if power.limit_w < 0.99 * power.default_limit_w:
            return "warn", f"nvidia-smi -pl {power.default_limit_w:.0f} restores the default (the owner decides)"
        if power.draw_w > FULL_POWER * power.limit_w:
            return "warn", "the GPU is at its power limit before anything is measured: see who uses it"
        return "pass", ""

    def describe(powers: list[Power]) -> str:
        defaults, limits = [power.default_limit_w for power in powers], [power.limit_w for power in powers]
        text = f"{span([power.draw_w for power in powers])} of {span(limits)} W"
        return text if limits == defaults else f"{text}, by default {span(defaults)} W"

    return _each(found, lambda gpu: gpu.power, rate, describe)


def check_ecc(found: Readings) -> CheckResult:
    def rate(ecc: Ecc) -> tuple[Status, str]:
        if not isinstance(ecc.uncorrected, Unread) and ecc.uncorrected > 0:
            return "fail", "results cannot be trusted: reset the GPU, and have it looked at if that does not help"
        if not ecc.enabled:
            return "warn", "nvidia-smi -e 1 and a reset turn it on: without it memory errors go unnoticed"
        return "pass", ""

    def describe(eccs: list[Ecc]) -> str:
        counts = [ecc.uncorrected for ecc in eccs if not isinstance(ecc.uncorrected, Unread)]
        words = "on" if all(ecc.enabled for ecc in eccs) else "off" if not any(e.enabled for e in eccs) else "mixed"
        return f"{words}, {span(counts)} uncorrected errors" if counts else words

    return _each(found, lambda gpu: gpu.ecc, rate, describe)


def check_partition(found: Readings) -> CheckResult:
    def rate(partition: str) -> tuple[Status, str]:
        if partition == "MIG":
            return "fail", "nvidia-smi -mig 0 (the owner decides): slices of a GPU cannot form a group of ranks"
        if partition != "none":
            return "warn", "amd-smi set --compute-partition SPX makes it whole again (the owner decides)"
        return "pass", ""

    return _each(found, lambda gpu: gpu.partition, rate, lambda words: ", ".join(dict.fromkeys(words)))


def check_compute_mode(found: Readings) -> CheckResult:
    fix = "nvidia-smi -c DEFAULT (the owner decides): a trusted and a candidate rank share each GPU"
    rate = _unless("default", "fail", fix)
    return _each(found, lambda gpu: gpu.compute_mode, rate, lambda words: ", ".join(dict.fromkeys(words)))


def check_persistence(found: Readings) -> CheckResult:
    fix = "nvidia-smi -pm 1 (the owner decides): else the driver reloads and clocks drop between runs"
    rate = _unless(True, "warn", fix)
    return _each(found, lambda gpu: gpu.persistent, rate, lambda values: "on" if values[0] else "off")


def check_gpu_processes(found: Readings) -> CheckResult:
    def rate(usage: Usage) -> tuple[Status, str]:
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
        return f"{some_of(list(names)) or 'none visible'}, up to {memory / GIB:.1f} GiB and {busy} % busy"

    return _each(found, lambda gpu: gpu.usage, rate, describe)


@of_reading(_asked)
def check_p2p(gpus: Gpus, found: Readings) -> CheckResult:
    pairs = gpus.pairs
    if isinstance(pairs, Unread):
        return CheckResult("unknown", f"cannot be read: {pairs.why}")
    pairs = tuple(pair for pair in pairs if {pair.a, pair.b} <= set(gpus.visible))
    if not pairs:
        return CheckResult("pass", "one GPU has no peer")
    apart = [f"{pair.a}-{pair.b}" for pair in pairs if not pair.reaches]
    atomics = sum(pair.atomics for pair in pairs)
    if apart:
        fix = "kernels that write to peers cannot run and NCCL goes through the host: check IOMMU, ACS and MIG"
        return CheckResult("warn", f"{len(apart)} of {len(pairs)} pairs do not reach each other: {some_of(apart)}", fix)
    if len(pairs) == 1:
        return CheckResult("pass", f"both reach each other, {'with' if atomics else 'without'} atomics")
    return CheckResult("pass", f"all {len(pairs)} pairs reach each other, {atomics or 'none'} with atomics")


@of_reading(_asked)
def check_links(gpus: Gpus, found: Readings) -> CheckResult:
    used, pairs = used_gpus(gpus), gpus.pairs
    known = [(gpu.index, gpu.nvlinks) for gpu in used if not isinstance(gpu.nvlinks, Unread)]
    links = [one for _, one in known if one.present]
    down = [index for index, one in known if one.active < one.present]
    nvlink = ""
    if links:
        version = links[0].version
        nvlink = f"{span([one.active for one in links])} NVLinks a GPU" + (f", version {version}" if version else "")
    if down:
        text = f"{nvlink}; some are down on {numbered_text('GPU', down)}"
        return CheckResult("warn", text, "check fabric manager and `nvidia-smi nvlink -s`")
    if isinstance(pairs, Unread):
        return CheckResult("pass", nvlink) if nvlink else CheckResult("unknown", f"cannot be read: {pairs.why}")
    pairs = tuple(pair for pair in pairs if {pair.a, pair.b} <= set(gpus.visible))
    paths = Counter(pair.path for pair in pairs)
    between = ", ".join(f"{count_text(count, 'pair')} by {path}" for path, count in paths.most_common())
    text = "; ".join(part for part in (nvlink, between) if part) or "one GPU has no peer"
    if len(paths) > 1:
        return CheckResult("warn", text, "choose GPUs that are linked alike (CUDA_VISIBLE_DEVICES; nvidia-smi topo -m)")
    if pairs and not nvlink and "xGMI" not in paths and "NVLink" not in paths:
        return CheckResult("warn", text, "PCIe is all there is between them: compare times with such machines only")
    return CheckResult("pass", text)


def check_pcie(found: Readings) -> CheckResult:
    def rate(pcie: Pcie) -> tuple[Status, str]:
        if pcie.width < pcie.max_width:
            return "warn", "the slot or riser gives fewer lanes than the GPU has: reseat it, or use other GPUs"
        return "pass", ""

    def describe(all_pcie: list[Pcie]) -> str:
        widths, most = [one.width for one in all_pcie], [one.max_width for one in all_pcie]
        return f"{span(widths)} of {span(most)} lanes, up to generation {span([p.max_generation for p in all_pcie])}"

    return _each(found, lambda gpu: gpu.pcie, rate, describe)


# ---- words -------------------------------------------------------------------------------------------------------
def span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return low if low == high else f"{low} to {high}"


def some_of(words: Sequence[str]) -> str:
    more = len(words) - MOST_WORDS
    return ", ".join(words[:MOST_WORDS]) + (f" and {more} more" if more > 0 else "")
