"""Several launches of one evaluation: what the first has measured is measured again by fresh processes.

Launches of one source differ by more than their samples show: where memory lies, which core a process got, how a clock
began. So the launch is the unit by which an evaluation knows its figure (core.stats.estimate).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from harness.core.records import CaseResult, Failure, Measured, Passed
from harness.kinds.kind import Plan, Progress, Relaunching


def launched(plan: Plan, session: Relaunching, progress: Progress, results: Sequence[CaseResult]) -> list[CaseResult]:
    """The results with the samples of further launches, where all of the first were right. What fails in a later launch
    is the case's outcome, and the end."""
    found = list(results)
    measured = [at for at, one in enumerate(found) if one.case.kind == "benchmark"]
    if not measured or not all(isinstance(found[at].outcome, Measured) for at in measured):
        return found
    by_launch = {at: [found[at].outcome] for at in measured}
    for at, outcome in _further(plan, session, progress, found, measured):
        if not isinstance(outcome, Measured):
            return [*found[:at], replace(found[at], outcome=outcome), *found[at + 1 :]]
        by_launch[at].append(outcome)
    for at, outcomes in by_launch.items():
        found[at] = replace(found[at], outcome=joined([one for one in outcomes if isinstance(one, Measured)]))
    return found


def _further(
    plan: Plan, session: Relaunching, progress: Progress, results: Sequence[CaseResult], measured: Sequence[int]
) -> Iterator[tuple[int, Measured | Failure]]:
    """The outcomes of the launches to come, each with its case's place among the results."""
    [phase] = [phase for phase in plan.phases if phase.then == "measure"]
    for _ in range(1, plan.launches):
        prepared = session.again()
        if not isinstance(prepared, Passed):
            yield measured[0], prepared
            return
        with session.phase(phase):
            for number, at in enumerate(measured):
                progress.case(results[at].case.label, number, len(measured))
                yield at, session.measure_again(results[at].case)


def joined(launches: Sequence[Measured]) -> Measured:
    """One record of a case in several launches: the ranked series has the samples of all, all else is the first's."""
    first = launches[0]
    ranked = [one.ranked for one in launches]
    claims = [one.own_claims or one.own for one in ranked] if any(one.own_claims for one in ranked) else []
    series = replace(
        first.ranked,
        own=_chained([one.own for one in ranked]),
        baseline=_chained([one.baseline for one in ranked]),
        own_claims=_chained(claims),
        launches=tuple(len(one.own) for one in ranked),
    )
    return replace(first, series=(series, *first.series[1:]))


def _chained(parts: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(chain.from_iterable(parts))
