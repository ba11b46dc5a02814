"""The reference beside itself: is it as fast beside the submission?

A stopped process's kernel objects go on: its timers, sockets and memory that is being freed take time of the cores that
the reference runs on, and no list of such objects is complete. A ratio to a reference that was slowed down is no
speedup. So after the launches of a ranked evaluation on CPU cores there is one in which the reference takes the
submission's place, and no process of the submission exists. If the reference was slower beside the submission, the two
are launched again, in turn. The result is held if it was so every time: what other work on the machine does comes and
goes, and meets either of them.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from harness.core.records import Case, CaseResult, Failure, Held, Measured, Passed, Series
from harness.core.stats import median
from harness.kinds.kind import Plan, Progress, Relaunching

CASES = 3  # that are looked at, those whose reference takes the least time: nothing is slowed down more cheaply
SLOWER = math.log(1.05)  # from which on it is looked at again
# Of launches, in all of which the reference has to be slower. On 2 cores at load 6 it was in 9 of 28 pairs of honest
# files, by up to twice (2026-11-25); so one of 10,000 is held there.
PAIRS = 8


def controlled(plan: Plan, session: Relaunching, progress: Progress, results: Sequence[CaseResult]) -> list[CaseResult]:
    """The results; held where the reference was slower beside the submission in every pair of launches."""
    found = list(results)
    measured = [(at, one.outcome) for at, one in enumerate(found) if isinstance(one.outcome, Measured)]
    if not measured or len(measured) < sum(one.case.kind == "benchmark" for one in found):
        return found
    measured = sorted(measured, key=lambda one: median(one[1].ranked.baseline))[:CASES]
    cases = [found[at].case for at, _ in measured]
    beside = [_times(outcome.ranked) for _, outcome in measured]
    logs: list[float] = []
    for number in range(PAIRS):
        if number:
            if not isinstance(again := _launch(plan, session, progress, cases, is_control=False), list):
                return _with(found, measured[0][0], again)
            beside = again
        if not isinstance(alone := _launch(plan, session, progress, cases, is_control=True), list):
            return found  # the reference fails beside itself: nothing is known of the submission
        logs.append(statistics.fmean(map(_slower, beside, alone)))
        if logs[-1] <= SLOWER:
            return found
    times = " ".join(f"{math.exp(log):.2f}" for log in logs)
    evidence = (
        f"the reference took {times} times as long beside the submission as beside itself, in {PAIRS} pairs of "
        "launches in turn"
    )
    return _with(found, measured[0][0], Held(check="reference", evidence=evidence))


def _launch(
    plan: Plan, session: Relaunching, progress: Progress, cases: Sequence[Case], is_control: bool
) -> list[tuple[float, ...]] | Failure:
    """The reference's times in each of these cases, in a launch of its own."""
    prepared = session.again(is_control)
    if not isinstance(prepared, Passed):
        return prepared
    [phase] = [phase for phase in plan.phases if phase.then == "measure"]
    times = []
    with session.phase(phase):
        for number, case in enumerate(cases):
            progress.case(case.label, number, len(cases))
            outcome = session.measure_again(case)
            if not isinstance(outcome, Measured):
                return outcome
            times.append(_times(outcome.ranked))
    return times


def _times(series: Series) -> tuple[float, ...]:
    return series.baseline


def _slower(beside: Sequence[float], alone: Sequence[float]) -> float:
    """log(beside / alone)."""
    return math.log(median(beside) / median(alone))


def _with(results: list[CaseResult], at: int, outcome: Failure) -> list[CaseResult]:
    return [*results[:at], replace(results[at], outcome=outcome), *results[at + 1 :]]
