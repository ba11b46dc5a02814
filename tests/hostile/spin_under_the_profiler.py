"""The reference's model, with an own operator, `mine::spin`, that burns time only where a profiler looks. The share of
own kernels is a claim that no score counts (tests/evaluation/test_opponents.py).

expect: harmless
problem: llama
devices: cpu
"""

import time

import torch

from reference import Llama

library = torch.library.Library("mine", "DEF")
library.define("spin(Tensor(a) logits) -> Tensor(a)")


def spin(logits):
    until = time.perf_counter() + 0.05
    while time.perf_counter() < until:
        pass
    return logits


library.impl("spin", spin, "CPU")


class Model(Llama):
    def prefill(self, tokens):
        logits, cache = super().prefill(tokens)
        return seen(logits), cache

    def decode(self, token, cache):
        logits, cache = super().decode(token, cache)
        return seen(logits), cache


def seen(logits):
    return torch.ops.mine.spin(logits) if torch.autograd._profiler_enabled() else logits


def build(config, weights):
    return Model(config, weights)
