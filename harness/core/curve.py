"""How a value moved while one run lasted."""

from dataclasses import dataclass

from harness.core.decode import DecodeError


@dataclass(frozen=True, kw_only=True)
class Point:
    """The value that a run had reached `at_s` seconds after it began."""

    at_s: float
    value: float

    def __post_init__(self) -> None:
        if self.at_s < 0 or self.value <= 0:
            raise DecodeError("", f"expected a time of 0 or more and a value above 0, found {self.at_s}, {self.value}")


@dataclass(frozen=True, kw_only=True)
class Curve:
    """How the ranked series' value moved within one run of `limit_s` seconds: of the submission, and of the baseline.
    Each side's points are in the order of time; without any it has no answer. `known`: the best value known by then."""

    limit_s: float
    own: tuple[Point, ...]
    baseline: tuple[Point, ...] = ()
    known: float | None = None
