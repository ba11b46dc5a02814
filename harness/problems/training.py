"""What all training problems' cases have; a problem's params.py has it as Params. Knows no tensors."""

from dataclasses import dataclass

from harness.core.decode import DecodeError
from harness.core.olympic import LEAST_RUNS


@dataclass(frozen=True, kw_only=True)
class RunParams:
    """`size` names a model, `target` is the quality on held-out text that ends a run, `runs` how many runs are scored.
    `samples` is how many sequences a run may train on, `every` after how many it is evaluated."""

    size: str
    target: float
    runs: int
    samples: int
    every: int

    def __post_init__(self) -> None:
        if self.runs < LEAST_RUNS:
            raise DecodeError(".runs", f"the fastest and the slowest do not count; choose {LEAST_RUNS} or more")
        if self.every < 1 or self.samples % self.every != 0:
            raise DecodeError(".samples", f"{self.samples} is no multiple of every, {self.every}")

    def check_world_size(self, world_size: int) -> None:
        """Raises DecodeError where the sequences between two evaluations cannot be split over so many ranks."""
        if self.every % world_size != 0:
            raise DecodeError(
                ".every", f"{self.every} is not divisible by the world size {world_size}; choose a multiple of it"
            )
