"""What on this machine changes results: a finding a check, with the fix. Never changes a setting itself.

`read` fetches the readings (readings, gpus, smoke), `doctor` has them judged (judges), `show` and `to_json` are what
people and programs read. Knows no problems and no tensors.
"""

import argparse
import json
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness import hardware, readings
from harness.decode import encode
from harness.gpus import read_gpus
from harness.judges import CHECKS, NO_GPU, Status, used_gpus
from harness.readings import Collective, Gpus, Readings, SmokeFailed, Unread
from harness.records import Exit, UsageError
from harness.smoke import CPU_RANKS, DEADLINE_S, smoke

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


def short(findings: Sequence[Finding]) -> tuple[str, ...]:
    """What a report says of the machine: a line for each finding that is warn or fail."""
    return tuple(f"{one.status}: {one.check}: {one.found}" for one in findings if one.status in ("fail", "warn"))


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


# ---- what people and programs read -------------------------------------------------------------------------------


def to_json(found: Readings, findings: Sequence[Finding]) -> dict[str, Any]:
    """The object of --json."""
    used, cpus, memory = found.gpus, found.cpus, found.memory
    machine = {
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": None if isinstance(cpus, Unread) else cpus.model,
        "cores": None if isinstance(cpus, Unread) else cpus.allowed,
        "memory_bytes": None if isinstance(memory, Unread) else memory.total_bytes,
        "gpus": [gpu.name for gpu in used.gpus] if isinstance(used, Gpus) else [],
        "driver": used.driver if isinstance(used, Gpus) else None,
        **encode(found.software),
    }
    return {"schema": DOCTOR_SCHEMA, "machine": machine, "findings": encode(tuple(findings))}


def show(findings: Sequence[Finding], console: Console) -> None:
    """Prints a table, its fixes under what was found, and a last line that sums up. What needs a GPU is one line
    where there is none."""
    away = [one for one in findings if (one.status, one.found) == (NO_GPU.status, NO_GPU.found)]
    shown = [one for one in findings if one not in away]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name, folds in (("check", False), ("status", False), ("found, and what to do", True)):
        table.add_column(name, no_wrap=not folds, overflow="fold")
    for one in shown:
        style = {"fail": "bold red", "warn": "yellow", "unknown": "dim"}.get(one.status, "")
        text = Text(one.found + (f"\nfix: {one.fix}" if one.fix else ""))
        table.add_row(Text(one.check), Text(one.status, style=style), text)
    console.print(table, highlight=False)
    console.print()
    if away:
        console.print(Text(f"No GPU, so these do not apply: {', '.join(one.check for one in away)}."))
    console.print(Text(summary(shown)), soft_wrap=True)


def summary(findings: Sequence[Finding]) -> str:
    """How many passed, and what else there was: `20 pass, 3 warn, 1 fail`."""
    counts = Counter(one.status for one in findings)
    words = [f"{counts[status]} {status}" for status in ("pass", "warn", "fail")]
    return ", ".join(words + ([f"{counts['unknown']} unknown"] if counts["unknown"] else []))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb `doctor`."""
    parser.add_argument(
        "--json",
        dest="json_to",
        nargs="?",
        const="-",
        metavar="FILE",
        help="write the findings there as one JSON object; without FILE, print it instead of the table",
    )
    parser.add_argument(
        "--smoke",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="run the smoke test of the collectives (default: where there are two GPUs or more)",
    )


def run(options: argparse.Namespace) -> Exit:
    """`doctor`: reads, judges, prints; Exit.ERROR where a check fails."""
    found = read(options.smoke)
    findings = doctor(found)
    text = json.dumps(to_json(found, findings), indent=2)
    if options.json_to == "-":
        print(text)
    else:
        if options.json_to:
            _write(options.json_to, text)
        show(findings, Console())
    return Exit.ERROR if any(one.status == "fail" for one in findings) else Exit.OK


def _write(file: str, text: str) -> None:
    try:
        Path(file).write_text(text + "\n")
    except OSError as error:
        raise UsageError(f"--json {file}: cannot be written: {error.strerror}; name another file") from None
