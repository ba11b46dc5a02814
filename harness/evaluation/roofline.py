"""What no kernel can beat: shape by shape, on a GPU of the hardware table or on this machine, and over a board.

For each shape there are the three times of hardware.bound, which of them binds, and beside them the limit that the
problem's shape file has as published. Where that is well above our limit for the GPU that it was published for, it is
no limit, and a note says so. Computes from shapes and known peaks alone: no ranks, no torch, no measurement.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from harness.board.entries import Entry, Group
from harness.core.decode import part
from harness.core.errors import HarnessError, UsageError
from harness.core.machine_records import Peaks
from harness.core.records import Case, Params
from harness.core.stats import geomean
from harness.judging.scoring import SCORINGS
from harness.machine import hardware
from harness.machine.gpus import gpu_names
from harness.problems.problem import OFFICIAL, Problem, Suite

DEFAULT_RANKING = "geom"  # of a problem that is not there any more; GPU MODE's default too
NO_BOUND = 1.05  # published / bound above this: not a rounding of the bound


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One benchmark shape. `flop_per_byte` is the arithmetic intensity over memory traffic (None without any).
    `published_ratio` is the published value, if any, over our bound for the machine that it was published for."""

    params: Params
    flops: float
    hbm_bytes: float
    link_bytes: float
    flops_us: float
    hbm_us: float
    link_us: float
    bound_us: float
    bound_by: str
    flop_per_byte: float | None
    published_us: float | None
    published_ratio: float | None
    note: str


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """The benchmark shapes of a suite on `world_size` GPUs with `peaks` each; `hardware` as it was asked for."""

    problem: str
    suite: str
    world_size: int
    hardware: str
    peaks: Peaks
    rows: tuple[Shape, ...]
    geomean_bound_us: float
    short: dict[str, str]  # the parameters' short names
    published_on: str | None  # `8x MI300X`
    published_by: str | None


def roofline(problem: Problem, suite: Suite, hardware_name: str, peaks: Peaks) -> Roofline:
    """The bound of every benchmark of `suite`. Anchor: gemm_rs, official, MI300X: 6.46 8.19 23.04 65.54 131.07
    379.43 us, geometric mean 39.80."""
    rows = tuple(_shape(problem, case, peaks) for case in suite.benchmarks)
    published, official = problem.published, problem.suite(OFFICIAL)
    return Roofline(
        problem=problem.name,
        suite=suite.name,
        world_size=suite.benchmarks[0].world_size,
        hardware=hardware_name,
        peaks=peaks,
        rows=rows,
        geomean_bound_us=geomean([row.bound_us for row in rows]),
        short=problem.short,
        published_on=f"{official.benchmarks[0].world_size}x {published.gpu}" if published else None,
        published_by=published.what if published else None,
    )


def _shape(problem: Problem, case: Case, peaks: Peaks) -> Shape:
    cost = problem.cost(case)
    times_us = hardware.times_us(cost, peaks)
    limit = hardware.limit(cost, peaks)
    if limit is None:
        raise UsageError(f"{problem.name}: {case.label}: nothing that cost() counts has a rate here; name --hardware")
    ratio = 0.0
    if case.published_us is not None and problem.published is not None:
        ratio = case.published_us / hardware.bound(cost, hardware.peaks(problem.published.gpu))[0]
    return part(
        cost,
        Shape,
        params=case.params,
        flops_us=times_us["flops"],
        hbm_us=times_us["hbm"],
        link_us=times_us["link"],
        bound_us=limit.value,
        bound_by=limit.by,
        flop_per_byte=cost.flops / cost.hbm_bytes if cost.hbm_bytes else None,
        published_us=case.published_us,
        published_ratio=ratio or None,
        note=f"not a limit: {ratio:.2f} times ours, so a fraction of it can pass 1" if ratio > NO_BOUND else "",
    )


def peaks_of(name: str | None, measured: Peaks | None = None, names: Sequence[str] | None = None) -> tuple[str, Peaks]:
    """The hardware that was asked for, or the machine's own GPU (`names`: what its GPUs are called), or else this
    machine as an evaluation has measured it.

    Raises UsageError, with the names the table has, where it is not known.
    """
    if name is not None:
        device = hardware.match(name)
        return name, device if device is not None else hardware.peaks(name)
    own = tuple(gpu_names() if names is None else names)
    known = own[0] if own else "no GPU"
    peaks = hardware.match(known)
    if peaks is None and measured is not None:
        return "this machine", measured
    if peaks is None:
        table = yaml.safe_load(hardware.TABLE.read_text())["gpus"]  # match() above has checked the file
        what = f"this machine's {known} is not in hardware.yaml" if own else "this machine has no GPU"
        raise UsageError(
            f"{what}, and its peaks have not been measured for this number of ranks: `python -m harness eval` measures "
            f"them once; or choose a GPU with --hardware (known: {', '.join(table)})"
        )
    return known, peaks


def board_limit(
    entries: Sequence[Entry], limits_us: Sequence[Sequence[float | None]], group: Group, problem: Problem | None
) -> float | None:
    """One limit for a board whose scores are times, in seconds: over the bounds of the best entry that has one of every
    case (`limits_us`, by entry and case); else over the suite's shapes on a GPU that hardware.yaml knows; else, on a
    CPU, whose only clock a fraction is of, from the best entry's fraction."""
    if any(one.score.unit != "s" for one in entries):
        return None
    over = SCORINGS[problem.ranking_by if problem else DEFAULT_RANKING]
    for known_us in limits_us:
        limits_s = [limit / 1e6 for limit in known_us if limit is not None]
        if limits_s and len(limits_s) == len(known_us):
            return over.total(limits_s, limits_s)
    if limits_s := _computed_s(group, problem):
        return over.total(limits_s, limits_s)
    return next((one.score.value * one.fraction for one in entries if one.device == "cpu" and one.fraction), None)


def _computed_s(group: Group, problem: Problem | None) -> list[float]:
    """The bounds of a suite's benchmarks on the GPUs of that machine class; none where anything of it is not known."""
    _, suite, machine_class, world_size = group
    peaks = hardware.of_class(machine_class, world_size)
    if problem is None or peaks is None:
        return []
    try:
        cases = problem.with_world_size(problem.suite(suite), world_size).benchmarks
        return [hardware.bound(problem.cost(case), peaks)[0] / 1e6 for case in cases]
    except (HarnessError, TypeError, ValueError):  # another suite, or a problem that says no cost
        return []
