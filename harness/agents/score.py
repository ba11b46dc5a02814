"""What a population comes to: pass@k, fast_p, the SOL score and the best of n, with intervals over problems.

Pure functions over results. A problem's candidates are taken as drawn from one source of candidates; problems are what
intervals resample, so one problem has none. What is not ranked counts as not fast; copies count, since a source that
repeats itself has drawn the same candidate again. What ended in an error of the harness or the machine says nothing of
its candidate: it is counted by itself, and no figure has it.
"""

import math
import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from harness.agents.result import Interval, Result
from harness.agents.reward import sol_score

SCHEMA = 1  # of `score --json`; 1: first
KS = (1, 2, 4, 8, 16, 32, 64, 128)
PS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
RESAMPLES, SEED = 2000, 20240229  # any fixed seed: the same results give the same interval
TAIL = 0.025
FEWEST = 2  # problems, for an interval


@dataclass(frozen=True, kw_only=True)
class ScorePoint:
    """A figure at `at`: k of pass@k, p of fast_p."""

    at: float
    figure: Interval


@dataclass(frozen=True, kw_only=True)
class OfProblem:
    """One problem's candidates: how many were judged, passed and were ranked, how many were left out on the quick
    shapes, by how many distinct codes; the best speedup of a ranked one, and whose that is. `errors` more could not be
    judged."""

    problem: str
    candidates: int
    distinct: int
    passed: int
    ranked: int
    left_out: int
    best: float | None
    best_id: str
    verdicts: dict[str, int]
    errors: int = 0


@dataclass(frozen=True, kw_only=True)
class PopulationScore:
    """Figures over all problems with a candidate that was judged; none where there is no such problem. `best_of_n` is
    the geometric mean over problems of the best candidate's speedup, where the reference (1) stands for a problem
    without one that is faster; `sol` the mean SOL score over problems with a limit, None where none has one here."""

    problems: tuple[OfProblem, ...]
    pass_at: tuple[ScorePoint, ...] = ()
    fast: tuple[ScorePoint, ...] = ()
    sol: Interval | None = None
    best_of_n: Interval | None = None
    mean_reward: Interval | None = None
    schema: int = SCHEMA


def score_of(results: Iterable[Result]) -> PopulationScore:
    """The score of these results; each candidate counts once."""
    by_problem: dict[str, list[Result]] = {}
    for one in results:
        by_problem.setdefault(one.problem, []).append(one)
    judged = {name: [one for one in found if one.verdict != "error"] for name, found in by_problem.items()}
    groups = list(filter(None, judged.values()))
    problems = tuple(_of_problem(name, judged[name], found) for name, found in by_problem.items())
    if not groups:
        return PopulationScore(problems=problems)
    most = min(map(len, groups))
    limited = [group for group in groups if _has_limit(group) is not False]
    return PopulationScore(
        problems=problems,
        pass_at=tuple(ScorePoint(at=k, figure=_over(groups, partial(_pass_at, k=k))) for k in KS if k <= most),
        fast=tuple(ScorePoint(at=p, figure=_over(groups, partial(fast, p=p))) for p in PS),
        sol=_over(limited, lambda group: statistics.fmean(map(sol, group))) if any(map(_has_limit, groups)) else None,
        best_of_n=_over(groups, lambda group: math.log(max(1.0, _best(group)[0] or 1.0)), math.exp),
        mean_reward=_over(groups, lambda group: statistics.fmean(one.reward.value for one in group)),
    )


def pass_at(n: int, c: int, k: int) -> float:
    """The probability that one of k candidates passes, where c of n did: 1 - C(n - c, k) / C(n, k), the unbiased
    estimator of M. Chen et al., "Evaluating Large Language Models Trained on Code", 2021."""
    return 1 - math.comb(n - c, k) / math.comb(n, k)


def fast(group: Sequence[Result], p: float) -> float:
    """The part of the candidates that are ranked and more than p times as fast as the reference: KernelBench's fast_p
    (A. Ouyang et al., 2025). fast_0 is the part that is ranked."""
    return sum(one.ranked and (one.speedup or 0.0) > p for one in group) / len(group)


def sol(result: Result) -> float:
    """The SOL score of a ranked result; 0 for any other, and where no limit is known."""
    if not result.ranked or result.figures is None:
        return 0.0
    times = result.figures.times
    if result.is_reference:
        times = [(baseline, baseline, limit) for _, baseline, limit in times]
    return sol_score(1.0, 1.0, times)[0]


def _has_limit(group: Sequence[Result]) -> bool | None:
    """Whether the problem has a limit here, by its candidates' figures; None where none has any."""
    times = [one.figures.times for one in group if one.figures is not None]
    return any(limit is not None for one in times for _, _, limit in one) if times else None


def _passed(group: Sequence[Result]) -> int:
    return sum(one.verdict == "pass" for one in group)


def _pass_at(group: Sequence[Result], k: int) -> float:
    return pass_at(len(group), _passed(group), k)


def _best(group: Sequence[Result]) -> tuple[float | None, str]:
    found = [(value, one.id) for one in group if one.ranked and (value := one.speedup) is not None]
    return max(found, default=(None, ""), key=lambda pair: pair[0] or 0.0)


def _of_problem(name: str, group: Sequence[Result], everything: Sequence[Result]) -> OfProblem:
    """`group` has those of `everything` that were judged."""
    best, best_id = _best(group)
    words = [one.verdict for one in everything]
    return OfProblem(
        problem=name,
        candidates=len(group),
        distinct=len({one.code or one.sha256 or one.id for one in group}),
        passed=_passed(group),
        ranked=sum(one.ranked for one in group),
        left_out=sum(one.verdict == "pass" and not one.ranked for one in group),
        best=best,
        best_id=best_id,
        verdicts={word: words.count(word) for word in sorted(set(words))},
        errors=len(everything) - len(group),
    )


def _over(
    groups: Sequence[Sequence[Result]],
    figure: Callable[[Sequence[Result]], float],
    back: Callable[[float], float] = float,
) -> Interval:
    """The mean of the figure over problems, of which there is one, with the percentile interval of a bootstrap."""
    values = [figure(group) for group in groups]
    mean = back(statistics.fmean(values))
    if len(values) < FEWEST:
        return Interval(value=mean)
    rng = random.Random(SEED)
    means = sorted(statistics.fmean(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    low, high = (means[int(part * (RESAMPLES - 1))] for part in (TAIL, 1 - TAIL))
    return Interval(value=mean, low=back(low), high=back(high))
