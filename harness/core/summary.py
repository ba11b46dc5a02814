"""What an evaluator that keeps its samples to itself tells of them."""

from dataclasses import dataclass
from typing import Annotated

from harness.core.limits import Limited, above_0


@dataclass(frozen=True, kw_only=True)
class Summary(Limited):
    """Statistics of `runs` calls in the metric's unit; `err` is the standard error of the mean."""

    runs: int
    mean: Annotated[float, above_0("a mean")]
    std: float
    err: float
    best: float
    worst: float
