"""What a case of cross_entropy is made of, and what it costs. Knows no tensors, so the parent process can import it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from harness.core.decode import DecodeError
from harness.core.records import Cost


@dataclass(frozen=True, kw_only=True)
class Params:
    """The arguments of generate_input without rank, world_size and seed. `row_stride` is the width of the matrix that
    the logits are columns of; `ignored` tokens have `ignore_index` in place of a target."""

    tokens: int
    vocab: int
    row_stride: int
    ignored: int
    ignore_index: int
    label_smoothing: float
    loss_scale: float

    def __post_init__(self) -> None:
        for name in ("tokens", "vocab"):
            if getattr(self, name) < 1:
                raise DecodeError(f".{name}", f"expected 1 or more, found {getattr(self, name)}")
        if not self.vocab <= self.row_stride <= 2 * self.vocab:
            raise DecodeError(
                ".row_stride",
                f"expected {self.vocab} to {2 * self.vocab}, the vocab and twice that; found {self.row_stride}",
            )
        if not 0 <= self.ignored < self.tokens:
            raise DecodeError(".ignored", f"expected 0 to {self.tokens - 1}, as one token counts; found {self.ignored}")
        if 0 <= self.ignore_index < self.vocab:
            raise DecodeError(".ignore_index", f"{self.ignore_index} is a class; choose a number below 0")
        if not 0 <= self.label_smoothing < 1:
            raise DecodeError(".label_smoothing", f"expected 0 to below 1, found {self.label_smoothing}")
        if self.loss_scale <= 0:
            raise DecodeError(".loss_scale", f"expected a number above 0, found {self.loss_scale}")


def cost(params: Params, world_size: int) -> Cost:
    """The logits of tokens that count are read, and a gradient is written for every token: 4 M V bytes if all count.
    Targets take 8 bytes, losses 4. An exponential, two additions and a product are the least arithmetic of a logit.

    Anchors, official benchmarks on an H200 (4.8 TB/s): 218.5 and 1751 us.
    """
    counted = params.tokens - params.ignored
    return Cost(
        flops=4 * counted * params.vocab,
        hbm_bytes=2 * params.vocab * (counted + params.tokens) + 12 * params.tokens,
        link_bytes=0,
        held_bytes=2 * params.vocab * params.tokens + 12 * params.tokens,  # the gradient lies where the logits lay
    )


def near(params: Params, world_size: int, draw: Callable[..., int]) -> Params:
    """A shape near that one, of sizes that `draw` draws (harness.problems.drawn). Gaps between rows stay."""
    vocab = draw(params.vocab)
    gap = params.row_stride - params.vocab
    return replace(params, tokens=draw(params.tokens), vocab=vocab, row_stride=vocab + gap)
