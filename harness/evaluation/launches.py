"""Several launches of one evaluation: what the first has measured is measured again by fresh processes.

Launches of one source differ by more than their samples show: where memory lies, which core a process got, how a clock
began. So the launch is the unit by which an evaluation knows its figure (core.stats.estimate).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from harness.core.records import Case, CaseResult, Failure, Measured, Passed
from harness.kinds.kind import Plan, Progress, Session


def launched(plan: Plan, session: Session, progress: Progress, results: Sequence[CaseResult]) -> list[CaseResult]:
    """The results with the samples of further launches, where all of the first were right. What fails in a later launch
    is the case's outcome, and the end."""
    found = list(results)
    places = [at for at, one in enumerate(found) if one.case.kind == "benchmark"]
    launches = [[one for at in places if isinstance(one := found[at].outcome, Measured)]]
    if not places or len(launches[0]) < len(places):
        return found
    for _ in range(1, plan.launches):
        outcomes = one_more(plan, session, progress, [found[at].case for at in places])
        if not isinstance(outcomes, list):
            return with_outcome(found, places[outcomes.number], outcomes.outcome)
        launches.append(outcomes)
    for at, measured in zip(places, zip(*launches, strict=True), strict=True):
        found[at] = replace(found[at], outcome=joined(measured))
    return found


@dataclass(frozen=True, kw_only=True)
class LaunchFailed:
    """A launch that ended at case `number` of those that were to be measured."""

    number: int
    outcome: Failure


def one_more(
    plan: Plan, session: Session, progress: Progress, cases: Sequence[Case], is_control: bool = False
) -> list[Measured] | LaunchFailed:
    """These cases in another launch, up to the first that fails."""
    prepared = session.again(is_control)
    if not isinstance(prepared, Passed):
        return LaunchFailed(number=0, outcome=prepared)
    [phase] = [phase for phase in plan.phases if phase.then == "measure"]
    measured = []
    with session.phase(phase):
        for number, case in enumerate(cases):
            progress.case(case.label, number, len(cases))
            outcome = session.measure_again(case)
            if not isinstance(outcome, Measured):
                return LaunchFailed(number=number, outcome=outcome)
            measured.append(outcome)
    return measured


def with_outcome(results: Sequence[CaseResult], at: int, outcome: Failure) -> list[CaseResult]:
    """The results with that outcome in one's place."""
    return [*results[:at], replace(results[at], outcome=outcome), *results[at + 1 :]]


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
