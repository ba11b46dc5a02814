"""What a case of swiglu is made of, and what it costs. Knows no tensors, so the parent process can import it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from harness.core.decode import DecodeError
from harness.core.records import Cost


@dataclass(frozen=True, kw_only=True)
class Params:
    """The arguments of generate_input without rank, world_size and seed."""

    rows: int
    ffn: int
    backward: bool

    def __post_init__(self) -> None:
        for name in ("rows", "ffn"):
            if getattr(self, name) < 1:
                raise DecodeError(f".{name}", f"expected 1 or more, found {getattr(self, name)}")


def cost(params: Params, world_size: int) -> Cost:
    """Every input element is read once and every result written once, 2 bytes each. Forward these are x and the result,
    6 M F bytes; backward x, the gradient of the result and x's gradient, 10 M F bytes. An exponential, an addition, a
    division and a product are the least arithmetic of a result.

    Anchors, official shapes on an H200 (4.8 TB/s): 293.6 us forward and 489.3 us backward, both shapes.
    """
    elements = params.rows * params.ffn
    return Cost(flops=4 * elements, hbm_bytes=(10 if params.backward else 6) * elements, link_bytes=0)


def near(params: Params, world_size: int, draw: Callable[..., int]) -> Params:
    """A shape near that one, of sizes that `draw` draws (harness.problems.drawn)."""
    return replace(params, rows=draw(params.rows), ffn=draw(params.ffn))
