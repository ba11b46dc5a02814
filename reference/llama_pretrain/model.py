"""A Llama as plain functions of its weights: RMS norms, rotary positions, grouped-query attention, SwiGLU.

Legend: B sequences, S positions, H hidden, N query heads, K key and value heads, D = H / N, F ffn, V vocabulary.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

Weights = dict[str, Tensor]
EPSILON = 1e-5
THETA = 10000.0


@dataclass(frozen=True, kw_only=True)
class Size:
    """The shape of a model. `sequence` is how many tokens it sees at once."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    sequence: int


BASE_HIDDEN = 64  # whose learning rate hyperparameters name
SIZES = {
    "small": Size(vocabulary=4096, hidden=1024, layers=8, heads=16, kv_heads=4, ffn=3072, sequence=512),
    "tiny": Size(vocabulary=256, hidden=64, layers=2, heads=4, kv_heads=2, ffn=128, sequence=64),
}


def matrices(size: Size) -> dict[str, tuple[int, int]]:
    """The matrices of all layers, [outputs, inputs]."""
    kv = size.hidden // size.heads * size.kv_heads
    layer = {
        "q": (size.hidden, size.hidden),
        "k": (kv, size.hidden),
        "v": (kv, size.hidden),
        "o": (size.hidden, size.hidden),
        "gate": (size.ffn, size.hidden),
        "up": (size.ffn, size.hidden),
        "down": (size.hidden, size.ffn),
    }
    return {f"layers.{index}.{name}": shape for index in range(size.layers) for name, shape in layer.items()}


def shapes(size: Size) -> dict[str, tuple[int, ...]]:
    """Every weight's shape. The embedding is the output's matrix too."""
    norms = {f"layers.{index}.{name}_norm": (size.hidden,) for index in range(size.layers) for name in ("in", "ffn")}
    return {"embedding": (size.vocabulary, size.hidden), **matrices(size), **norms, "norm": (size.hidden,)}


def drawn(size: Size, seed: int, device: torch.device) -> Weights:
    """Random weights: normal with the deviation 0.02, less for what is added to the residual; norms are 1."""
    generator = torch.Generator("cpu").manual_seed(seed)
    weights = {}
    for name, shape in shapes(size).items():
        if name.endswith("norm"):
            weights[name] = torch.ones(shape, device=device)
            continue
        deviation = 0.02 / math.sqrt(2 * size.layers) if name.endswith((".o", ".down")) else 0.02
        weights[name] = torch.randn(shape, generator=generator, device="cpu").mul_(deviation).to(device)
    return weights


def rotation(size: Size, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines of all positions, [S, D / 2]."""
    half = size.hidden // size.heads // 2
    rates = THETA ** (-torch.arange(half, device=device, dtype=torch.float32) / half)
    angles = torch.arange(size.sequence, device=device, dtype=torch.float32)[:, None] * rates
    return angles.cos(), angles.sin()


def rotated(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Queries or keys [B, heads, S, D] with their positions."""
    left, right = heads.chunk(2, dim=-1)
    return torch.cat((left * cosines - right * sines, left * sines + right * cosines), dim=-1)


def normed(values: Tensor, weight: Tensor) -> Tensor:
    """The RMS norm over the last dimension."""
    return values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + EPSILON) * weight


def logits(size: Size, weights: Weights, tokens: Tensor) -> Tensor:
    """[B, S, V] for tokens [B, S]."""
    batch, length = tokens.shape
    cosines, sines = rotation(size, tokens.device)
    cosines, sines = cosines[:length], sines[:length]
    stream = functional.embedding(tokens, weights["embedding"])
    for index in range(size.layers):
        layer = f"layers.{index}."
        inputs = normed(stream, weights[layer + "in_norm"])
        queries, keys, values = (
            functional.linear(inputs, weights[layer + name]).view(batch, length, heads, -1).transpose(1, 2)
            for name, heads in (("q", size.heads), ("k", size.kv_heads), ("v", size.kv_heads))
        )
        mixed = functional.scaled_dot_product_attention(
            rotated(queries, cosines, sines), rotated(keys, cosines, sines), values, is_causal=True, enable_gqa=True
        )
        stream = stream + functional.linear(mixed.transpose(1, 2).reshape(batch, length, -1), weights[layer + "o"])
        inputs = normed(stream, weights[layer + "ffn_norm"])
        gate = functional.silu(functional.linear(inputs, weights[layer + "gate"]))
        ffn = gate * functional.linear(inputs, weights[layer + "up"])
        stream = stream + functional.linear(ffn, weights[layer + "down"])
    return functional.linear(normed(stream, weights["norm"]), weights["embedding"])


def summed_loss(size: Size, weights: Weights, inputs: Tensor, targets: Tensor) -> Tensor:
    """The cross entropy of all targets [B, S], summed, in nats. On GPUs products are in bfloat16, by torch's rules for
    mixed precision; weights, norms and the loss stay float32."""
    with torch.autocast(inputs.device.type, torch.bfloat16, enabled=inputs.is_cuda):
        found = logits(size, weights, inputs)
        return functional.cross_entropy(found.flatten(0, 1), targets.flatten(), reduction="sum")


def rate_of(size: Size, learning_rate: float) -> float:
    """The rate of AdamW for a model of that width: wider ones take less in proportion, as muP (Yang et al., 2022)."""
    return learning_rate * min(1.0, BASE_HIDDEN / size.hidden)


def adapted(base: Weights, adapters: Weights, scale: float) -> Weights:
    """The weights with `scale` * lora_up @ lora_down added to each matrix that has such."""
    found = dict(base)
    for name in base:
        if f"{name}.lora_up" in adapters:
            found[name] = base[name] + scale * adapters[f"{name}.lora_up"] @ adapters[f"{name}.lora_down"]
    return found
