"""What a case of llama is made of, the models' sizes, and what a generation costs. Imports no torch."""

from dataclasses import dataclass

from harness.core.decode import DecodeError
from harness.core.records import Cost

ELEMENT_BYTES = {"bfloat16": 2, "float32": 4}
LARGEST_CACHE_BYTES = 256 << 20  # weights that fit into a cache need not be read again in every step


@dataclass(frozen=True, kw_only=True)
class Config:
    """A Llama's sizes, as `build` gets them. `dtype` is the weights' (torch's name), `max_length` the most tokens of a
    sequence, prompt and answer together. The rope_ fields are those of Llama 3.1's frequency scaling."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    dtype: str
    max_length: int
    eps: float = 1e-5
    rope_theta: float = 500_000.0
    rope_factor: float = 32.0
    rope_low: float = 1.0
    rope_high: float = 4.0
    rope_original: int = 8192

    @property
    def layer_weights(self) -> int:
        """Elements of the matrices of one layer."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.hidden * self.ffn

    @property
    def head_weights(self) -> int:
        """Elements of the embedding, which is also the last matrix."""
        return self.hidden * self.vocab


CONFIGS = {
    "1b": Config(
        layers=16,
        hidden=2048,
        heads=32,
        kv_heads=8,
        head_dim=64,
        ffn=8192,
        vocab=128256,
        dtype="bfloat16",
        max_length=2048,
    ),
    "tiny": Config(
        layers=3,
        hidden=128,
        heads=4,
        kv_heads=2,
        head_dim=32,
        ffn=512,
        vocab=1024,
        dtype="float32",
        max_length=256,
        rope_original=64,
    ),
    "heads": Config(  # as many as 8 ranks need
        layers=3,
        hidden=128,
        heads=16,
        kv_heads=8,
        head_dim=16,
        ffn=512,
        vocab=1024,
        dtype="float32",
        max_length=128,
        rope_original=64,
    ),
    "nano": Config(
        layers=4,
        hidden=128,
        heads=4,
        kv_heads=2,
        head_dim=32,
        ffn=256,
        vocab=512,
        dtype="bfloat16",
        max_length=128,
        rope_original=32,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Params:
    model: str  # of CONFIGS
    batch: int
    prompt: int  # tokens
    new: int  # tokens that are generated, the first of them by the prompt's logits

    def __post_init__(self) -> None:
        if self.model not in CONFIGS:
            raise DecodeError(".model", f"expected one of {', '.join(CONFIGS)}, found {self.model}")
        for name in ("batch", "prompt", "new"):
            if getattr(self, name) < 1:
                raise DecodeError(f".{name}", f"expected 1 or more, found {getattr(self, name)}")
        most = CONFIGS[self.model].max_length
        if self.prompt + self.new > most:
            raise DecodeError(".new", f"prompt and new tokens are {self.prompt + self.new}, more than {most}")

    def check_world_size(self, world_size: int) -> None:
        """Raises DecodeError where heads, columns and words cannot be shared out to so many ranks. Ranks may have the
        same keys."""
        config = CONFIGS[self.model]
        sizes = {"heads": config.heads, "ffn": config.ffn, "vocab": config.vocab}
        for name, size in sizes.items():
            if size % world_size:
                raise DecodeError(".model", f"{name} {size} of {self.model} is not divisible by {world_size} ranks")
        if config.kv_heads % world_size and world_size % config.kv_heads:
            raise DecodeError(".model", f"{config.kv_heads} key heads of {self.model} do not suit {world_size} ranks")


def cost(params: Params, world_size: int) -> Cost:
    """One generation, steps one after the other: every step reads weights that fit no cache, and the keys and values of
    all tokens before. In the last layer only keys and values of the prompt's tokens are needed, but for the last.

    Of several ranks each has its share at least. What they send each other is left out: a rank may do without."""
    config = CONFIGS[params.model]
    prompt, steps = params.prompt, params.new - 1
    of_keys = 2 * config.hidden * config.kv_heads * config.head_dim  # elements of a layer's matrices for both
    in_last = prompt * of_keys + config.layer_weights - of_keys
    seen = (config.layers - 1) * prompt * (prompt + 1) / 2 + prompt  # pairs of a token and one that it attends to
    later = steps * prompt + steps * (steps + 1) / 2
    flops = 2 * (prompt * (config.layers - 1) * config.layer_weights + in_last)
    flops += 2 * steps * config.layers * config.layer_weights
    flops += 2 * config.head_weights * params.new
    flops += 4 * config.heads * config.head_dim * (seen + config.layers * later)
    element = ELEMENT_BYTES[config.dtype]
    weights = element * (config.layers * config.layer_weights + config.head_weights) / world_size
    reads = params.new if weights > LARGEST_CACHE_BYTES else 1
    of_token = 2 * element * config.layers * config.kv_heads * config.head_dim / world_size  # keys and values
    kept = params.batch * of_token * (prompt + steps)
    again = params.batch * of_token * (later - steps)  # read by each step, where they fit no cache either
    hbm_bytes = weights * reads + kept + (again if reads > 1 else 0)
    return Cost(
        flops=params.batch * flops / world_size,
        hbm_bytes=hbm_bytes,
        link_bytes=0,
        held_bytes=weights + kept + 4 * params.batch * params.new * config.vocab,  # every rank has all logits
    )
