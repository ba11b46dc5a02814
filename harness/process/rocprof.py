"""AMD's rocprofv3: its command line, and what its traces say of each kernel.

This has not been run on an AMD machine. Options are those of rocprofiler-sdk's "Using rocprofv3" (ROCm 6.4 to 7.1; the
format has to be named, since from 7.0 on the default is a database). Columns are those of traces that ROCm 6.2 to 7.2
wrote, as published (tests/fixtures/rocprofv3-*): older ones lack Stream_Id and name agents by number; the range around
a call is a row of domain MARKER_CORE_API, or MARKER_CORE_RANGE_API in newer ones, with the range's name as its
Function. Read 2026-11.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from harness.core.errors import HarnessError
from harness.core.files import read_text
from harness.process.profiler_tool import RANGE, Dispatch, Tool


class Rocprof(Tool):
    """AMD's rocprofv3: times of kernels."""

    program = "rocprofv3"
    devices = ("rocm",)
    places = ("/opt/rocm/bin", "/opt/rocm-*/bin")

    def command(self, program: str, folder: Path, inner: Sequence[str], launch_count: int | None) -> list[str]:
        # A file for each process, or one that a compiler starts would overwrite ours.
        options = ("--kernel-trace", "--marker-trace", "--output-format", "csv", "-o", "report-%pid%")
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
