"""The reference beside itself: is it as fast beside the submission? docs/trust.md says how that is decided.

A stopped process's kernel objects go on: its timers, sockets and memory that is being freed take time of the cores that
the reference runs on, and no list of such objects is complete. A ratio to a reference that was slowed down is no
speedup. So there are launches in which the reference takes the submission's place, and no process of the submission
exists. Where the reference fails in LOST of them, nothing will be known: the evaluation ends with an error, and no
result is ranked unseen.
"""

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace

from harness.core.errors import HarnessError
from harness.core.records import Case, CaseResult, Failure, Held, Measured, NotRun
from harness.core.stats import median
from harness.core.words import clean_line
from harness.evaluation.launches import LaunchFailed, joined, one_more, with_outcome
from harness.judging import verdict
from harness.kinds.kind import Session

CASES = 3  # that are looked at, drawn by the run's secret: a file could leave those alone which it knew
SLOWER = math.log(1.05)  # from which on it is looked at again
# Of launches, in all of which the reference has to be slower. On 2 cores at load 6 it was in 9 of 28 pairs of honest
# files, by up to twice (2026-11-25); so one of 10,000 is held there.
PAIRS = 8
LOST = 3  # launches of the reference beside itself that fail; a busy machine may hold one
FEWEST, REUSED = 3, 8  # controls before any is left out, and the most evaluations in a row that have none of their own


class Controls:
    """The reference's times beside itself, of all evaluations on one pool.

    If the reference is as fast beside a submission as it ever was beside itself here, the submission does not slow it
    down, and the evaluation needs no control of its own. After REUSED such evaluations one has it all the same, because
    the machine may have become faster."""

    def __init__(self) -> None:
        self._fastest: dict[tuple[str, int], float] = {}  # of the medians, by case
        self._count = self._reused = 0

    def add(self, cases: Sequence[Case], alone: Sequence[Measured]) -> None:
        """Adds a control run of these cases."""
        for case, measured in zip(cases, alone, strict=True):
            time = median(measured.ranked.baseline)
            self._fastest[_key(case)] = min(time, self._fastest.get(_key(case), time))
        self._count += 1
        self._reused = 0

    def suffice(self, cases: Sequence[Case], beside: Sequence[Measured]) -> bool:
        """Whether they show that the reference was not slowed down in these measurements beside a submission."""
        known = [self._fastest.get(_key(case)) for case in cases]
        if self._count < FEWEST or self._reused >= REUSED or not all(known):
            return False
        logs = [math.log(median(one.ranked.baseline) / time) for one, time in zip(beside, known, strict=True) if time]
        self._reused += 1
        return statistics.fmean(logs) <= SLOWER


def _key(case: Case) -> tuple[str, int]:
    return case.label, case.world_size


def controlled(session: Session, results: Sequence[CaseResult], controls: Controls | None = None) -> list[CaseResult]:
    """The results; of those launches in which the reference was not slower beside the submission, where it was slower
    at first. Held where it was slower in all pairs. `controls`: the pool's, which know all cases. Raises HarnessError
    where the reference fails beside itself again and again."""
    places = [at for at, one in enumerate(results) if one.case.kind == "benchmark"]
    beside = firsts = [outcome for at in places if isinstance(outcome := results[at].outcome, Measured)]
    if not firsts or len(firsts) < len(places):
        return list(results)
    cases = [results[at].case for at in places]
    if controls is not None and controls.suffice(cases, beside):
        return list(results)
    looked = looked_at(len(cases), session.plan.secret) if controls is None else list(range(len(cases)))
    found, logs, lost = list(results), list[float](), 0
    while len(logs) < PAIRS:
        if logs or lost:
            try:
                launches = [one_more(session, cases) for _ in range(session.plan.launches)]
            except LaunchFailed as failed:
                return with_outcome(results, places[failed.number], failed.outcome)
            beside = [joined(one) for one in zip(*launches, strict=True)]
            for at, first, one in zip(places, firsts, beside, strict=True):
                found[at] = replace(found[at], outcome=replace(first, series=(one.ranked, *first.series[1:])))
        try:
            alone = one_more(session, [cases[at] for at in looked], is_control=True)
        except LaunchFailed as failed:
            lost += 1
            if lost == LOST:
                raise HarnessError(_lost(cases[looked[failed.number]], failed.outcome)) from None
            continue
        if controls is not None:
            controls.add(cases, alone)
        logs.append(statistics.fmean(_slower(beside[at], one) for at, one in zip(looked, alone, strict=True)))
        if logs[-1] <= SLOWER:
            return found
    times = " ".join(f"{math.exp(log):.2f}" for log in logs)
    evidence = (
        f"the reference took {times} times as long beside the submission as beside itself, in {PAIRS} pairs of "
        "launches in turn"
    )
    return with_outcome(results, places[looked[0]], Held(check="reference", evidence=evidence))


def _lost(case: Case, outcome: Failure | NotRun) -> str:
    why = clean_line(f"{case.title}: {verdict.word(outcome)}: {verdict.message(outcome)}")
    return (
        f"the reference fails beside itself, {LOST} times, so that nobody knows whether the submission slows it down "
        f"({why}). Next: evaluate again when the machine has less to do; where the reference fails by itself "
        "(`python -m harness check` with a call of it as the submission), correct the problem"
    )


def looked_at(count: int, secret: int) -> list[int]:
    """The numbers of the cases, of so many, in which the reference is timed beside itself."""
    return random.Random(secret).sample(range(count), CASES) if count > CASES else list(range(count))


def _slower(beside: Measured, alone: Measured) -> float:
    """log(the reference's time beside the submission / beside itself)."""
    return math.log(median(beside.ranked.baseline) / median(alone.ranked.baseline))
