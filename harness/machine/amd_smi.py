"""AMD's GPUs as AMD SMI shows them: this reader never ran on a machine with an AMD GPU.

It was written from the source of amdsmi 7.0, and its tests use a fake. What another version answers differently becomes
an Unread. Reads, never changes a setting; the module amdsmi is handed in as `smi`.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from harness.machine import host, readings
from harness.machine.gpu_common import text_of, usage_of, visible
from harness.machine.readings import Gpu, Gpus, Pair, Unread, attempt, tried

MICROWATTS_FROM = 10_000  # no GPU draws 10 kW: amdsmi gives power caps in W or uW, by version
MILLIDEGREES_FROM = 1_000


@tried
def read_amd(smi: Any, environ: Mapping[str, str]) -> Gpus:
    smi.amdsmi_init(smi.AmdSmiInitFlags.INIT_AMD_GPUS)
    try:
        handles = list(smi.amdsmi_get_processor_handles())
        gpus = tuple(_amd_gpu(smi, index, handle) for index, handle in enumerate(handles))
        hides = next((environ[name] for name in host.VISIBLE_DEVICES["rocm"] if name in environ), None)
        rocm = attempt(lambda: smi.amdsmi_get_rocm_version())
        driver = attempt(lambda: smi.amdsmi_get_gpu_driver_info(handles[0])["driver_version"])
        return Gpus(
            gpus=gpus,
            visible=visible([gpu.uuid for gpu in gpus], hides),
            pairs=attempt(lambda: _amd_pairs(smi, handles)),
            driver="unknown" if isinstance(driver, Unread) else text_of(driver),
            driver_runtime=text_of(rocm[1]) if not isinstance(rocm, Unread) and rocm[0] else "",
        )
    finally:
        smi.amdsmi_shut_down()


def _amd_gpu(smi: Any, index: int, handle: Any) -> Gpu:
    def clocks() -> readings.Clocks:
        sm = smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.GFX)
        memory = smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.MEM)
        return readings.Clocks(
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

    def power() -> readings.Power:
        cap, now = smi.amdsmi_get_power_cap_info(handle), smi.amdsmi_get_power_info(handle)
        draws = (now.get(key, "N/A") for key in ("current_socket_power", "socket_power", "average_socket_power"))
        return readings.Power(
            draw_w=watts(next(draw for draw in draws if draw != "N/A")),
            limit_w=watts(cap["power_cap"]),
            default_limit_w=watts(cap["default_power_cap"]),
        )

    def usage() -> readings.Usage:
        found = smi.amdsmi_get_gpu_process_list(handle)
        return usage_of(
            [(int(process["pid"]), int(process["mem"])) for process in found],
            memory_bytes=int(smi.amdsmi_get_gpu_vram_usage(handle)["vram_used"]) << 20,  # in MB
            busy_percent=int(smi.amdsmi_get_gpu_activity(handle)["gfx_activity"]),
        )

    def partition() -> str:
        mode = text_of(smi.amdsmi_get_gpu_compute_partition(handle))
        return "none" if mode in ("SPX", "N/A", "") else mode

    def pcie() -> readings.Pcie:
        found = smi.amdsmi_get_pcie_info(handle)
        return readings.Pcie(
            width=int(found["pcie_metric"]["pcie_width"]),
            max_width=int(found["pcie_static"]["max_pcie_width"]),
            max_generation=int(found["pcie_static"]["pcie_interface_version"]),
        )

    name = attempt(lambda: text_of(smi.amdsmi_get_gpu_asic_info(handle)["market_name"]))
    uuid = attempt(lambda: text_of(smi.amdsmi_get_gpu_device_uuid(handle)))
    return Gpu(
        index=index,
        name="an AMD GPU" if isinstance(name, Unread) else name,
        uuid="" if isinstance(uuid, Unread) else uuid,
        vendor="amd",
        clocks=attempt(clocks),
        throttling=attempt(throttling),
        heat=attempt(
            lambda: readings.Heat(
                temperature_c=celsius(smi.AmdSmiTemperatureMetric.CURRENT),
                slowdown_c=attempt(lambda: celsius(smi.AmdSmiTemperatureMetric.CRITICAL)),
            )
        ),
        power=attempt(power),
        ecc=attempt(
            lambda: readings.Ecc(
                enabled=bool(smi.amdsmi_get_gpu_ecc_enabled(handle)),
                uncorrected=attempt(lambda: int(smi.amdsmi_get_gpu_total_ecc_count(handle)["uncorrectable_count"])),
            )
        ),
        partition=attempt(partition),
        compute_mode="default",  # AMD's driver knows no other
        persistent=True,  # its driver stays loaded
        usage=attempt(usage),
        pcie=attempt(pcie),
        nvlinks=readings.NvLinks(active=0, present=0, version=""),
    )


def _amd_pairs(smi: Any, handles: Sequence[Any]) -> tuple[Pair, ...]:
    xgmi = smi.AmdSmiLinkType.AMDSMI_LINK_TYPE_XGMI
    found = []
    for (a, first), (b, second) in combinations(enumerate(handles), 2):
        is_xgmi = smi.amdsmi_topo_get_link_type(first, second)["type"] == xgmi
        reaches = bool(smi.amdsmi_is_P2P_accessible(first, second))
        found.append(Pair(a=a, b=b, reaches=reaches, atomics=is_xgmi, path="xGMI" if is_xgmi else "PCIe"))
    return tuple(found)
