"""The vendors' profilers: how they are found, what the profiled process is told and says, and the figures of its
kernels. TOOLS has one entry a tool.

A tool is put around one process, kinds/vendor_tool/rank.py, which marks the call that counts: by cudaProfilerStart
and Stop, and by an NVTX (roctx) range named profiler_tool.RANGE. Knows no torch and no problems.
"""

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.records import KernelFigures, Params
from harness.process.child import search_path
from harness.process.ncu import PERCENTS, Ncu
from harness.process.profiler_tool import Dispatch, Tool
from harness.process.rocprof import Rocprof

JOB, RESULT = "job.json", "profiled.json"  # what the process gets, and what it says


@dataclass(frozen=True, kw_only=True)
class ProfilerJob:
    """What the profiled process of one rank does: a case's input from `seed`, WARM_CALLS calls, and one that counts.
    `sets_device`: the problem takes its device from torch and names none. `starts`: the tool waits for
    cudaProfilerStart. `counts`: there is no tool, and the launches of that call are counted."""

    rank: int
    world_size: int
    device: str
    sets_device: bool
    params: Params
    seed: int
    meeting: str  # the file that the ranks meet in
    port: int
    starts: bool
    counts: bool = False


@dataclass(frozen=True, kw_only=True)
class Said:
    """The profiled process's answer: why it is wrong or raised; launches, if they were counted."""

    wrong: str = ""
    raised: str = ""
    traceback: str = ""
    launches: int = 0


TOOLS: dict[str, Tool] = {"ncu": Ncu(), "rocprof": Rocprof()}


def find(tool: Tool) -> str | None:
    """Where the tool's program is; None if there is none."""
    beside = [str(found) for place in tool.places for found in sorted(Path("/").glob(place.lstrip("/")), reverse=True)]
    return shutil.which(tool.program, path=os.pathsep.join([search_path(), *beside]))


def kernel_figures(rank: int, dispatches: Iterable[Dispatch]) -> tuple[KernelFigures, ...]:
    """The time of each kernel of a rank's call, the longest first. Percentages are means, weighted by time."""
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
    """The tool's reason why it cannot profile, from its output; None if it gives none."""
    for says, advice in tool.complaints:
        if (found := re.search(says, text)) is not None:
            return advice.format(said=found[0])
    return None


def _mean(group: Sequence[Dispatch], key: str) -> float:
    total = sum(one.time_us for one in group)
    return sum(one.percents[key] * one.time_us for one in group) / total if total else 0.0
