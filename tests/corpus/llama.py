"""Models for llama, honest and wrong: each has the reference's interface and one thing that is different."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Build = Callable[[Any, dict[str, Tensor]], Any]


def models(reference: Any) -> tuple[dict[str, Build], dict[str, Build]]:
    """The honest and the wrong ones, by name; `reference` is the problem's reference module."""
    llama: type[Any] = reference.Llama

    class Fused(llama):  # type: ignore[misc, valid-type]
        """One product for queries, keys and values, whose parts are the three."""

        def attention(self, x: Tensor, prefix: str, turn: Any, before: Any) -> Any:
            names = [f"{prefix}{name}_proj.weight" for name in "qkv"]
            parts = F.linear(x, torch.cat([self.weights[name] for name in names]))
            self.parts = dict(zip(names, parts.split([len(self.weights[name]) for name in names], -1), strict=True))
            return super().attention(x, prefix, turn, before)

        def linear(self, x: Tensor, name: str) -> Tensor:
            return self.parts[name] if name in self.parts else super().linear(x, name)

    class Halves(llama):  # type: ignore[misc, valid-type]
        """Products summed up in two halves, each in float32: another order of sums."""

        def linear(self, x: Tensor, name: str) -> Tensor:
            weight, half = self.weights[name], x.shape[-1] // 2
            wide = torch.float64 if x.dtype == torch.float64 else torch.float32
            halves = (x[..., part].to(wide) @ weight[:, part].to(wide).T for part in (slice(half, None), slice(half)))
            return sum(halves).to(x.dtype)  # type: ignore[union-attr]

    class WrongRope(llama):  # type: ignore[misc, valid-type]
        """Frequencies without Llama 3.1's scaling."""

        def __init__(self, config: Any, weights: dict[str, Tensor]) -> None:
            super().__init__(config, weights)
            pairs = torch.arange(0, config.head_dim, 2, dtype=torch.float64)
            self.angles = (config.rope_theta ** (-pairs / config.head_dim)).float()

    class LateRope(llama):  # type: ignore[misc, valid-type]
        """Decoded tokens are turned by angles that are a tenth too small."""

        def decode(self, token: Tensor, cache: Any) -> Any:
            kept, self.angles = self.angles, self.angles * 0.9
            try:
                return super().decode(token, cache)
            finally:
                self.angles = kept

    class StaleCache(llama):  # type: ignore[misc, valid-type]
        """Every step sees the prompt, and none of the tokens since."""

        def decode(self, token: Tensor, cache: Any) -> Any:
            return super().decode(token, cache)[0], cache

    class OldCache(llama):  # type: ignore[misc, valid-type]
        """A prompt of the same size finds the cache of the one before."""

        cache: Any = None

        def prefill(self, tokens: Tensor) -> Any:
            logits, cache = super().prefill(tokens)
            if self.cache is None or self.cache[0][0].shape != cache[0][0].shape:
                self.cache = cache
            return logits, self.cache

    class Published(llama):  # type: ignore[misc, valid-type]
        """Remembers the logits of the first prompt, the published one, for prompts of its size."""

        known: Any = None

        def prefill(self, tokens: Tensor) -> Any:
            logits, cache = super().prefill(tokens)
            if self.known is None or self.known.shape != logits.shape:
                self.known = logits
            return self.known, cache

    class Mixed(llama):  # type: ignore[misc, valid-type]
        """Decoded tokens of a batch see the prompts of their neighbours."""

        def decode(self, token: Tensor, cache: Any) -> Any:
            return super().decode(token, [(keys.roll(1, 0), values.roll(1, 0)) for keys, values in cache])

    class Dropped(llama):  # type: ignore[misc, valid-type]
        """A layer less."""

        def __init__(self, config: Any, weights: dict[str, Tensor]) -> None:
            super().__init__(config, weights)
            for name in ("self_attn.o_proj", "mlp.down_proj"):
                self.weights[f"model.layers.{config.layers // 2}.{name}.weight"].mul_(0)

    class NoCausal(llama):  # type: ignore[misc, valid-type]
        """The last token alone attends with the mask of a decoder."""

        def attention(self, x: Tensor, prefix: str, turn: Any, before: Any) -> Any:
            kept = F.scaled_dot_product_attention

            def open_attention(*args: Any, **options: Any) -> Tensor:
                return kept(*args, **(options | {"is_causal": False}))

            F.scaled_dot_product_attention = open_attention
            try:
                return super().attention(x, prefix, turn, before)
            finally:
                F.scaled_dot_product_attention = kept

    def stored(change: Callable[[Tensor], Tensor], first: float = 0.0) -> Build:
        """The matrices of the layers from this part of them on as another format keeps them. All else is computed in
        float32, so that rounding adds nothing to the format's error."""

        def build(config: Any, weights: dict[str, Tensor]) -> Any:
            def picked(name: str) -> bool:
                return "_proj" in name and int(name.split(".")[2]) >= first * (config.layers - 1)

            kept = {name: change(one) if picked(name) else one for name, one in weights.items()}
            return llama(config, kept, torch.float32)

        return build

    def head(change: Callable[[Tensor], Tensor]) -> Build:
        """The last matrix alone as another format keeps it."""

        class Head(llama):  # type: ignore[misc, valid-type]
            def logits(self, hidden: Tensor) -> Tensor:
                table = change(self.weights["model.embed_tokens.weight"])
                return F.linear(self.norm(hidden, "model.norm.weight"), table)

        return lambda config, weights: Head(config, weights, torch.float32)

    def wide(config: Any, weights: dict[str, Tensor]) -> Any:
        return llama(config, weights, torch.float32)

    honest: dict[str, Build] = {"reference": reference.build, "fused": Fused, "halves": Halves, "float32": wide}
    wrong: dict[str, Build] = {
        "int8": stored(int8),
        "int8 in groups": stored(in_groups),
        "int8 late layers": stored(int8, first=0.75),
        "fp8": stored(fp8),
        "int8 head": head(int8),
        "fp8 head": head(fp8),
        "mixed sequences": Mixed,
        "dropped layer": Dropped,
        "no rope scaling": WrongRope,
        "late rope": LateRope,
        "stale cache": StaleCache,
        "old cache": OldCache,
        "published answers": Published,
        "no mask": NoCausal,
    }
    return honest, wrong


def int8(weight: Tensor) -> Tensor:
    """Whole numbers of 8 bits and a scale for each row."""
    scale = weight.float().abs().amax(-1, keepdim=True) / 127
    return (weight.float() / scale).round() * scale


def in_groups(weight: Tensor, width: int = 32) -> Tensor:
    """int8 with a scale for each 32 elements of a row."""
    return int8(weight.reshape(-1, width)).view(weight.shape)


def fp8(weight: Tensor) -> Tensor:
    """e4m3, with a scale for each row."""
    scale = weight.float().abs().amax(-1, keepdim=True) / 448
    return (weight.float() / scale).to(torch.float8_e4m3fn).float() * scale
