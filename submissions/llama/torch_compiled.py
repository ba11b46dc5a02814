#!POPCORN leaderboard llama
"""The same operators through torch.compile(mode="max-autotune"): what the kernels of model.py are held against.

A step is one compiled graph over a cache of fixed size, in whose buffers it writes; torch runs it as a CUDA graph.
Prompts are compiled for each length.
"""

from typing import Any

import torch
import torch.nn.functional as F
from plain import Layer, turns
from torch import Tensor, nn

MODE = "max-autotune"


class Compiled(nn.Module):
    """The model. A cache is good until the next prompt of as many sequences."""

    def __init__(self, config: Any, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.config = config
        self.table, self.norm = weights["model.embed_tokens.weight"], weights["model.norm.weight"]
        self.layers = [Layer(weights, layer) for layer in range(config.layers)]
        cos, sin = turns(config, self.table.device).to(self.table.dtype).chunk(2, 1)
        self.register_buffer("cos", torch.cat([cos, cos], 1)[:, None])
        self.register_buffer("sin", torch.cat([-sin, sin], 1)[:, None])
        for weight in (self.table, self.norm, *(one for layer in self.layers for one in vars(layer).values())):
            torch._dynamo.mark_static_address(weight)  # or CUDA graphs would copy it ahead of every step
        self.batch = 0
        self.run = torch.compile(self.forward, mode=MODE, fullgraph=True, dynamic=False)

    def prefill(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        batch, length = tokens.shape
        if batch != self.batch:
            self.batch, config = batch, self.config
            shape = (config.layers, batch, config.kv_heads, config.max_length, config.head_dim)
            self.register_buffer("keys", self.table.new_zeros(shape))
            self.register_buffer("values", self.table.new_zeros(shape))
        places = torch.arange(length, device=tokens.device)
        return self.run(tokens, places), places[-1:] + 1

    def decode(self, token: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        return self.run(token[:, None], cache), cache + 1

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        config, is_prompt = self.config, tokens.shape[1] > 1
        cos, sin = self.cos[places], self.sin[places]
        x = F.embedding(tokens, self.table)
        seen = None if is_prompt else (torch.arange(config.max_length, device=x.device) <= places)[None, None, None]
        for number, layer in enumerate(self.layers):
            qkv = F.linear(self.normed(x, layer.norm), layer.qkv).unflatten(-1, (-1, config.head_dim))
            turned, value = qkv.split([config.heads + config.kv_heads, config.kv_heads], 2)
            turned = turned * cos + turned.roll(config.head_dim // 2, -1) * sin
            query, key = turned.split([config.heads, config.kv_heads], 2)
            keys, values = self.keys[number], self.values[number]
            keys.index_copy_(2, places, key.transpose(1, 2))
            values.index_copy_(2, places, value.transpose(1, 2))
            if is_prompt:
                keys, values = key.transpose(1, 2), value.transpose(1, 2)
            mixed = F.scaled_dot_product_attention(
                query.transpose(1, 2), keys, values, attn_mask=seen, is_causal=is_prompt, enable_gqa=True
            )
            x = x + F.linear(mixed.transpose(1, 2).flatten(2), layer.out)
            gate, up = F.linear(self.normed(x, layer.mlp_norm), layer.gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
        return F.linear(self.normed(x[:, -1], self.norm), self.table)

    def normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, weight.shape, weight, self.config.eps)


def build(config: Any, weights: dict[str, Tensor]) -> Compiled:
    """The model for these weights, on their device."""
    return Compiled(config, weights)
