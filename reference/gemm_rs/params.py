"""What a case of gemm_rs is made of, and what it costs. Knows no tensors, so the parent process can import it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from harness.core.decode import DecodeError
from harness.core.records import Cost


@dataclass(frozen=True, kw_only=True)
class Params:
    """The arguments of generate_input without rank, world_size and seed: input [m, k/W], weight [n, k/W]."""

    m: int
    n: int
    k: int
    has_bias: bool

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            if getattr(self, name) < 1:
                raise DecodeError(f".{name}", f"expected 1 or more, found {getattr(self, name)}")

    def check_world_size(self, world_size: int) -> None:
        """Raises DecodeError where the case cannot be split: m is scattered and k is sharded over the ranks."""
        for name in ("m", "k"):
            size = getattr(self, name)
            if size % world_size:
                raise DecodeError(
                    f".{name}",
                    f"{size} is not divisible by the world size {world_size}; choose a multiple of {world_size}, "
                    f"or a world size that divides {size}",
                )


def cost(params: Params, world_size: int) -> Cost:
    """What one rank must do at least, in bf16 (2 bytes an element).

    flops       2 m n k / W               its slice of K for the whole product
    hbm_bytes   2 (m k/W + n k/W + m n)   both shards read; a full m x n of partial sums passes through its memory,
                                          its own rows and those exchanged with peers
    link_bytes  2 m n (W - 1)/W           every row block but its own, sent to (and as much received from) the others
    The bias (2 n bytes, m n additions) is left out: less than 0.1 % of any case, and the bound stays a lower one.

    Anchors, official benchmarks (W = 8) on MI300X (1307.4 TFLOP/s, 5.3 TB/s, 448 GB/s), GPU MODE's published table:
    6.46 (hbm) 8.19 (link) 23.04 (link) 65.54 (link) 131.07 (link) 379.43 (flops) us.
    """
    m, n, k = params.m, params.n, params.k
    return Cost(
        flops=2 * m * n * k / world_size,
        hbm_bytes=2 * (m * k / world_size + n * k / world_size + m * n),
        link_bytes=2 * m * n * (world_size - 1) / world_size,
    )


def depends_on(params: Params, rank: int, world_size: int) -> frozenset[int]:
    """The other ranks whose data this rank's result on a hardened input needs.

    Each rank has a slice of K, and so a part of every sum.
    """
    return frozenset(range(world_size)) - {rank}


def near(params: Params, world_size: int, draw: Callable[..., int]) -> Params:
    """A shape near that one, of sizes that `draw` draws (harness.problems.drawn)."""
    return replace(params, m=draw(params.m, world_size), n=draw(params.n), k=draw(params.k, world_size))
