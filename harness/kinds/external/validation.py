"""Runs the program that a problem folder's task.yml names under `validation`, as KernelBot runs it for ranked entries.

Knows its side of the format (after gpu-mode/kernelbot src/libkernelbot/validation_runtime.py, read 2026-11): it is
staged beside the problem's files and the submission, learns the contract's version from a variable, and prints a JSON
object as its last line. It imports the submission into its own process, so its word is taken as eval.py's is.
"""

import json
import math
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.core.records import Warning
from harness.core.words import clean_line
from harness.gpumode.folder import TaskProblem
from harness.process.child import run_child

MAIN = "validation.py"  # the name that KernelBot stages it under
LIMIT_S = 900.0  # KernelBot's
RESULT_BYTES = 1 << 20
SHOWN_CHARS = 300


def validated(problem: TaskProblem, staged: Path, environ: Mapping[str, str]) -> Warning:
    """The validation's verdict on the submission that is staged in this folder."""
    task = problem.task.validation
    assert task is not None
    (staged / MAIN).write_bytes((problem.folder / task.script).read_bytes())
    out = staged.parent / "validation.out"  # whose last line counts, however much is printed
    config = {"KERNELBOT_VALIDATION_CONFIG": json.dumps({"version": task.version}), "PYTHONUNBUFFERED": "1"}
    command = ["sh", "-c", f"exec {shlex.quote(sys.executable)} {MAIN} > {shlex.quote(str(out))}"]
    ended = run_child(command, staged, {**environ, **config}, LIMIT_S)
    text = f"had not ended after {LIMIT_S:g} s" if ended.code is None else _verdict(ended.code, _last_line(out))
    return Warning(code="validation", values={"version": str(task.version), "text": clean_line(text)[:SHOWN_CHARS]})


def _last_line(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - RESULT_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _verdict(code: int, line: str) -> str:
    """The verdict in words; `failed: ...` for a program that ended without a valid one."""
    try:
        told: Any = json.loads(line)
    except ValueError:
        return f"failed: it exited with {code} and its last line is no JSON"
    if not isinstance(told, dict):
        return "failed: its last line is no JSON object"
    if code or told.get("status") == "failed":
        return f"failed: {told.get('failure_reason', f'it exited with {code}')}"
    total, right = told.get("total_shapes"), told.get("passed_shapes")
    if type(total) is not int or type(right) is not int or not 0 <= right <= total or not total:
        return "failed: it tells no valid counts of shapes"
    speedup = told.get("geomean_sync_wall_speedup")
    if speedup is not None and (type(speedup) not in (int, float) or not math.isfinite(speedup) or speedup <= 0):
        return "failed: its speedup is no number above 0"
    word = "validated" if right == total and told.get("fully_validated") else "not validated"
    return f"{word}, {right} of {total} shapes" + (f", {speedup:.3g}x in the application" if speedup else "")
