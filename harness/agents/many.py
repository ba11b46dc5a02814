"""A population from start to end: who judges it, in which stages, and where its results go."""

import contextlib
from collections.abc import Iterator, Sequence

from harness.agents.candidates import Candidate
from harness.agents.journal import Journal, Nowhere
from harness.agents.judge import Judge
from harness.agents.population import Hands, How, judged
from harness.agents.result import Result
from harness.agents.workers import Here, Workers, environs_of


def many(judge: Judge, candidates: Sequence[Candidate], how: How) -> Iterator[Result]:
    """The results that `how.out` lacks, as they come. Raises as a Judge, and UsageError for a wrong `out`."""
    made, terms = judge.setting, judge.terms
    stages = how.stages(made.device, judge.screening is not None and terms.mode == "leaderboard")
    with contextlib.ExitStack() as stack:
        journal = Nowhere() if how.out is None else stack.enter_context(Journal(how.out))
        digests = {one.id: one.submission.sha256 for one in candidates}
        where = (made.suite.name, made.device, made.world_size, made.problem.name)
        journal.check(digests, *where, terms.reward, terms.lower)
        hands: Hands = Here(judge)
        if len(environs := environs_of(made.device, made.world_size, how.jobs)) > 1:
            hands = stack.enter_context(Workers(terms, judge.checkout, environs))
        yield from judged(candidates, hands, how, stages, journal, judge.refuse)
