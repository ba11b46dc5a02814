"""The best score that a board's machines allow: one limit for all its entries."""

from collections.abc import Sequence

from harness.board.entries import Entry, Group
from harness.core.errors import HarnessError
from harness.judging.scoring import SCORINGS
from harness.machine import hardware
from harness.problems.problem import Problem

DEFAULT_RANKING = "geom"  # of a problem that is not there any more; GPU MODE's default too


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
