"""What a case of ag_gemm is made of, and what it costs. Knows no tensors, so the parent process can import it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from harness.core.decode import DecodeError
from harness.core.records import Cost


@dataclass(frozen=True, kw_only=True)
class Params:
    """The arguments of generate_input without rank, world_size and seed: input [m/W, k], weight [n/W, k]."""

    m: int
    n: int
    k: int
    has_bias: bool

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            if getattr(self, name) < 1:
                raise DecodeError(f".{name}", f"expected 1 or more, found {getattr(self, name)}")

    def check_world_size(self, world_size: int) -> None:
        """Raises DecodeError where the case cannot be split: m is gathered and n is sharded over the ranks."""
        for name in ("m", "n"):
            size = getattr(self, name)
            if size % world_size:
                raise DecodeError(
                    f".{name}",
                    f"{size} is not divisible by the world size {world_size}; choose a multiple of {world_size}, "
                    f"or a world size that divides {size}",
                )


def cost(params: Params, world_size: int) -> Cost:
    """What one rank must do at least, in bf16 (2 bytes an element).

    flops       2 m n k / W               every row of the gathered input times its slice of N
    hbm_bytes   2 (m k + n k/W + m n/W)   the gathered input and its weight shard read, its columns written
    link_bytes  2 m k (W - 1)/W           the other ranks' rows of the input, received
    The bias (2 n/W bytes, m n/W additions) is left out: less than 0.1 % of any case, and the bound stays a lower one.

    Anchors, official benchmarks (W = 8) on MI300X (1307.4 TFLOP/s, 5.3 TB/s, 448 GB/s):
    6.46 (hbm) 8.19 (link) 23.04 (link) 65.54 (link) 131.07 (link) 379.43 (flops) us.
    GPU MODE's published table takes m n for the gathered bytes instead of m k: 24.58, 458.75 and 946.18 us in its
    rows 2, 5 and 6 are no lower bounds.
    """
    m, n, k = params.m, params.n, params.k
    return Cost(
        flops=2 * m * n * k / world_size,
        hbm_bytes=2 * (m * k + n * k / world_size + m * n / world_size),
        link_bytes=2 * m * k * (world_size - 1) / world_size,
    )


def depends_on(params: Params, rank: int, world_size: int) -> frozenset[int]:
    """The other ranks whose data this rank's result on a hardened input needs.

    Each rank has some of the rows of the input, and so of everybody's result.
    """
    return frozenset(range(world_size)) - {rank}


def near(params: Params, world_size: int, draw: Callable[..., int]) -> Params:
    """A shape near that one, of sizes that `draw` draws (harness.problems.drawn)."""
    return replace(params, m=draw(params.m, world_size), n=draw(params.n, world_size), k=draw(params.k))
