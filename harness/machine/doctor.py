"""What on this machine changes results: a finding a check, with the fix. Never changes a setting itself.

`read` fetches the readings (readings, gpus, smoke), `doctor` has them judged (judges), `show` and `to_json` are what
people and programs read. Knows no problems and no tensors.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.core.records import MachineState
from harness.machine import hardware, readings
from harness.machine.findings import CHECKS, Status, used_gpus
from harness.machine.gpus import read_gpus
from harness.machine.readings import Collective, Readings, SmokeFailed, Unread
from harness.machine.smoke import CPU_RANKS, DEADLINE_S, smoke

DOCTOR_SCHEMA = 1  # of --json; 1: first


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one check found; `fix` is empty where nothing is to be done."""

    check: str
    status: Status
    found: str
    fix: str = ""


def doctor(found: Readings) -> tuple[Finding, ...]:
    """Every check's finding, always all of them and in the same order."""
    judged = ((name, judge(found)) for name, judge in CHECKS)
    return tuple(Finding(check=name, status=one.status, found=one.found, fix=one.fix) for name, one in judged)


def short(findings: Sequence[Finding]) -> tuple[MachineState, ...]:
    """What a report says of the machine: each finding that is warn or fail."""
    return tuple(
        MachineState(status=one.status, check=one.check, found=one.found)
        for one in findings
        if one.status in ("fail", "warn")
    )


def read(with_smoke: bool | None = None, deadline_s: float = DEADLINE_S) -> Readings:
    """The machine as it is now. The smoke test takes seconds; it runs where two or more GPUs are visible, or as
    `with_smoke` says."""
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
    )
