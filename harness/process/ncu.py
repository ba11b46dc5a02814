"""Nsight Compute: its command line, and what its report says of each kernel. Options and columns are those of Nsight
Compute's CLI documentation (2025.3), read 2026-11."""

import csv
import io
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from harness.core.errors import HarnessError
from harness.process.profiler_tool import Dispatch, Tool

EXPORT_S = 120.0
US_PER = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3, "s": 1e6, "second": 1e6}
TIME = r"gpu__time_duration\.sum|Duration"
# By our names: the metric in page `raw`, or its name in page `details`.
PERCENTS = {
    "occupancy": r"sm__warps_active\.avg\.pct_of_peak_sustained_active|Achieved Occupancy",
    "compute": r"sm__throughput\.avg\.pct_of_peak_sustained_elapsed|Compute \(SM\) Throughput",
    "memory": r"gpu__compute_memory_throughput\.avg\.pct_of_peak_sustained_elapsed|Memory Throughput",
    "dram": r"(gpu__)?dram__throughput\.avg\.pct_of_peak_sustained_elapsed|gpu__dram_throughput\.avg"
    r"\.pct_of_peak_sustained_elapsed|DRAM Throughput",
    # One metric or several, by architecture; the busiest counts.
    "tensor": r"sm__(inst_executed_)?pipe_tensor\w*\.avg\.pct_of_peak_sustained_active",
}


class Ncu(Tool):
    """NVIDIA Nsight Compute. It runs each kernel many times, one kernel at a time."""

    program = "ncu"
    devices = ("cuda",)
    most_ranks = 1  # a kernel that waits for another rank would wait for ever
    starts = True
    launch_count = 100  # each is run dozens of times, with the memory that it writes to restored
    places = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute/*")
    complaints = (
        (
            "ERR_NVGPUCTRPERM",
            "this user may not read the GPU's counters: run it as root, or load the driver with "
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        (r"No kernels were profiled", "the call launched no kernel on the GPU"),
        (r"==ERROR== .*", "{said}"),
    )

    def command(self, program: str, folder: Path, inner: Sequence[str], launch_count: int | None) -> list[str]:
        options = ["--set", "full", "--target-processes", "all", "--clock-control", "none", "--profile-from-start"]
        options += ["off"] if launch_count is None else ["off", "--launch-count", str(launch_count)]
        return [program, *options, "--kernel-name-base", "demangled", "-f", "-o", f"{folder}/report", *inner]

    def dispatches(self, program: str, folder: Path) -> list[Dispatch]:
        report = folder / "report.ncu-rep"
        if not report.is_file():
            raise HarnessError("ncu left no report")
        try:
            done = subprocess.run(
                [program, "--import", str(report), "--csv", "--page", "raw"],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=EXPORT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HarnessError(f"ncu does not read its own report: {error}") from None
        (folder / "report.csv").write_text(done.stdout, encoding="utf-8")
        return ncu_dispatches(done.stdout)


def ncu_dispatches(text: str) -> list[Dispatch]:
    """The kernels in `ncu --csv` of page `raw` (a column a metric, units in the row below the names) or `details` (a
    row a metric). Raises HarnessError if the text is neither."""
    lines = text.splitlines()
    start = next((index for index, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise HarnessError("ncu printed no table; its report can be opened with ncu-ui")
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))
    if rows and "Metric Name" in rows[0]:
        kernels = _by_id(rows)
    else:
        units = rows[0] if rows and not rows[0]["ID"] else {}
        kernels = [
            (row["Kernel Name"], [(name, units.get(name) or "", value) for name, value in row.items()])
            for row in rows[len(units) > 0 :]
        ]
    return [found for name, metrics in kernels if (found := _dispatch(name, metrics)) is not None]


Metrics = list[tuple[str, str, str]]  # name, unit, value


def _by_id(rows: Iterable[Mapping[str, str]]) -> list[tuple[str, Metrics]]:
    kernels: dict[str, tuple[str, Metrics]] = {}
    for row in rows:
        metric = (row["Metric Name"], row["Metric Unit"], row["Metric Value"])
        kernels.setdefault(row["ID"], (row["Kernel Name"], []))[1].append(metric)
    return list(kernels.values())


def _dispatch(name: str, metrics: Metrics) -> Dispatch | None:
    """One kernel; None if its time is not told."""
    time_us = None
    percents: dict[str, float] = {}
    for metric, unit, text in metrics:
        value = _number(text)
        if value is None:
            continue
        if unit in US_PER and re.fullmatch(TIME, metric):
            time_us = value * US_PER[unit]
        if unit == "%":
            for ours, pattern in PERCENTS.items():
                if re.fullmatch(pattern, metric):
                    percents[ours] = max(value, percents.get(ours, 0.0))
    return None if time_us is None else Dispatch(name=name, time_us=time_us, percents=percents)


def _number(text: str | None) -> float | None:
    """`1,234.5` as a number; None for what is none."""
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None
