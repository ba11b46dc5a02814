"""The weights of a model of params.CONFIGS, drawn from a seed: no checkpoint is needed, and logits are sane.

Products of normalised rows have entries of about 1 in every layer, so that each layer matters; the embedding, which the
residual stream begins with and which makes the logits, is small. Queries are larger, so that attention is not flat.
"""

from dataclasses import replace

import torch
from params import Config
from torch import Tensor

SEED = 3201  # the same for all: weights are public, prompts are not
QUERY_GAIN = 2.0
NORM_SPREAD = 0.1  # of norm weights around 1


def draw(config: Config, device: torch.device) -> dict[str, Tensor]:
    """Every weight by its name in Hugging Face's checkpoints; matrices are [out, in]. The same on every device of one
    kind."""
    generator = torch.Generator(device=device).manual_seed(SEED)
    dtype = getattr(torch, config.dtype)

    def matrix(out: int, inner: int, gain: float = 1.0) -> Tensor:
        made = torch.randn(out, inner, generator=generator, device=device, dtype=torch.float32)
        return made.mul_(gain * inner**-0.5).to(dtype)

    def norm() -> Tensor:
        made = torch.randn(config.hidden, generator=generator, device=device, dtype=torch.float32)
        return made.mul_(NORM_SPREAD).add_(1).to(dtype)

    q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    weights = {"model.embed_tokens.weight": matrix(config.vocab, config.hidden)}
    for layer in range(config.layers):
        prefix = f"model.layers.{layer}."
        weights |= {
            f"{prefix}input_layernorm.weight": norm(),
            f"{prefix}self_attn.q_proj.weight": matrix(q, config.hidden, QUERY_GAIN),
            f"{prefix}self_attn.k_proj.weight": matrix(kv, config.hidden),
            f"{prefix}self_attn.v_proj.weight": matrix(kv, config.hidden),
            f"{prefix}self_attn.o_proj.weight": matrix(config.hidden, q, 2.0),
            f"{prefix}post_attention_layernorm.weight": norm(),
            f"{prefix}mlp.gate_proj.weight": matrix(config.ffn, config.hidden),
            f"{prefix}mlp.up_proj.weight": matrix(config.ffn, config.hidden),
            f"{prefix}mlp.down_proj.weight": matrix(config.hidden, config.ffn, 2.0),
        }
    return weights | {"model.norm.weight": norm()}


def share(config: Config, weights: dict[str, Tensor], rank: int, world_size: int) -> tuple[Config, dict[str, Tensor]]:
    """A rank's part of the model, and its sizes: some of the heads, with their keys, and of the ffn columns. What
    o_proj and down_proj then make of it are parts of sums over ranks. Embedding and norms stay whole.

    Of fewer key heads than ranks, several ranks have the same one.
    """
    kv_heads = max(1, config.kv_heads // world_size)
    first = rank * config.kv_heads // world_size * config.head_dim
    mine = replace(config, heads=config.heads // world_size, kv_heads=kv_heads, ffn=config.ffn // world_size)

    def part(name: str, weight: Tensor) -> Tensor:
        layer = name.split(".")[-2]
        if layer in ("k_proj", "v_proj"):
            return weight.narrow(0, first, kv_heads * config.head_dim).clone()
        if layer in ("q_proj", "gate_proj", "up_proj"):
            return weight.chunk(world_size)[rank].clone()
        if layer in ("o_proj", "down_proj"):
            return weight.chunk(world_size, 1)[rank].contiguous()
        return weight

    return mine, {name: part(name, weight) for name, weight in weights.items()}
