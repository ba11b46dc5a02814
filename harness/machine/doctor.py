"""What on this machine changes results: a finding for each check, with its fix. Never changes a setting itself.

`read` fetches the readings (readings, gpus, smoke), `doctor` checks them (gpu_findings, host_findings). Knows no
problems and no tensors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.decode import part
from harness.core.machine_records import MachineState
from harness.machine import gpu_findings, hardware, host_findings, readings
from harness.machine.findings import CheckResult, Status, used_gpus
from harness.machine.gpus import read_gpus
from harness.machine.readings import Collective, Readings, SmokeFailed, Unread
from harness.machine.smoke import CPU_RANKS, DEADLINE_S, smoke

DOCTOR_SCHEMA = 1  # of --json; 1: first
CHECKS: list[tuple[str, Callable[[Readings], CheckResult]]] = [
    ("GPUs", gpu_findings.check_count),
    ("driver", gpu_findings.check_driver),
    ("software", host_findings.check_software),
    ("clocks", gpu_findings.check_clocks),
    ("throttling", gpu_findings.check_throttling),
    ("temperature", gpu_findings.check_temperature),
    ("power", gpu_findings.check_power),
    ("ECC", gpu_findings.check_ecc),
    ("MIG", gpu_findings.check_partition),
    ("compute mode", gpu_findings.check_compute_mode),
    ("persistence", gpu_findings.check_persistence),
    ("GPU processes", gpu_findings.check_gpu_processes),
    ("P2P", gpu_findings.check_p2p),
    ("links", gpu_findings.check_links),
    ("PCIe", gpu_findings.check_pcie),
    ("collectives", host_findings.check_collectives),
    ("CPU cores", host_findings.check_cores),
    ("CPU quota", host_findings.check_quota),
    ("CPU governor", host_findings.check_governor),
    ("load", host_findings.check_load),
    ("memory", host_findings.check_memory),
    ("/dev/shm", host_findings.check_shm),
    ("disk", host_findings.check_disk),
    ("NUMA balancing", host_findings.check_numa),
    ("huge pages", host_findings.check_huge_pages),
    ("ASLR", host_findings.check_aslr),
    ("open files", host_findings.check_open_files),
]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The finding of one check; `fix` is empty where nothing is to be done."""

    check: str
    status: Status
    found: str
    fix: str = ""


def doctor(found: Readings) -> tuple[Finding, ...]:
    """Every check's finding, always all of them and in the same order."""
    return tuple(Finding(check=name, **vars(check(found))) for name, check in CHECKS)


def short(findings: Sequence[Finding]) -> tuple[MachineState, ...]:
    return tuple(part(one, MachineState) for one in findings if one.status in ("fail", "warn"))


def read(with_smoke: bool | None = None, deadline_s: float = DEADLINE_S, root: Path | None = None) -> Readings:
    """The machine as it is now, and what the checkout at `root` takes of its disk. The smoke test takes seconds; it
    runs where two or more GPUs are visible, or as `with_smoke` says."""
    found = read_gpus()
    used = used_gpus(found)
    peaks = hardware.match(used[0].name) if used else None
    ran: Collective | SmokeFailed | Unread = Unread(why="not run; --smoke does")
    if with_smoke if with_smoke is not None else len(used) > 1:
        device = "cpu" if not used else "cuda" if used[0].vendor == "nvidia" else "rocm"
        ran = smoke(device, len(used) or CPU_RANKS, deadline_s)
    return Readings(
        gpus=found,
        link_bytes_per_s=peaks.link_bytes_per_s if peaks else None,
        software=readings.read_software(),
        shm=readings.read_shm(),
        governors=readings.read_governors(),
        numa=readings.read_numa(),
        huge_pages=readings.read_huge_pages(),
        aslr=readings.read_aslr(),
        load=readings.read_load(),
        cpus=readings.read_cpus(),
        memory=readings.read_memory(),
        open_files=readings.read_open_files(),
        smoke=ran,
        disk=readings.read_disk(root) if root else Unread(why="not looked at"),
    )
