# library: torch.compile
"""llama's operators through torch.compile. A step writes to a cache of fixed size and is compiled with
mode="reduce-overhead", so that torch runs it as a CUDA graph. One compiled function serves prompts of all lengths.
"""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reference import frequencies

MODE = "reduce-overhead"  # with "max-autotune" it could take minutes to compile


class Compiled(nn.Module):
    """The model. A cache is good until the next prompt of as many sequences."""

    def __init__(self, config: Any, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.config, self.batch = config, 0
        self.table, self.norm = weights["model.embed_tokens.weight"], weights["model.norm.weight"]
        self.layers = [layer_of(weights, f"model.layers.{number}.") for number in range(config.layers)]
        positions = torch.arange(config.max_length, device=self.table.device, dtype=torch.float32)
        angles = torch.outer(positions, frequencies(config, self.table.device))
        cos, sin = angles.cos().to(self.table.dtype), angles.sin().to(self.table.dtype)
        self.register_buffer("cos", torch.cat([cos, cos], 1)[:, None])
        self.register_buffer("sin", torch.cat([-sin, sin], 1)[:, None])
        keep_in_place([self.table, self.norm, *(one for layer in self.layers for one in vars(layer).values())])
        self.step = torch.compile(self.forward, mode=MODE, fullgraph=True, dynamic=False)
        self.prompt = torch.compile(self.forward, fullgraph=True, dynamic=True)

    def prefill(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        batch, length = tokens.shape
        if batch != self.batch:
            self.batch, config = batch, self.config
            shape = (batch, config.kv_heads, config.max_length, config.head_dim)
            self.caches = [(self.table.new_zeros(shape), self.table.new_zeros(shape)) for _ in self.layers]
            keep_in_place(one for cache in self.caches for one in cache)
        places = torch.arange(length, device=tokens.device)
        return self.prompt(tokens, places, True), places[-1:] + 1

    def decode(self, token: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        return self.step(token[:, None], cache, False), cache + 1

    def forward(self, tokens: Tensor, places: Tensor, is_prompt: bool) -> Tensor:
        config = self.config
        cos, sin = self.cos[places], self.sin[places]
        x = F.embedding(tokens, self.table)
        seen = None if is_prompt else (torch.arange(config.max_length, device=x.device) <= places)[None, None, None]
        for layer, cache in zip(self.layers, self.caches, strict=True):
            qkv = F.linear(self.normed(x, layer.norm), layer.qkv).unflatten(-1, (-1, config.head_dim))
            turned, value = qkv.split([config.heads + config.kv_heads, config.kv_heads], 2)
            turned = turned * cos + turned.roll(config.head_dim // 2, -1) * sin
            query, key = turned.split([config.heads, config.kv_heads], 2)
            keys, values = cache
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


def keep_in_place(tensors: Iterable[Tensor]) -> None:
    """Tells torch that their addresses stay: otherwise CUDA graphs would copy them ahead of every step."""
    for one in tensors:
        torch._dynamo.mark_static_address(one)


def layer_of(weights: dict[str, Tensor], prefix: str) -> SimpleNamespace:
    """A layer's weights. Matrices with the same input become one, and are taken out of `weights`."""

    def joined(part: str, names: tuple[str, ...]) -> Tensor:
        return torch.cat([weights.pop(f"{prefix}{part}.{name}_proj.weight") for name in names])

    return SimpleNamespace(
        norm=weights[f"{prefix}input_layernorm.weight"],
        qkv=joined("self_attn", ("q", "k", "v")),
        out=weights[f"{prefix}self_attn.o_proj.weight"],
        mlp_norm=weights[f"{prefix}post_attention_layernorm.weight"],
        gate_up=joined("mlp", ("gate", "up")),
        down=weights[f"{prefix}mlp.down_proj.weight"],
    )


def build(config: Any, weights: dict[str, Tensor]) -> Compiled:
    """The model for these weights, on their device."""
    return Compiled(config, weights)
