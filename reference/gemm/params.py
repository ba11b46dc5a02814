"""gemm's parameters and what a case costs. No torch: the harness's parent process reads this file."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from harness.core.decode import DecodeError
from harness.core.records import Cost


@dataclass(frozen=True, kw_only=True)
class Params:
    """One product: `m` rows, `n` columns, depth `k`."""

    m: int
    n: int
    k: int

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            if getattr(self, name) < 1:
                raise DecodeError(f".{name}", f"expected 1 or more, found {getattr(self, name)}")


def cost(params: Params, world_size: int) -> Cost:
    """The least that a call must do. Both operands are bf16, as is the result.

    flops       2 m n k
    hbm_bytes   2 (m k + n k + m n)   both operands read once, the result written

    Anchors on an H200 (989 TFLOP/s, 4.8 TB/s): 1389.68 us for 8192 x 10240 x 8192, which is bound by flops.
    """
    m, n, k = params.m, params.n, params.k
    return Cost(flops=2 * m * n * k, hbm_bytes=2 * (m * k + n * k + m * n), link_bytes=0)


def near(params: Params, world_size: int, draw: Callable[..., int]) -> Params:
    """A shape near that one, of sizes that `draw` draws (harness.problems.drawn)."""
    return replace(params, m=draw(params.m), n=draw(params.n), k=draw(params.k))
