"""NVIDIA's GPUs as NVML shows them. Reads, never changes a setting; does not import torch.

Beside the sampler the only module that knows NVML. The module pynvml is handed in as `nvml`, so
that tests bring a fake.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from harness.core.machine_records import LinkBytes
from harness.machine import readings
from harness.machine.gpu_common import text_of, usage_of, visible
from harness.machine.readings import Gpu, Gpus, Pair, Unread, attempt, module, tried

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
LINK_SENT, LINK_RECEIVED = 138, 139  # NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _RX: payload so far, KiB
ALL_LINKS = 0xFFFFFFFF  # as the scope of these: the sum over links (nvml.h)


def opened(nvml: Any, indices: Sequence[int] | None) -> tuple[Any, dict[int, Any] | Unread]:
    """NVML, begun (`nvml` is the module pynvml, or a test's fake; None: the one that is installed), and what it knows
    the GPUs `indices` by (default all), or why it knows none."""
    nvml = module("pynvml") if nvml is None else nvml

    def handles() -> dict[int, Any]:
        nvml.nvmlInit()
        wanted = range(nvml.nvmlDeviceGetCount()) if indices is None else indices
        return {index: nvml.nvmlDeviceGetHandleByIndex(index) for index in wanted}

    return nvml, nvml if isinstance(nvml, Unread) else attempt(handles)


@tried
def read_nvidia(nvml: Any, environ: Mapping[str, str]) -> Gpus:
    nvml.nvmlInit()
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        gpus = tuple(_nvidia_gpu(nvml, index, handle) for index, handle in enumerate(handles))
        cuda = attempt(nvml.nvmlSystemGetCudaDriverVersion)
        return Gpus(
            gpus=gpus,
            visible=visible([gpu.uuid for gpu in gpus], environ.get("CUDA_VISIBLE_DEVICES")),
            pairs=attempt(lambda: _nvidia_pairs(nvml, handles)),
            driver=text_of(nvml.nvmlSystemGetDriverVersion()),
            driver_runtime="" if isinstance(cuda, Unread) else f"{cuda // 1000}.{cuda % 1000 // 10}",
        )
    finally:
        nvml.nvmlShutdown()


def _nvidia_gpu(nvml: Any, index: int, handle: Any) -> Gpu:
    def heat() -> readings.Heat:
        return readings.Heat(
            temperature_c=nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            slowdown_c=attempt(
                lambda: nvml.nvmlDeviceGetTemperatureThreshold(handle, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
            ),
        )

    def ecc() -> readings.Ecc:
        uncorrected, since_load = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        return readings.Ecc(
            enabled=bool(nvml.nvmlDeviceGetEccMode(handle)[0]),
            uncorrected=attempt(lambda: int(nvml.nvmlDeviceGetTotalEccErrors(handle, uncorrected, since_load))),
        )

    def partition() -> str:
        try:
            return "MIG" if nvml.nvmlDeviceGetMigMode(handle)[0] else "none"
        except nvml.NVMLError_NotSupported:  # a GPU that cannot be partitioned
            return "none"

    def usage() -> readings.Usage:
        found = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return usage_of(
            [(process.pid, process.usedGpuMemory or 0) for process in found],
            memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).used),
            busy_percent=int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
        )

    return Gpu(
        index=index,
        name=text_of(nvml.nvmlDeviceGetName(handle)),
        uuid=text_of(nvml.nvmlDeviceGetUUID(handle)),
        vendor="nvidia",
        clocks=attempt(
            lambda: readings.Clocks(
                sm_mhz=nvml.nvmlDeviceGetClockInfo(handle, CLOCK_SM),
                sm_max_mhz=nvml.nvmlDeviceGetMaxClockInfo(handle, CLOCK_SM),
                memory_mhz=nvml.nvmlDeviceGetClockInfo(handle, CLOCK_MEMORY),
                memory_max_mhz=nvml.nvmlDeviceGetMaxClockInfo(handle, CLOCK_MEMORY),
            )
        ),
        throttling=attempt(lambda: throttle_reasons(nvml, handle)),
        heat=attempt(heat),
        power=attempt(
            lambda: readings.Power(
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
            lambda: readings.Pcie(
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


def link_bytes(nvml: Any, handle: Any) -> LinkBytes:
    """The bytes sent and received over all NVLinks. Raises NVMLError without such counters."""
    sent, received = nvml.nvmlDeviceGetFieldValues(handle, [(LINK_SENT, ALL_LINKS), (LINK_RECEIVED, ALL_LINKS)])
    for value in (sent, received):
        if value.nvmlReturn != 0:
            raise nvml.NVMLError(value.nvmlReturn)
    return LinkBytes(sent=sent.value.ullVal << 10, received=received.value.ullVal << 10)


class LinkCounters:
    """The NVLink counters of the GPUs `indices` (default all), open until close()."""

    def __init__(self, indices: Sequence[int] | None = None, nvml: Any = None) -> None:
        self._nvml, self._handles = opened(nvml, indices)

    def read(self) -> tuple[LinkBytes, ...] | Unread:
        """The bytes of each GPU so far, or why they cannot be read: no NVML, no NVLinks, no permission."""
        handles = self._handles
        if isinstance(handles, Unread):
            return handles
        return attempt(lambda: tuple(link_bytes(self._nvml, handle) for handle in handles.values()))

    def close(self) -> None:
        if not isinstance(self._handles, Unread):
            attempt(self._nvml.nvmlShutdown)
            self._handles = Unread(why="closed")


def _nvlinks(nvml: Any, handle: Any) -> readings.NvLinks:
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
    return readings.NvLinks(active=sum(states), present=len(states), version=version)


def _nvidia_pairs(nvml: Any, handles: Sequence[Any]) -> tuple[Pair, ...]:
    found = []
    for (a, first), (b, second) in combinations(enumerate(handles), 2):
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
