"""attention's parameters and what a case costs. No torch: the harness's parent process reads this file."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from harness.core.decode import DecodeError
from harness.core.records import Cost


@dataclass(frozen=True, kw_only=True)
class Params:
    """One call: `heads` heads of queries, which share `kv_heads` heads of keys and values, each over `seq` places of
    `dim` numbers. `backward`: the gradients of a call, in place of the call."""

    batch: int
    heads: int
    kv_heads: int
    seq: int
    dim: int
    backward: bool

    def __post_init__(self) -> None:
        for name in ("batch", "heads", "kv_heads", "seq", "dim"):
            if getattr(self, name) < 1:
                raise DecodeError(f".{name}", f"expected 1 or more, found {getattr(self, name)}")
        if self.heads % self.kv_heads:
            raise DecodeError(".heads", f"expected a multiple of kv_heads ({self.kv_heads}), found {self.heads}")


def cost(params: Params, world_size: int) -> Cost:
    """The least that a call must do, in bf16, with B batch, H heads, G kv_heads, S seq, D dim.

    flops, forward     2 B H S^2 D        scores and weighted values, 2 flops a term, half of all pairs
    flops, backward    5 B H S^2 D        five such products in place of two
    hbm_bytes, forward    4 B S D (H + G)           queries, keys, values read; the result written
    hbm_bytes, backward   8 B S D (H + G) + 4 B H S  the same, result, its gradient and the logarithms read; 3 written

    Anchors on an H200 (989 TFLOP/s, 4.8 TB/s), 1 x 64/8 x 8192 x 128: 1111.74 us forward, 2779.35 us backward, both
    bound by flops.
    """
    b, h, g, s, d = params.batch, params.heads, params.kv_heads, params.seq, params.dim
    if params.backward:
        return Cost(flops=5 * b * h * s * s * d, hbm_bytes=8 * b * s * d * (h + g) + 4 * b * h * s, link_bytes=0)
    return Cost(flops=2 * b * h * s * s * d, hbm_bytes=4 * b * s * d * (h + g), link_bytes=0)


def near(params: Params, world_size: int, draw: Callable[..., int]) -> Params:
    """A shape near that one, of sizes that `draw` draws (harness.problems.drawn). The width of a head stays."""
    kv_heads = draw(params.kv_heads)
    heads = kv_heads * (params.heads // params.kv_heads)
    return replace(params, heads=heads, kv_heads=kv_heads, seq=draw(params.seq))
