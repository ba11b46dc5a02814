"""Several launches of one evaluation: what the first has measured is measured again by fresh processes.

Launches of one source differ by more than their samples show: where memory lies, which core a process got, how a clock
began. So the launch is the unit by which an evaluation knows its figure (core.stats.estimate).
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from harness.core.records import Case, CaseResult, Failure, Measured, NotRun, Outcome
from harness.kinds.kind import Session, SubmissionFailed

T = TypeVar("T")


def launched(session: Session, results: Sequence[CaseResult]) -> list[CaseResult]:
    """The results with the samples of further launches, where all of the first were right. What fails in a later launch
    is the case's outcome, and the end."""
    found = list(results)
    places = [at for at, one in enumerate(found) if one.case.kind == "benchmark"]
    launches = [[one for at in places if isinstance(one := found[at].outcome, Measured)]]
    if not places or len(launches[0]) < len(places):
        return found
    for _ in range(1, session.plan.launches):
        try:
            launches.append(one_more(session, [found[at].case for at in places]))
        except LaunchFailed as failed:
            return with_outcome(found, places[failed.number], failed.outcome)
    for at, measured in zip(places, zip(*launches, strict=True), strict=True):
        found[at] = replace(found[at], outcome=joined(measured))
    return found


class LaunchFailed(SubmissionFailed):
    """A launch that ended at case `number` of those that were to be measured."""

    def __init__(self, number: int, outcome: Failure | NotRun) -> None:
        super().__init__(outcome)
        self.number = number


def one_more(session: Session, cases: Sequence[Case], is_control: bool = False) -> list[Measured]:
    """These cases in another launch. Raises LaunchFailed at the first that fails."""
    measured: list[Measured] = []
    try:
        session.again(is_control)
        [phase] = [phase for phase in session.plan.phases if phase.then == "measure"]
        with session.phase(phase):
            for number, case in enumerate(cases):
                session.progress.case(case.label, number, len(cases))
                measured.append(session.measure_again(case))
    except SubmissionFailed as failed:
        raise LaunchFailed(len(measured), failed.outcome) from None
    return measured


def with_outcome(results: Sequence[CaseResult], at: int, outcome: Outcome) -> list[CaseResult]:
    return [*results[:at], replace(results[at], outcome=outcome), *results[at + 1 :]]


def joined(launches: Sequence[Measured]) -> Measured:
    """One record of a case in several launches: ranked series and blocks are of all, all else is the first's."""
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
    return replace(first, series=(series, *first.series[1:]), blocks=_chained([one.blocks for one in launches]))


def _chained(parts: Sequence[tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(chain.from_iterable(parts))
