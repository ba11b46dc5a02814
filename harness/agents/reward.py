"""What a training loop may optimise: functions from a ranked result's figures to one number.

A result that is not ranked has the reward 0, whatever a function would say.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Function = Literal["log2_speedup", "sol_score"]
NAMES: tuple[Function, ...] = get_args(Function)
Times = tuple[float, float, float | None]  # of a shape: the submission's, the reference's, the limit


@dataclass(frozen=True, kw_only=True)
class Reward:
    """The reward and how it was computed. `lower`: from the lower end of the speedup's interval. `why` says why it is
    0 or doubtful, or what of the function did not apply."""

    value: float
    function: Function
    lower: bool = False
    why: str = ""

    def __post_init__(self) -> None:
        if not (0 <= self.value < math.inf):
            raise ValueError(f"expected a reward of 0 or more, found {self.value}")


def log2_speedup(speedup: float, share: float, times: Sequence[Times]) -> tuple[float, str]:
    """log2 of the speedup: 1 is twice as fast as the reference, 2 four times. Not below 0, so that a submission that is
    right and slow is never worth less than a wrong one. `share` is the part of the speedup that counts."""
    value = math.log2(speedup * share)
    return (value, "") if value > 0 else (0.0, "not faster than the reference")


def sol_score(speedup: float, share: float, times: Sequence[Times]) -> tuple[float, str]:
    """The mean over shapes of 1 / (1 + (t - limit) / (reference - limit)), as SOL-ExecBench scores kernels
    (arXiv 2603.19173, 2026): 0.5 is as fast as the reference, 1 as fast as the limit. Where the reference is not slower
    than the limit, a shape's score is limit / t, at most 1."""
    if any(limit is None for _, _, limit in times) or not times:
        return 0.0, "the problem has no limit on this machine"
    return statistics.fmean(_sol(own / share, baseline, limit or 0.0) for own, baseline, limit in times), ""


def _sol(own: float, baseline: float, limit: float) -> float:
    if baseline <= limit:
        return min(1.0, limit / own)
    return 1 / (1 + max(0.0, own - limit) / (baseline - limit))


FUNCTIONS: dict[Function, Callable[[float, float, Sequence[Times]], tuple[float, str]]] = {
    "log2_speedup": log2_speedup,
    "sol_score": sol_score,
}
