"""What a case of rms_norm is made of, and what it costs. Knows no tensors, so the parent process can import it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from harness.core.decode import DecodeError
from harness.core.records import Cost


@dataclass(frozen=True, kw_only=True)
class Params:
    """The arguments of generate_input without rank, world_size and seed."""

    rows: int
    hidden: int
    backward: bool
    eps: float

    def __post_init__(self) -> None:
        for name in ("rows", "hidden", "eps"):
            if getattr(self, name) <= 0:
                raise DecodeError(f".{name}", f"expected a number above 0, found {getattr(self, name)}")


def cost(params: Params, world_size: int) -> Cost:
    """Forward, x and the residual are read, their sum and its norm written; backward, the sum and two gradients are
    read, one is written: 8 M H bytes in either. The weight is read, and its gradient written: 2 H bytes each. A result
    takes 5 operations: two additions, a square, two products.

    Anchors, on an H200 (4.8 TB/s): 111.8 us forward for 8192 x 8192 and for 16384 x 4096.
    """
    elements = params.rows * params.hidden
    weights = 2 if params.backward else 1
    return Cost(flops=5 * elements, hbm_bytes=8 * elements + 2 * weights * params.hidden, link_bytes=0)


def near(params: Params, world_size: int, draw: Callable[..., int]) -> Params:
    """A shape near that one, of sizes that `draw` draws (harness.problems.drawn)."""
    return replace(params, rows=draw(params.rows), hidden=draw(params.hidden))
