"""The machine's GPUs as NVML (NVIDIA) or AMD SMI show them.

The only module beside sampler that knows these libraries; both are modules handed in as `nvml` and `smi`, so that
tests bring a fake. Reads, never changes a setting; does not import torch.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.machine import host
from harness.machine.readings import (
    Clocks,
    Ecc,
    Gpu,
    Gpus,
    Heat,
    NvLinks,
    Pair,
    Pcie,
    Power,
    Process,
    Unread,
    Usage,
    attempt,
    module,
    printable,
)

# nvml.h, nvmlClocksEventReasons (read 2026-11-20); several can hold at once
THROTTLE_REASONS = {
    0x001: "idle",
    0x002: "application clocks",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "power brake",
    0x100: "display clock",
    0x200: "board limit",
    0x400: "reliability",
}
COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}  # nvml.h, as the next
TOPOLOGY = {0: "one board", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}  # names as nvidia-smi topo -m
NVLINK_VERSIONS = {1: "1", 2: "2", 3: "2.2", 4: "3", 5: "3.1", 6: "4", 7: "5", 8: "6"}  # nvmlNvlinkVersion_t
P2P_READ, P2P_WRITE, P2P_NVLINK, P2P_ATOMICS = 0, 1, 2, 3  # nvmlGpuP2PCapsIndex_t; nvidia-ml-py has READ as a tuple
CLOCK_SM, CLOCK_MEMORY = 1, 2  # nvmlClockType_t
MICROWATTS_FROM = 10_000  # no GPU draws 10 kW: amdsmi gives power caps in W or uW, by version
MILLIDEGREES_FROM = 1_000


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
    """What the machine's GPUs are called; empty where there are none or none can be asked."""
    found = read_gpus()
    return tuple(gpu.name for gpu in found.gpus) if isinstance(found, Gpus) else ()


def visible(uuids: Sequence[str], text: str | None) -> tuple[int, ...]:
    """The indices that a `CUDA_VISIBLE_DEVICES` leaves, in its order; as CUDA reads it, the first entry that names
    no GPU ends the list. Without the variable (None), all."""
    if text is None:
        return tuple(range(len(uuids)))
    found: list[int] = []
    for word in (word.strip() for word in text.split(",")):
        if word.isdigit() and int(word) < len(uuids):
            found.append(int(word))
        elif word and not word.isdigit() and sum(uuid.startswith(word) for uuid in uuids) == 1:
            found.append(next(index for index, uuid in enumerate(uuids) if uuid.startswith(word)))
        else:
            break
    return tuple(found)


def read_nvidia(nvml: Any, environ: Mapping[str, str]) -> Gpus | Unread:
    """Every GPU that NVML (`nvml`: the module pynvml) knows."""

    def read() -> Gpus:
        nvml.nvmlInit()
        try:
            handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
            gpus = tuple(_nvidia_gpu(nvml, index, handle) for index, handle in enumerate(handles))
            cuda = attempt(nvml.nvmlSystemGetCudaDriverVersion)
            return Gpus(
                gpus=gpus,
                visible=visible([gpu.uuid for gpu in gpus], environ.get("CUDA_VISIBLE_DEVICES")),
                pairs=attempt(lambda: _nvidia_pairs(nvml, handles)),
                driver=_text(nvml.nvmlSystemGetDriverVersion()),
                driver_runtime="" if isinstance(cuda, Unread) else f"{cuda // 1000}.{cuda % 1000 // 10}",
            )
        finally:
            nvml.nvmlShutdown()

    return attempt(read)


def _nvidia_gpu(nvml: Any, index: int, handle: Any) -> Gpu:
    def heat() -> Heat:
        return Heat(
            temperature_c=nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            slowdown_c=attempt(
                lambda: nvml.nvmlDeviceGetTemperatureThreshold(handle, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
            ),
        )

    def ecc() -> Ecc:
        uncorrected, since_load = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        return Ecc(
            enabled=bool(nvml.nvmlDeviceGetEccMode(handle)[0]),
            uncorrected=attempt(lambda: int(nvml.nvmlDeviceGetTotalEccErrors(handle, uncorrected, since_load))),
        )

    def partition() -> str:
        try:
            return "MIG" if nvml.nvmlDeviceGetMigMode(handle)[0] else "none"
        except nvml.NVMLError_NotSupported:  # a GPU that cannot be partitioned
            return "none"

    def usage() -> Usage:
        found = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return _usage(
            [(process.pid, process.usedGpuMemory or 0) for process in found],
            memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).used),
            busy_percent=int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
        )

    return Gpu(
        index=index,
        name=_text(nvml.nvmlDeviceGetName(handle)),
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        vendor="nvidia",
        clocks=attempt(
            lambda: Clocks(
                sm_mhz=nvml.nvmlDeviceGetClockInfo(handle, CLOCK_SM),
                sm_max_mhz=nvml.nvmlDeviceGetMaxClockInfo(handle, CLOCK_SM),
                memory_mhz=nvml.nvmlDeviceGetClockInfo(handle, CLOCK_MEMORY),
                memory_max_mhz=nvml.nvmlDeviceGetMaxClockInfo(handle, CLOCK_MEMORY),
            )
        ),
        throttling=attempt(lambda: throttle_reasons(nvml, handle)),
        heat=attempt(heat),
        power=attempt(
            lambda: Power(
                draw_w=nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
                limit_w=nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3,
                default_limit_w=nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1e3,
            )
        ),
        ecc=attempt(ecc),
        partition=attempt(partition),
        compute_mode=attempt(lambda: COMPUTE_MODES[nvml.nvmlDeviceGetComputeMode(handle)]),
        persistent=attempt(lambda: bool(nvml.nvmlDeviceGetPersistenceMode(handle))),
        usage=attempt(usage),
        pcie=attempt(
            lambda: Pcie(
                width=nvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
                max_width=nvml.nvmlDeviceGetMaxPcieLinkWidth(handle),
                max_generation=nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle),
            )
        ),
        nvlinks=attempt(lambda: _nvlinks(nvml, handle)),
    )


def throttle_reasons(nvml: Any, handle: Any) -> tuple[str, ...]:
    """Why the GPU's clocks are not higher right now; `idle` is one of the reasons."""
    try:
        bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except (AttributeError, nvml.NVMLError):  # the name that drivers and nvidia-ml-py had before 535
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return tuple(reason for bit, reason in THROTTLE_REASONS.items() if bits & bit)


def _nvlinks(nvml: Any, handle: Any) -> NvLinks:
    states: list[bool] = []
    version = ""
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        state = attempt(lambda link=link: bool(nvml.nvmlDeviceGetNvLinkState(handle, link)))  # type: ignore[misc]
        if isinstance(state, Unread):  # this GPU has no such link
            continue
        states.append(state)
        if state and not version:
            number = attempt(lambda link=link: nvml.nvmlDeviceGetNvLinkVersion(handle, link))  # type: ignore[misc]
            version = "" if isinstance(number, Unread) else NVLINK_VERSIONS.get(number, "")
    return NvLinks(active=sum(states), present=len(states), version=version)


def _nvidia_pairs(nvml: Any, handles: Sequence[Any]) -> tuple[Pair, ...]:
    found = []
    for a, first in enumerate(handles):
        for b, second in list(enumerate(handles))[a + 1 :]:
            can = [nvml.nvmlDeviceGetP2PStatus(first, second, cap) == 0 for cap in (P2P_READ, P2P_WRITE)]
            extra = [
                attempt(lambda cap=cap, to=(first, second): nvml.nvmlDeviceGetP2PStatus(*to, cap) == 0)  # type: ignore[misc]
                for cap in (P2P_ATOMICS, P2P_NVLINK)
            ]
            level = attempt(lambda to=(first, second): nvml.nvmlDeviceGetTopologyCommonAncestor(*to))  # type: ignore[misc]
            path = "unknown" if isinstance(level, Unread) else TOPOLOGY.get(level, "unknown")
            path = "NVLink" if extra[1] is True else path
            found.append(Pair(a=a, b=b, reaches=all(can), atomics=extra[0] is True, path=path))
    return tuple(found)


def read_amd(smi: Any, environ: Mapping[str, str]) -> Gpus | Unread:
    """Every GPU that AMD SMI (`smi`: the module amdsmi) knows. Written from amdsmi 7.0's source; no machine with one
    was at hand, so what a version answers differently becomes an Unread."""

    def read() -> Gpus:
        smi.amdsmi_init(smi.AmdSmiInitFlags.INIT_AMD_GPUS)
        try:
            handles = list(smi.amdsmi_get_processor_handles())
            gpus = tuple(_amd_gpu(smi, index, handle) for index, handle in enumerate(handles))
            names = host.VISIBLE_DEVICES["rocm"]
            rocm = attempt(lambda: smi.amdsmi_get_rocm_version())
            driver = attempt(lambda: smi.amdsmi_get_gpu_driver_info(handles[0])["driver_version"])
            return Gpus(
                gpus=gpus,
                visible=visible(
                    [gpu.uuid for gpu in gpus], next((environ[name] for name in names if name in environ), None)
                ),
                pairs=attempt(lambda: _amd_pairs(smi, handles)),
                driver="unknown" if isinstance(driver, Unread) else _text(driver),
                driver_runtime=_text(rocm[1]) if not isinstance(rocm, Unread) and rocm[0] else "",
            )
        finally:
            smi.amdsmi_shut_down()

    return attempt(read)


def _amd_gpu(smi: Any, index: int, handle: Any) -> Gpu:
    def clocks() -> Clocks:
        sm = smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.GFX)
        memory = smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.MEM)
        return Clocks(
            sm_mhz=int(sm["clk"]),
            sm_max_mhz=int(sm["max_clk"]),
            memory_mhz=int(memory["clk"]),
            memory_max_mhz=int(memory["max_clk"]),
        )

    def throttling() -> tuple[str, ...]:
        found = smi.amdsmi_get_violation_status(handle)
        reasons = {
            "active_prochot_thrm": "hardware thermal slowdown",
            "active_socket_thrm": "hardware thermal slowdown",
            "active_vr_thrm": "hardware thermal slowdown",
            "active_hbm_thrm": "hardware thermal slowdown",
            "active_ppt_pwr": "power cap",
        }
        return tuple(dict.fromkeys(reason for key, reason in reasons.items() if found.get(key) is True))

    def celsius(metric: Any) -> float:
        value = float(smi.amdsmi_get_temp_metric(handle, smi.AmdSmiTemperatureType.HOTSPOT, metric))
        return value / 1e3 if value >= MILLIDEGREES_FROM else value

    def watts(value: Any) -> float:
        return float(value) / 1e6 if float(value) >= MICROWATTS_FROM else float(value)

    def power() -> Power:
        cap, now = smi.amdsmi_get_power_cap_info(handle), smi.amdsmi_get_power_info(handle)
        draws = (now.get(key, "N/A") for key in ("current_socket_power", "socket_power", "average_socket_power"))
        return Power(
            draw_w=watts(next(draw for draw in draws if draw != "N/A")),
            limit_w=watts(cap["power_cap"]),
            default_limit_w=watts(cap["default_power_cap"]),
        )

    def usage() -> Usage:
        found = smi.amdsmi_get_gpu_process_list(handle)
        return _usage(
            [(int(process["pid"]), int(process["mem"])) for process in found],
            memory_bytes=int(smi.amdsmi_get_gpu_vram_usage(handle)["vram_used"]) << 20,  # in MB
            busy_percent=int(smi.amdsmi_get_gpu_activity(handle)["gfx_activity"]),
        )

    def partition() -> str:
        mode = _text(smi.amdsmi_get_gpu_compute_partition(handle))
        return "none" if mode in ("SPX", "N/A", "") else mode

    def pcie() -> Pcie:
        found = smi.amdsmi_get_pcie_info(handle)
        return Pcie(
            width=int(found["pcie_metric"]["pcie_width"]),
            max_width=int(found["pcie_static"]["max_pcie_width"]),
            max_generation=int(found["pcie_static"]["pcie_interface_version"]),
        )

    name = attempt(lambda: _text(smi.amdsmi_get_gpu_asic_info(handle)["market_name"]))
    uuid = attempt(lambda: _text(smi.amdsmi_get_gpu_device_uuid(handle)))
    return Gpu(
        index=index,
        name="an AMD GPU" if isinstance(name, Unread) else name,
        uuid="" if isinstance(uuid, Unread) else uuid,
        vendor="amd",
        clocks=attempt(clocks),
        throttling=attempt(throttling),
        heat=attempt(
            lambda: Heat(
                temperature_c=celsius(smi.AmdSmiTemperatureMetric.CURRENT),
                slowdown_c=attempt(lambda: celsius(smi.AmdSmiTemperatureMetric.CRITICAL)),
            )
        ),
        power=attempt(power),
        ecc=attempt(
            lambda: Ecc(
                enabled=bool(smi.amdsmi_get_gpu_ecc_enabled(handle)),
                uncorrected=attempt(lambda: int(smi.amdsmi_get_gpu_total_ecc_count(handle)["uncorrectable_count"])),
            )
        ),
        partition=attempt(partition),
        compute_mode="default",  # AMD's driver knows no other
        persistent=True,  # its driver stays loaded
        usage=attempt(usage),
        pcie=attempt(pcie),
        nvlinks=NvLinks(active=0, present=0, version=""),
    )


def _amd_pairs(smi: Any, handles: Sequence[Any]) -> tuple[Pair, ...]:
    xgmi = smi.AmdSmiLinkType.AMDSMI_LINK_TYPE_XGMI
    found = []
    for a, first in enumerate(handles):
        for b, second in list(enumerate(handles))[a + 1 :]:
            is_xgmi = smi.amdsmi_topo_get_link_type(first, second)["type"] == xgmi
            reaches = bool(smi.amdsmi_is_P2P_accessible(first, second))
            found.append(Pair(a=a, b=b, reaches=reaches, atomics=is_xgmi, path="xGMI" if is_xgmi else "PCIe"))
    return tuple(found)


def _usage(found: Sequence[tuple[int, int]], memory_bytes: int, busy_percent: int) -> Usage:
    """`found` are all users of a GPU as (pid, bytes); this process and those below it are left out."""
    own = {os.getpid(), *host.descendants(os.getpid())}
    psutil = module("psutil")

    def name(pid: int) -> str:
        found = psutil if isinstance(psutil, Unread) else attempt(lambda: printable(psutil.Process(pid).name()))
        return "unknown" if isinstance(found, Unread) else found  # another container's

    return Usage(
        processes=tuple(Process(pid=pid, name=name(pid), memory_bytes=used) for pid, used in found if pid not in own),
        memory_bytes=memory_bytes - sum(used for pid, used in found if pid in own),
        busy_percent=busy_percent,
    )


def _text(value: Any) -> str:
    return printable(value.decode(errors="replace") if isinstance(value, bytes) else str(value))
