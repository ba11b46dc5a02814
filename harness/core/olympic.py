"""MLPerf Training's score of several runs, and whether they converged believably. Pure functions.

Source: MLCommons, training_policies: the fastest and the slowest run are dropped and the mean of the others is the
score; one run that does not converge counts as the slowest, with two there is no score. A submission may not converge
in fewer samples than the reference by more than chance allows (t-test, p < 0.05).
"""

import math
import statistics
from collections.abc import Sequence

from harness.core.stats import satterthwaite, student_t
from harness.core.words import count_text

LEAST_RUNS = 3  # without the fastest and the slowest one is left
MOST_FAILED = 1
P_VALUE = 0.05


class NoScoreError(ValueError):
    """These runs have no score: too few of them, or too few that converged."""


def olympic_mean(times: Sequence[float | None]) -> float:
    """The mean of all runs without the fastest and the slowest, in the unit of `times`; None stands for a run that did
    not converge, the slowest.

    Raises NoScoreError for fewer than LEAST_RUNS runs, and for more than MOST_FAILED that did not converge.
    """
    converged = sorted(time for time in times if time is not None)
    failed = len(times) - len(converged)
    if len(times) < LEAST_RUNS:
        raise NoScoreError(f"{count_text(len(times), 'run')}: an Olympic mean needs at least {LEAST_RUNS}")
    if failed > MOST_FAILED:
        raise NoScoreError(f"{failed} of {len(times)} runs did not converge; at most {MOST_FAILED} may")
    return statistics.fmean(converged[1:] if failed else converged[1:-1])


def converges_too_fast(own: Sequence[float], reference: Sequence[float], step: float) -> bool:
    """Whether `own` runs needed fewer samples to the target than the `reference` runs by more than chance allows: a
    one-sided Welch test at P_VALUE. `step` is the number of samples between two evaluations, by which all these numbers
    are rounded; its variance, step**2 / 12, counts with theirs."""
    assert min(len(own), len(reference)) >= 2, "a variance needs two runs"
    rounding = step**2 / 12
    parts = [(statistics.variance(runs) + rounding) / len(runs) for runs in (own, reference)]
    if sum(parts) == 0:
        return statistics.fmean(own) < statistics.fmean(reference)
    t = (statistics.fmean(reference) - statistics.fmean(own)) / math.sqrt(sum(parts))
    freedom = satterthwaite([(part, len(runs) - 1) for part, runs in zip(parts, (own, reference), strict=True)])
    return t > student_t(1 - P_VALUE, max(1, freedom))
