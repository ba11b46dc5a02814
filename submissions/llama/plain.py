"""The model in few operators of torch: for CPUs, and for GPUs and sizes that there are no kernels for.

Legend: B sequences, T tokens at a time, S tokens so far, H heads, G key heads, R = H / G, D head_dim, C hidden.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

LAYER = "model.layers.{}."


def joined(weights: dict[str, Tensor], names: list[str]) -> Tensor:
    """The matrices, one below the other. They are taken out of the weights, so that they are there once."""
    return torch.cat([weights.pop(f"{name}.weight") for name in names])


def turns(config: Any, device: torch.device) -> Tensor:
    """[max_length, D] float32: the cosines, then the sines, of each pair of a head at each position."""
    pairs = torch.arange(0, config.head_dim, 2, dtype=torch.float64, device=device)
    fast = config.rope_theta ** (-pairs / config.head_dim)
    rounds = config.rope_original * fast / (2 * torch.pi)
    share = ((rounds - config.rope_low) / (config.rope_high - config.rope_low)).clamp(0, 1)
    angle = (fast * share + fast / config.rope_factor * (1 - share)).float()
    angles = torch.outer(torch.arange(config.max_length, device=device, dtype=torch.float32), angle)
    return torch.cat([angles.cos(), angles.sin()], 1)


class Layer:
    """A layer's weights, joined where they have the same input."""

    def __init__(self, weights: dict[str, Tensor], layer: int) -> None:
        prefix = LAYER.format(layer)
        self.norm = weights[f"{prefix}input_layernorm.weight"]
        self.qkv = joined(weights, [f"{prefix}self_attn.{name}_proj" for name in "qkv"])
        self.out = weights[f"{prefix}self_attn.o_proj.weight"]
        self.mlp_norm = weights[f"{prefix}post_attention_layernorm.weight"]
        self.gate_up = joined(weights, [f"{prefix}mlp.{name}_proj" for name in ("gate", "up")])
        self.down = weights[f"{prefix}mlp.down_proj.weight"]


class Cache:
    """Keys and values [L, 2, B, G, max_length, D], of which `length` tokens are there."""

    def __init__(self, config: Any, batch: int, like: Tensor) -> None:
        self.kept = like.new_empty(config.layers, 2, batch, config.kv_heads, config.max_length, config.head_dim)
        self.length = 0


class Plain:
    """The model. A cache is good until the next prompt of as many sequences.

    In float32 the rows of queries and keys are `paired`: (0, D / 2), (1, D / 2 + 1), and so on lie side by side, which
    changes no product of a query and a key. A pair is then a complex number, and a turn one multiplication.
    """

    def __init__(self, config: Any, weights: dict[str, Tensor], paired: bool | None = None) -> None:
        self.config = config
        self.table, self.norm = weights["model.embed_tokens.weight"], weights["model.norm.weight"]
        self.paired = self.table.dtype == torch.float32 if paired is None else paired
        self.layers = [Layer(weights, layer) for layer in range(config.layers)]
        cos, sin = turns(config, self.table.device).chunk(2, 1)
        if self.paired:
            self.turn = torch.complex(cos, sin)[:, None]
            for layer in self.layers:
                turned = (config.heads + config.kv_heads) * config.head_dim
                rows = layer.qkv[:turned].unflatten(0, (-1, 2, config.head_dim // 2)).transpose(1, 2).flatten(0, 2)
                layer.qkv = torch.cat([rows, layer.qkv[turned:]])
        else:
            # x * cos + swapped x * sin, where the halves of a head are swapped and the sines of the first are negative
            cos, sin = cos.to(self.table.dtype), sin.to(self.table.dtype)
            self.cos, self.sin = torch.cat([cos, cos], 1)[:, None], torch.cat([-sin, sin], 1)[:, None]
        self.caches: dict[int, Cache] = {}

    def prefill(self, tokens: Tensor) -> tuple[Tensor, Cache]:
        """Logits [B, V] behind the prompts [B, T], and their cache."""
        batch = len(tokens)
        if batch not in self.caches:
            self.caches = {batch: Cache(self.config, batch, self.table)}
        self.caches[batch].length = 0
        return self.run(tokens, self.caches[batch])

    def decode(self, token: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        """Logits [B, V] behind one more token [B] of each sequence."""
        return self.run(token[:, None], cache)

    def run(self, tokens: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        config, (batch, count) = self.config, tokens.shape
        begin, end = cache.length, cache.length + count
        heads = config.heads + config.kv_heads
        x = F.embedding(tokens.flatten(), self.table)
        for number, layer in enumerate(self.layers):
            qkv = F.linear(self.normed(x, layer.norm), layer.qkv).view(batch, count, -1, config.head_dim)
            self.turn_in_place(qkv[:, :, :heads], begin, end)
            kept = cache.kept[number]
            kept[:, :, :, begin:end] = qkv[:, :, config.heads :].unflatten(2, (2, -1)).permute(2, 0, 3, 1, 4)
            query = qkv[:, :, : config.heads]
            if number + 1 == len(self.layers):  # of which only the last token's result is needed
                query, x = query[:, -1:], x.view(batch, count, -1)[:, -1]
            attend = self.one_attends if query.shape[1] == 1 else self.all_attend
            x = self.added(x, attend(query, *kept[:, :, :, :end]), layer.out)
            gate, up = F.linear(self.normed(x, layer.mlp_norm), layer.gate_up).chunk(2, -1)
            x = self.added(x, F.silu(gate).mul_(up), layer.down)
        cache.length = end
        return self.logits(self.normed(x, self.norm)), cache

    def added(self, x: Tensor, a: Tensor, weight: Tensor) -> Tensor:
        """x + a weight^T, all [tokens, width]."""
        return torch.addmm(x, a, weight.T)

    def logits(self, x: Tensor) -> Tensor:
        """[B, V] of the normalised last tokens [B, C]."""
        return F.linear(x, self.table)

    def turn_in_place(self, x: Tensor, begin: int, end: int) -> None:
        """Turns the heads [B, T, H + G, D] of tokens at these positions."""
        if self.paired:
            torch.view_as_complex(x.unflatten(-1, (-1, 2))).mul_(self.turn[begin:end])
        else:
            x.copy_(x * self.cos[begin:end] + x.roll(self.config.head_dim // 2, -1) * self.sin[begin:end])

    def normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, weight.shape, weight, self.config.eps)

    def one_attends(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """One token [B, 1, H, D] attends to keys [B, G, S, D], the heads of a key head as rows of one product."""
        batch, scale = len(query), self.config.head_dim**-0.5
        rows = query.reshape(batch * self.config.kv_heads, -1, self.config.head_dim)
        weight = torch.baddbmm(rows.new_empty(()), rows, keys.flatten(0, 1).mT, beta=0, alpha=scale).softmax(-1)
        return torch.bmm(weight, values.flatten(0, 1)).view(batch, -1)

    def all_attend(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """All tokens of a prompt [B, T, H, D] attend to those before."""
        mixed = F.scaled_dot_product_attention(query.transpose(1, 2), keys, values, is_causal=True, enable_gqa=True)
        return mixed.transpose(1, 2).flatten(2).flatten(0, 1)
