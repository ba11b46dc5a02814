"""The vendors' profilers: how they are found and called, and what their reports say of each kernel. TOOLS has one entry
a tool.

A tool is put around one process, harness/ranks/profiled.py, which marks the call that counts: by cudaProfilerStart and
Stop, and by an NVTX (roctx) range named RANGE. Command lines and columns are those of Nsight Compute's CLI
documentation (2025.3) and of rocprofv3's (ROCm 7.0), read 2026-11. Knows no torch and no problems.
"""

import csv
import io
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from harness.core.errors import HarnessError
from harness.core.files import read_text
from harness.core.records import KernelFigures, Params
from harness.process.child import search_path

RANGE = "custom_kernel"  # the range around the call
JOB, RESULT = "job.json", "profiled.json"  # what the process gets, and what it says
EXPORT_S = 120.0
US_PER = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3, "s": 1e6, "second": 1e6}


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the profiled process of one rank does: a case's input from `seed`, WARM_CALLS calls, and one that counts.
    `sets_device`: the problem takes its device from torch and names none. `starts`: the tool waits for
    cudaProfilerStart."""

    rank: int
    world_size: int
    device: str
    sets_device: bool
    params: Params
    seed: int
    meeting: str  # the file that the ranks meet in
    port: int
    starts: bool


@dataclass(frozen=True, kw_only=True)
class Said:
    """What the profiled process says: why its output is `wrong`, or that it raised."""

    wrong: str = ""
    raised: str = ""
    traceback: str = ""


@dataclass(frozen=True, kw_only=True)
class Dispatch:
    """One run of a kernel. `percents` are shares of the device's peak by the tool's names."""

    name: str
    time_us: float
    percents: Mapping[str, float] = field(default_factory=dict)


class Tool(Protocol):
    """A profiler. `devices` are the kinds of device that it knows, `most_ranks` is how many it can profile at a time
    (None: any number), `starts` whether it waits for cudaProfilerStart. `places` are folders beside PATH that it may
    lie in, with wildcards, and `complaints` what it prints where it may not profile, each with advice."""

    program: str
    devices: tuple[str, ...]
    most_ranks: int | None
    starts: bool
    places: tuple[str, ...]
    complaints: tuple[tuple[str, str], ...]

    def command(self, program: str, folder: Path, inner: Sequence[str]) -> list[str]:
        """The command that runs `inner` and leaves its report in the folder."""
        ...

    def dispatches(self, program: str, folder: Path) -> list[Dispatch]:
        """The kernels of the call that counts, from the report in the folder. Raises HarnessError if there is none."""
        ...


# ---- Nsight Compute --------------------------------------------------------------------------------------------------
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


class Ncu:
    """NVIDIA Nsight Compute. It runs each kernel many times, one kernel at a time."""

    program = "ncu"
    devices: tuple[str, ...] = ("cuda",)
    most_ranks: int | None = 1  # a kernel that waits for another rank would wait for ever
    starts = True
    places: tuple[str, ...] = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute/*")
    complaints: tuple[tuple[str, str], ...] = (
        (
            "ERR_NVGPUCTRPERM",
            "this user may not read the GPU's counters: run it as root, or load the driver with "
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        (r"No kernels were profiled", "the call launched no kernel on the GPU"),
        (r"==ERROR== .*", "{said}"),
    )

    def command(self, program: str, folder: Path, inner: Sequence[str]) -> list[str]:
        options = ("--set", "full", "--target-processes", "all", "--clock-control", "none", "--profile-from-start")
        return [program, *options, "off", "--kernel-name-base", "demangled", "-f", "-o", f"{folder}/report", *inner]

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


# ---- rocprofv3 -------------------------------------------------------------------------------------------------------
class Rocprof:
    """AMD's rocprofv3: times of kernels. Not yet run on an AMD machine."""

    program = "rocprofv3"
    devices: tuple[str, ...] = ("rocm",)
    most_ranks: int | None = None
    starts = False
    places: tuple[str, ...] = ("/opt/rocm/bin", "/opt/rocm-*/bin")
    complaints: tuple[tuple[str, str], ...] = ()

    def command(self, program: str, folder: Path, inner: Sequence[str]) -> list[str]:
        options = ("--kernel-trace", "--marker-trace", "--stats", "--output-format", "csv", "-o", "report")
        return [program, *options, "-d", str(folder), "--", *inner]

    def dispatches(self, program: str, folder: Path) -> list[Dispatch]:
        kernels = list(_rows(folder, "kernel_trace"))
        if not kernels:
            raise HarnessError("rocprofv3 left no trace of kernels")
        return rocprof_dispatches(kernels, list(_rows(folder, "marker_api_trace")))


def rocprof_dispatches(kernels: Iterable[Mapping[str, str]], markers: Iterable[Mapping[str, str]]) -> list[Dispatch]:
    """The kernels that began within the range RANGE. Without such a range they are all that the process ran. Rows are
    those of *kernel_trace.csv and *marker_api_trace.csv; times are nanoseconds."""
    ranges = [(int(row["Start_Timestamp"]), int(row["End_Timestamp"])) for row in markers if row["Function"] == RANGE]
    start, end = ranges[-1] if ranges else (0, 1 << 63)
    times = ((row["Kernel_Name"], int(row["Start_Timestamp"]), int(row["End_Timestamp"])) for row in kernels)
    return [Dispatch(name=name, time_us=(done - began) / 1000) for name, began, done in times if start <= began <= end]


def _rows(folder: Path, what: str) -> Iterator[Mapping[str, str]]:
    for path in sorted(folder.rglob(f"*{what}.csv")):
        yield from csv.DictReader(io.StringIO(read_text(path)))


TOOLS: dict[str, Tool] = {"ncu": Ncu(), "rocprof": Rocprof()}


def find(tool: Tool) -> str | None:
    """Where the tool's program is; None if there is none."""
    beside = [str(found) for place in tool.places for found in sorted(Path("/").glob(place.lstrip("/")), reverse=True)]
    return shutil.which(tool.program, path=os.pathsep.join([search_path(), *beside]))


def kernel_figures(rank: int, dispatches: Iterable[Dispatch]) -> tuple[KernelFigures, ...]:
    """What each kernel of a rank's call took, the longest first. Percentages are means, weighted by time."""
    groups: dict[str, list[Dispatch]] = {}
    for one in dispatches:
        groups.setdefault(one.name, []).append(one)
    figures = [
        KernelFigures(
            rank=rank,
            name=name,
            calls=len(group),
            time_us=sum(one.time_us for one in group),
            percents={key: _mean(group, key) for key in PERCENTS if all(key in one.percents for one in group)},
        )
        for name, group in groups.items()
    ]
    return tuple(sorted(figures, key=lambda one: -one.time_us))


def complaint(tool: Tool, text: str) -> str | None:
    """What keeps the tool from profiling, by what it printed; None if it does not say."""
    for says, advice in tool.complaints:
        if (found := re.search(says, text)) is not None:
            return advice.format(said=found[0])
    return None


def _mean(group: Sequence[Dispatch], key: str) -> float:
    total = sum(one.time_us for one in group)
    return sum(one.percents[key] * one.time_us for one in group) / total if total else 0.0


def _number(text: str | None) -> float | None:
    """`1,234.5` as a number; None for what is none."""
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None
