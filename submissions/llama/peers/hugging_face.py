# library: transformers
"""llama by Hugging Face's LlamaForCausalLM with a static cache. On GPUs steps are compiled with mode="reduce-overhead",
as its generate() compiles them.
"""

from typing import Any

import torch
from torch import Tensor

from reference import frequencies

try:
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache
except ImportError as error:
    raise ImportError(f"transformers is not installed ({error}): pip install -e '.[peers]'") from None


class HuggingFace:
    """The model. A cache is good until the next prompt of as many sequences."""

    def __init__(self, config: Any, weights: dict[str, Tensor]) -> None:
        self.config = config
        self.caches: dict[int, StaticCache] = {}  # by the number of sequences
        self.settings = LlamaConfig(
            vocab_size=config.vocab,
            hidden_size=config.hidden,
            intermediate_size=config.ffn,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            head_dim=config.head_dim,
            max_position_embeddings=int(config.rope_original * config.rope_factor),
            rms_norm_eps=config.eps,
            rope_parameters={
                "rope_type": "llama3",
                "rope_theta": config.rope_theta,
                "factor": config.rope_factor,
                "low_freq_factor": config.rope_low,
                "high_freq_factor": config.rope_high,
                "original_max_position_embeddings": config.rope_original,
            },
            tie_word_embeddings=True,
            dtype=config.dtype,
        )
        table = weights["model.embed_tokens.weight"]
        with torch.device("meta"):  # so that no weight is there twice
            self.model = LlamaForCausalLM(self.settings).eval()
        self.model.load_state_dict(weights | {"lm_head.weight": table}, assign=True)
        self.model.model.rotary_emb.inv_freq = frequencies(config, table.device)  # not among the weights
        self.step = self.model.forward
        if table.is_cuda:
            self.step = torch.compile(self.step, mode="reduce-overhead", fullgraph=True, dynamic=False)

    def prefill(self, tokens: Tensor) -> tuple[Tensor, StaticCache]:
        if len(tokens) not in self.caches:
            self.caches[len(tokens)] = StaticCache(self.settings, max_cache_len=self.config.max_length)
        cache = self.caches[len(tokens)]
        cache.reset()
        return self.model(tokens, past_key_values=cache, logits_to_keep=1).logits[:, 0], cache

    def decode(self, token: Tensor, cache: StaticCache) -> tuple[Tensor, StaticCache]:
        return self.step(token[:, None], past_key_values=cache).logits[:, 0], cache


def build(config: Any, weights: dict[str, Tensor]) -> HuggingFace:
    """The model for these weights, on their device."""
    return HuggingFace(config, weights)
