"""What an evaluator that keeps its samples to itself tells of them."""

from dataclasses import dataclass

from harness.core.decode import DecodeError


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Statistics of `runs` calls in the metric's unit, from an evaluator that tells no samples. `err` is the standard
    error of the mean."""

    runs: int
    mean: float
    std: float
    err: float
    best: float
    worst: float

    def __post_init__(self) -> None:
        if self.mean <= 0:
            raise DecodeError(".mean", f"expected a mean above 0, found {self.mean}")
