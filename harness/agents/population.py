"""A population judged in stages: what is unreadable or a copy is never run, what is wrong never timed for long.

The order: parse; copies by normalised source; `check` on CPU ranks, if asked for; `test`, the suite's tests, of several
candidates side by side; `time`, the suite's shapes in little time, or `screen`, with the tests before, for those that
have not passed them; `full`, for the best part of those that pass (successive halving). With `keep` 1 every candidate
that passes gets the full suite, and none is screened. Nothing is timed before all candidates were tested.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from harness.agents.candidates import Candidate, firsts
from harness.agents.journal import Journal
from harness.agents.judge import Stage
from harness.agents.result import Result
from harness.core.errors import HarnessError
from harness.core.records import Submission
from harness.core.words import IDLE, percent_text

# What a candidate may fail by because of those beside it: it is judged alone then.
BESIDE = re.compile("memory|CUDA|HIP|not on turn|do not stop")


@dataclass(frozen=True, kw_only=True)
class Trial:
    id: str
    stage: Stage
    submission: Submission


class Hands(Protocol):
    """Carries out tasks: this process, or one for each GPU."""

    def run(self, tasks: Iterable[Trial]) -> Iterator[Result]:
        """The result of each task, under its id, in any order, as they are done."""
        ...


@dataclass(frozen=True, kw_only=True)
class Cascade:
    """The stages of a population, in order. `keep`: the fraction of the candidates that pass the screening and get the
    full suite, at least `least` of them; of 1, none is screened."""

    keep: float = 0.25
    least: int = 4
    stages: tuple[Stage, ...] = ("screen", "full")


def judged(
    candidates: Sequence[Candidate],
    hands_of: Callable[[Stage], AbstractContextManager[Hands]],
    cascade: Cascade,
    journal: Journal,
    refuse: Callable[[HarnessError, Submission], Result],
) -> Iterator[Result]:
    """The results that the journal has not yet, as they come; each is in the journal before it is handed out.
    `hands_of` has who carries out a stage. `refuse` is made.refused for these candidates: the result of one that cannot
    be read."""
    first_of = firsts(candidates)
    copies: dict[str, list[Candidate]] = {}
    for one in candidates:
        if first_of[one.id] != one.id:
            copies.setdefault(first_of[one.id], []).append(one)
    originals = {one.id: one for one in candidates if first_of[one.id] == one.id}

    def settled(result: Result) -> Iterator[Result]:
        one = originals[result.id]
        alike = [replace(result, code=one.code)]
        alike += [
            replace(alike[0], id=copy.id, file=copy.submission.name, sha256=copy.submission.sha256, copy_of=result.id)
            for copy in copies.get(result.id, ())
        ]
        for found in alike:
            if found.id not in journal.results:
                journal.results.add(found)
                yield found

    for one in originals.values():
        if one.why is not None:
            yield from settled(replace(refuse(one.why, one.submission), id=one.id))
        elif one.id in journal.results:  # a kill may have come between it and its copies
            yield from settled(journal.results[one.id])
    left = [one for one in originals.values() if one.why is None and one.id not in journal.results]
    for stage in (stage for stage in cascade.stages if stage in ("check", "test")):
        failed = set()
        done_before = journal.tested.keys() | journal.screened.keys()
        for done in _run(hands_of, stage, [one for one in left if one.id not in done_before]):
            if done.verdict != "pass" and not (stage == "test" and _may_be_others(done)):
                failed.add(done.id)
                yield from settled(done)
            elif stage == "test" and done.verdict == "pass":
                journal.tested.add(done)
        left = [one for one in left if one.id not in failed]
    if "screen" in cascade.stages and cascade.keep < 1:
        waiting = [one for one in left if one.id not in journal.screened]
        tested = [one for one in waiting if one.id in journal.tested]
        untested = [one for one in waiting if one.id not in journal.tested]
        for done in itertools.chain(_run(hands_of, "time", tested), _run(hands_of, "screen", untested)):
            if done.verdict == "pass" and done.figures is not None:
                journal.screened.add(done)
            else:
                yield from settled(done)
        best = survivors([journal.screened[id_] for id_ in originals if id_ in journal.screened], cascade)
        for result in journal.screened.values():
            if result.id not in best and result.id in originals:
                yield from settled(_left_out(result, cascade))
        left = [one for one in left if one.id in best]
    for done in _run(hands_of, "full", [one for one in left if one.id not in journal.results]):
        yield from settled(done)


def survivors(screened: Sequence[Result], cascade: Cascade) -> set[str]:
    """The ids of the best, by the speedup that the screening found."""
    count = min(len(screened), max(cascade.least, math.ceil(cascade.keep * len(screened))))
    ordered = sorted(screened, key=lambda one: (-(one.speedup or 0.0), one.id))
    return {one.id for one in ordered[:count]}


def _run(
    hands_of: Callable[[Stage], AbstractContextManager[Hands]], stage: Stage, candidates: Sequence[Candidate]
) -> Iterator[Result]:
    if candidates:
        with hands_of(stage) as hands:
            yield from hands.run([Trial(id=one.id, stage=stage, submission=one.submission) for one in candidates])


def _may_be_others(result: Result) -> bool:
    """Whether a candidate may have failed because of others that ran beside it."""
    said = result.evidence.message if result.evidence else ""
    is_slow = result.verdict == "timed_out" and IDLE not in said
    return is_slow or result.verdict in ("held", "error") or BESIDE.search(said) is not None


def _left_out(result: Result, cascade: Cascade) -> Result:
    part = percent_text(cascade.keep)
    hint = f"it is right, but not among the fastest {part} when screened: `--keep 1` measures every candidate"
    return replace(result, next=hint)
