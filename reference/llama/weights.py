"""The weights of a model of params.CONFIGS, drawn from a seed: no checkpoint is needed, and logits are sane.

Three things make an error of weights show in the logits, wherever it is (docs/models.md has the figures):

- The first layer makes most of the residual stream: the embedding is small, since it is the last matrix too. Each later
  layer adds a part (ADDED), GROWTH times that of the layer before, since what is added first is passed on and enlarged
  by all layers behind it. Were all layers like the first, errors of the first few would be most of the honest noise,
  and a rough format of later weights would hide below it. With larger parts, what attention averages over all tokens
  would be most of the stream, and logits would depend little on the last token.
- The first attention's output is as small as the embedding, so that each token keeps what is its own.
- Elements have heavy tails, as those of trained models have: a Gaussian times exp(SPREAD x Gaussian). A format with a
  scale for many elements is then coarse for most of them. The embedding has none: errors would gather in few logits.
"""

import math
from dataclasses import replace

import torch
from params import Config
from torch import Tensor

SEED = 3201  # the same for all: weights are public, prompts are not
ADDED = 0.35  # output of a layer's products, in the root mean square of their input; of the second layer
GROWTH = 1.1
SPREAD = 1.0
NORM_SPREAD = 0.1  # of norm weights around 1


def draw(config: Config, device: torch.device) -> dict[str, Tensor]:
    """Every weight by its name in Hugging Face's checkpoints; matrices are [out, in]. The same on every device of one
    kind."""
    generator = torch.Generator(device=device).manual_seed(SEED)
    dtype = getattr(torch, config.dtype)

    def matrix(out: int, inner: int, gain: float = 1.0, spread: float = SPREAD) -> Tensor:
        made, factor = (
            torch.randn(out, inner, generator=generator, device=device, dtype=torch.float32) for _ in range(2)
        )
        # exp(-SPREAD^2) makes the factors' mean square 1.
        return made.mul_(factor.mul_(spread).exp_()).mul_(gain * math.exp(-(spread**2)) * inner**-0.5).to(dtype)

    def norm() -> Tensor:
        made = torch.randn(config.hidden, generator=generator, device=device, dtype=torch.float32)
        return made.mul_(NORM_SPREAD).add_(1).to(dtype)

    q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    weights = {"model.embed_tokens.weight": matrix(config.vocab, config.hidden, spread=0.0)}
    for layer in range(config.layers):
        prefix = f"model.layers.{layer}."
        mixed, added = (ADDED * GROWTH ** (layer - 1),) * 2 if layer else (config.hidden**-0.5, 2.0)
        weights |= {
            f"{prefix}input_layernorm.weight": norm(),
            f"{prefix}self_attn.q_proj.weight": matrix(q, config.hidden),
            f"{prefix}self_attn.k_proj.weight": matrix(kv, config.hidden),
            f"{prefix}self_attn.v_proj.weight": matrix(kv, config.hidden),
            f"{prefix}self_attn.o_proj.weight": matrix(config.hidden, q, mixed),
            f"{prefix}post_attention_layernorm.weight": norm(),
            f"{prefix}mlp.gate_proj.weight": matrix(config.ffn, config.hidden),
            f"{prefix}mlp.up_proj.weight": matrix(config.ffn, config.hidden),
            f"{prefix}mlp.down_proj.weight": matrix(config.hidden, config.ffn, added),
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
