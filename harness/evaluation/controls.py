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

from harness.core.records import CaseResult, Held, Measured
from harness.core.stats import median
from harness.evaluation.launches import LaunchFailed, one_more, with_outcome
from harness.kinds.kind import Plan, Progress, Relaunching

CASES = 3  # that are looked at, those whose reference takes the least time: nothing is slowed down more cheaply
SLOWER = math.log(1.05)  # from which on it is looked at again
# Of launches, in all of which the reference has to be slower. On 2 cores at load 6 it was in 9 of 28 pairs of honest
# files, by up to twice (2026-11-25); so one of 10,000 is held there.
PAIRS = 8


def controlled(plan: Plan, session: Relaunching, progress: Progress, results: Sequence[CaseResult]) -> list[CaseResult]:
    """The results; held where the reference was slower beside the submission in every pair of launches."""
    benchmarks = [(at, one.outcome) for at, one in enumerate(results) if one.case.kind == "benchmark"]
    measured = [(at, outcome) for at, outcome in benchmarks if isinstance(outcome, Measured)]
    if not measured or len(measured) < len(benchmarks):
        return list(results)
    measured = sorted(measured, key=lambda one: median(one[1].ranked.baseline))[:CASES]
    places, cases = [at for at, _ in measured], [results[at].case for at, _ in measured]
    beside: list[Measured] | LaunchFailed = [outcome for _, outcome in measured]
    logs: list[float] = []
    for number in range(PAIRS):
        if number:
            beside = one_more(plan, session, progress, cases)
        if isinstance(beside, LaunchFailed):
            return with_outcome(results, places[beside.number], beside.outcome)
        alone = one_more(plan, session, progress, cases, is_control=True)
        if isinstance(alone, LaunchFailed):
            return list(results)  # the reference fails beside itself: nothing is known of the submission
        logs.append(statistics.fmean(map(_slower, beside, alone)))
        if logs[-1] <= SLOWER:
            return list(results)
    times = " ".join(f"{math.exp(log):.2f}" for log in logs)
    evidence = (
        f"the reference took {times} times as long beside the submission as beside itself, in {PAIRS} pairs of "
        "launches in turn"
    )
    return with_outcome(results, places[0], Held(check="reference", evidence=evidence))


def _slower(beside: Measured, alone: Measured) -> float:
    """log(the reference's time beside the submission / beside itself)."""
    return math.log(median(beside.ranked.baseline) / median(alone.ranked.baseline))
