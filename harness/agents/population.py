"""A population judged in stages: what is unreadable or a copy is never run, what is wrong never timed for long.

The order: parse; copies by normalised source; `check` on CPU ranks, if asked for; `screen`, the suite's tests and the
quick shapes; `full`, for the best part of those that pass (successive halving). With `keep` 1 every candidate that
passes gets the full suite, and none is screened.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from harness.agents.candidates import Candidate, firsts
from harness.agents.journal import Journal
from harness.agents.judge import Stage
from harness.agents.result import Result
from harness.core.errors import UsageError
from harness.core.records import Submission
from harness.core.words import percent_text

LEFT_OUT = "it is right, but not among the fastest {} on the quick shapes: `--keep 1` measures every candidate"


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
class How:
    """`keep`: the fraction of the candidates that pass the quick shapes and get the full suite, at least `least` of
    them. `check`: CPU ranks come first. `jobs`: on how many GPUs side by side, of all that there are where it is None;
    `out`: the file of the results."""

    keep: float = 0.25
    least: int = 4
    check: bool = False
    jobs: int | None = None
    out: Path | None = None

    def __post_init__(self) -> None:
        if not 0 < self.keep <= 1:
            raise UsageError(f"keep {self.keep}: a part above 0, at most 1, of the candidates can be kept")
        for name, count in (("least", self.least), ("jobs", self.jobs)):
            if count is not None and count < 1:
                raise UsageError(f"{name} {count}: a whole number above 0 is needed")

    def stages(self, device: str, has_screen: bool) -> tuple[Stage, ...]:
        """The stages on that device; `has_screen`: there are quick shapes beside the suite."""
        first: tuple[Stage, ...] = ("check",) if self.check and device != "cpu" else ()
        return (*first, "screen", "full") if has_screen and self.keep < 1 else (*first, "full")


def judged(
    candidates: Sequence[Candidate],
    hands: Hands,
    how: How,
    stages: Sequence[Stage],
    journal: Journal,
    refuse: Callable[..., Result],
) -> Iterator[Result]:
    """The results that the journal has not yet, as they come; each is in the journal before it is handed out. `refuse`
    is made.refused for these candidates: the result of one that cannot be read."""
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
                journal.add(found)
                yield found

    for one in originals.values():
        if one.why is not None:
            yield from settled(replace(refuse(one.why, submission=one.submission), id=one.id))
        elif one.id in journal.results:  # a kill may have come between it and its copies
            yield from settled(journal.results[one.id])
    left = [one for one in originals.values() if one.why is None and one.id not in journal.results]
    if "check" in stages:
        passed = []
        for done in hands.run([_task(one, "check") for one in left if one.id not in journal.screened]):
            if done.verdict == "pass":
                passed.append(done.id)
            else:
                yield from settled(done)
        left = [one for one in left if one.id in passed or one.id in journal.screened]
    if "screen" in stages:
        for done in hands.run([_task(one, "screen") for one in left if one.id not in journal.screened]):
            if done.verdict == "pass" and done.figures is not None:
                journal.add_screened(done)
            else:
                yield from settled(done)
        best = survivors([journal.screened[id_] for id_ in originals if id_ in journal.screened], how)
        for result in journal.screened.values():
            if result.id not in best and result.id in originals:
                yield from settled(replace(result, next=LEFT_OUT.format(percent_text(how.keep))))
        left = [one for one in left if one.id in best]
    for done in hands.run([_task(one, "full") for one in left if one.id not in journal.results]):
        yield from settled(done)


def survivors(screened: Sequence[Result], how: How) -> set[str]:
    """The ids of the best, by speedup on the quick shapes."""
    count = min(len(screened), max(how.least, math.ceil(how.keep * len(screened))))
    ordered = sorted(screened, key=lambda one: (-(one.speedup or 0.0), one.id))
    return {one.id for one in ordered[:count]}


def _task(one: Candidate, stage: Stage) -> Trial:
    return Trial(id=one.id, stage=stage, submission=one.submission)
