"""The system description of MLPerf's results: 33 fields, filled from what can be read of a machine.

What cannot be read stays empty, and whoever submits fills it in: nothing is guessed. The names are MLPerf Training's
(a submission's systems/<name>.json).
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from harness.core.machine_records import Environment
from harness.machine.gpus import read_gpus
from harness.machine.readings import Gpu, Gpus, Unread, attempt, printable

FIELDS = (
    *("submitter", "division", "status", "system_name", "number_of_nodes"),
    *("host_processors_per_node", "host_processor_model_name", "host_processor_core_count"),
    *("host_processor_vcpu_count", "host_processor_frequency", "host_processor_caches"),
    *("host_processor_interconnect", "host_memory_capacity", "host_storage_type", "host_storage_capacity"),
    *("host_networking", "host_networking_topology", "host_memory_configuration", "accelerators_per_node"),
    *("accelerator_model_name", "accelerator_host_interconnect", "accelerator_frequency"),
    *("accelerator_on-chip_memories", "accelerator_memory_configuration", "accelerator_memory_capacity"),
    *("accelerator_interconnect", "accelerator_interconnect_topology", "cooling", "hw_notes"),
    *("framework", "other_software_stack", "operating_system", "sw_notes"),
)
CPU = "sys/devices/system/cpu"
FREQUENCY = f"{CPU}/cpu0/cpufreq/cpuinfo_max_freq"  # kHz


def of_report(environment: Environment, device_model: str, world_size: int, author: str) -> dict[str, str]:
    """The description of the system by a report alone. All fields are there; those that it does not have are empty."""
    gpus = {"accelerators_per_node": str(world_size), "accelerator_model_name": device_model}
    known = {
        "submitter": author,
        "system_name": environment.machine_class,
        "number_of_nodes": "1",
        "host_processor_model_name": environment.cpu,
        "host_memory_capacity": f"{environment.memory_bytes / 2**30:.1f} GiB" if environment.memory_bytes else "",
        "framework": f"torch {environment.torch}",
        "other_software_stack": ", ".join(
            [f"Python {environment.python}", *([f"triton {environment.triton}"] if environment.triton else [])]
        ),
        "operating_system": environment.platform,
        "sw_notes": f"kernel-eval {environment.harness}",
        **(gpus if device_model else {"accelerators_per_node": "0"}),
    }
    return dict.fromkeys(FIELDS, "") | known


def of_this_machine(root: Path = Path("/")) -> dict[str, str]:
    """The fields that can be read on this machine and that a report does not have. `root` has proc and sys."""
    cpus = sorted((root / CPU).glob("cpu[0-9]*"))
    ids = attempt(
        lambda: [(_text(cpu / "topology/physical_package_id"), _text(cpu / "topology/core_id")) for cpu in cpus]
    )
    cores = set() if isinstance(ids, Unread) else set(ids)  # each with its processor
    packages = len({package for package, _ in cores})
    readers: Mapping[str, Callable[[], str]] = {
        "host_processors_per_node": lambda: str(packages or ""),
        "host_processor_core_count": lambda: str(len(cores) // packages),
        "host_processor_vcpu_count": lambda: str(len(cpus) or ""),
        "host_processor_frequency": lambda: f"{int(_text(root / FREQUENCY)) // 1000} MHz at most",
        "host_processor_caches": lambda: _caches(root),
    }
    found = {name: attempt(reader) for name, reader in readers.items()}
    known = {name: text for name, text in found.items() if isinstance(text, str) and text}
    return known | (_gpus() if root == Path("/") else {})


def _gpus() -> dict[str, str]:
    """The accelerators' fields; empty where there are none, or where they differ."""
    found = read_gpus()
    if not isinstance(found, Gpus):
        return {}
    used: list[Gpu] = [gpu for gpu in found.gpus if gpu.index in found.visible]
    if len({gpu.name for gpu in used}) != 1:
        return {}
    first, known = used[0], {}
    if not isinstance(first.pcie, Unread):
        known["accelerator_host_interconnect"] = f"PCIe Gen{first.pcie.max_generation} x{first.pcie.max_width}"
    if not isinstance(first.clocks, Unread):
        known["accelerator_frequency"] = f"{first.clocks.sm_max_mhz} MHz"
    if not isinstance(first.nvlinks, Unread) and first.nvlinks.active:
        known["accelerator_interconnect"] = f"NVLink {first.nvlinks.version}, {first.nvlinks.active} links"
    return known


def _caches(root: Path) -> str:
    """Each level of core 0: `L1 data 32K, L1 instruction 32K, L2 1024K, L3 32768K`."""
    parts = []
    for cache in sorted((root / CPU / "cpu0/cache").glob("index[0-9]*")):
        kind = _text(cache / "type").lower()
        of = "" if kind == "unified" else f" {kind}"
        parts.append(f"L{_text(cache / 'level')}{of} {_text(cache / 'size')}")
    return ", ".join(parts)


def _text(path: Path) -> str:
    return printable(path.read_text())
