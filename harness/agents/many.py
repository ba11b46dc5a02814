"""A population from start to end: who judges it, in which stages, and where its results go."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.agents.candidates import Candidate
from harness.agents.journal import Journal
from harness.agents.judge import Judge, Stage
from harness.agents.population import Cascade, Hands, judged
from harness.agents.result import Result
from harness.agents.workers import Here, Workers, environs_of
from harness.core.decode import part
from harness.core.errors import HarnessError, UsageError

# Threads that wait for one another sleep. As they are they would spin, on cores that other candidates need.
PATIENT = {"OMP_WAIT_POLICY": "passive"}
LANES, LANES_FROM = 4, 32  # how many candidates are tested side by side, from so many on: judges take seconds to start


@dataclass(frozen=True, kw_only=True)
class How:
    """`keep` and `least` as Cascade's; `check`: CPU ranks come first; `jobs`: on how many GPUs side by side, of all
    that there are where it is None; `lanes`: how many candidates are tested side by side on each of them, LANES where
    it is None and there are LANES_FROM; `out`: the file of the results."""

    keep: float = 0.25
    least: int = 4
    check: bool = False
    jobs: int | None = None
    lanes: int | None = None
    out: Path | None = None

    def __post_init__(self) -> None:
        if not 0 < self.keep <= 1:
            raise UsageError(f"keep {self.keep}: a part above 0, at most 1, of the candidates can be kept")
        for name, count in (("least", self.least), ("jobs", self.jobs), ("lanes", self.lanes)):
            if count is not None and count < 1:
                raise UsageError(f"{name} {count}: a whole number above 0 is needed")


def many(judge: Judge, candidates: Sequence[Candidate], how: How) -> Iterator[Result]:
    """The results that `how.out` lacks, as they come. Raises as a Judge, and UsageError for a wrong `out`."""
    made, terms = judge.setting, judge.terms
    lanes = min(how.lanes or (LANES if len(candidates) >= LANES_FROM else 1), len(candidates))
    is_in: dict[Stage, bool] = {
        "check": how.check and made.device != "cpu",
        "test": lanes > 1 and made.world_size == 1 and terms.mode != "test" and judge.is_pooled,
        "screen": judge.screening is not None and terms.mode == "leaderboard",
        "full": True,
    }
    cascade = part(how, Cascade, stages=tuple(stage for stage, is_asked in is_in.items() if is_asked))
    environs = environs_of(made.device, made.world_size, how.jobs)
    with contextlib.ExitStack() as stack:
        journal = stack.enter_context(Journal(how.out))
        digests = {one.id: one.submission.sha256 for one in candidates}
        journal.check(digests, judge.conditions)
        alone: Hands = Here(judge)
        if len(environs) > 1:
            alone = stack.enter_context(Workers(terms, judge.checkout, environs))

        def hands_of(stage: Stage) -> contextlib.AbstractContextManager[Hands]:
            if stage != "test":
                return contextlib.nullcontext(alone)
            with contextlib.suppress(HarnessError):  # which every candidate will meet
                judge.prepare()  # while nothing else runs
            return Workers(terms, judge.checkout, [environ | PATIENT for environ in environs] * lanes)

        yield from judged(candidates, hands_of, cascade, journal, judge.refuse)
