"""Speculates: drafts by weights of fewer bits choose the tokens. `revise` computes the exact logits of all of them in
one pass, and in further ones where a draft chose another token.

expect: ranked
problem: llama
mode: leaderboard
devices: cpu
"""

import torch

from reference import Llama


class Speculating(Llama):
    def __init__(self, config, weights):
        super().__init__(config, weights)
        self.draft = Llama(config, {name: weight.bfloat16().to(weight.dtype) for name, weight in weights.items()})

    def prefill(self, tokens_BP):
        self.tokens_BT, self.prompt, self.shifts = tokens_BP, tokens_BP.shape[1], []
        return self.drafted(*self.draft.prefill(tokens_BP))

    def decode(self, token_B, cache):
        self.shifts.append((token_B - self.chosen_B) % self.config.vocab)
        self.tokens_BT = torch.cat([self.tokens_BT, token_B[:, None]], 1)
        return self.drafted(*self.draft.decode(token_B, cache))

    def drafted(self, logits_BV, cache):
        self.chosen_B = logits_BV.argmax(-1)
        return logits_BV, cache

    def revise(self, logits_BNV, cache):
        tokens_BT, is_right = self.tokens_BT, False
        while not is_right:  # each pass has at least one more step right
            hidden_BTC, _ = self.hidden(tokens_BT, [])
            logits_BNV.copy_(self.logits(hidden_BTC[:, self.prompt - 1 :]))
            right_BT = tokens_BT.clone()
            for step, shift_B in enumerate(self.shifts):
                right_BT[:, self.prompt + step] = (logits_BNV[:, step].argmax(-1) + shift_B) % self.config.vocab
            is_right, tokens_BT = torch.equal(right_BT, tokens_BT), right_BT


def build(config, weights):
    return Speculating(config, weights)
