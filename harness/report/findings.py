"""What `doctor` found, as a document and as JSON."""

import platform
from collections import Counter
from collections.abc import Sequence
from typing import Any

from harness.core.decode import encode
from harness.machine.doctor import DOCTOR_SCHEMA, Finding
from harness.machine.findings import NO_GPU
from harness.machine.readings import Gpus, Readings, Unread
from harness.report.document import Document, Styled, Table, UntrustedText, Words, prose


# ---- what people and programs read -------------------------------------------------------------------------------
def to_json(found: Readings, findings: Sequence[Finding]) -> dict[str, Any]:
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


def document_of(findings: Sequence[Finding]) -> Document:
    """A table with fixes, and a last line that sums up. Checks of GPUs are one line where there is none."""
    away = [one for one in findings if (one.status, one.found) == (NO_GPU.status, NO_GPU.found)]
    shown = [one for one in findings if one not in away]
    rows: list[list[Words]] = []
    for one in shown:
        style = {"fail": "bold red", "warn": "yellow", "unknown": "dim"}.get(one.status, "")
        text = (UntrustedText(one.found), *(("\nfix: ", UntrustedText(one.fix)) if one.fix else ()))
        rows.append([one.check, Styled(one.status, style), text])
    lines = [f"No GPU, so these do not apply: {', '.join(one.check for one in away)}."] if away else []
    found = Table(("=check", "=status", "found, and what to do"), rows)
    return Document(blocks=(found, prose(*lines, summary(shown))))


def summary(findings: Sequence[Finding]) -> str:
    """How many passed, and what else there was: `20 pass, 3 warn, 1 fail`."""
    counts = Counter(one.status for one in findings)
    words = [f"{counts[status]} {status}" for status in ("pass", "warn", "fail")]
    return ", ".join(words + ([f"{counts['unknown']} unknown"] if counts["unknown"] else []))
