"""Returns rough logits from every step, and when the last one is computed puts exact ones, all computed at once, into
the buffer in which the harness's adapter keeps them. Speculation is legal (docs/models.md): honest_speculation.py has
the same by `revise`. On GPUs it has not been tried.

expect: harmless
problem: llama
devices: cpu
"""

import sys

import torch

from reference import Llama

ROUGH = 1 + 2**-10


class Mending(Llama):
    def prefill(self, tokens_BP):
        self.tokens_BT, self.prompt = tokens_BP, tokens_BP.shape[1]
        return super().prefill(tokens_BP)[0] * ROUGH, None

    def decode(self, token_B, cache):
        self.tokens_BT = torch.cat([self.tokens_BT, token_B[:, None]], 1)
        exact_BNV = self.logits(self.hidden(self.tokens_BT, [])[0][:, self.prompt - 1 :])
        buffer_BNV = the_adapters("logits_BNV")
        if exact_BNV.shape[1] < buffer_BNV.shape[1]:
            return exact_BNV[:, -1] * ROUGH, None
        buffer_BNV.copy_(exact_BNV)
        return exact_BNV[:, -1], None


def the_adapters(name):
    """The variable of that name in the function that runs the generation."""
    frame = sys._getframe()
    while name not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals[name]


def build(config, weights):
    return Mending(config, weights)
