"""The trusted ranks' program for definitions that leave a choice to a solution: which tokens it draws, or the order in
which it returns the best indices. What equals the reference's own result is right; so is any other allowed choice.

Tokens must be among those that top-k and top-p leave, and drawn as the probabilities have it, over all calls that are
judged. Indices must be the reference's in any order, except near the end, where scores nearly tie. After
flashinfer_bench/bench/evaluators, sampling.py and dsa_topk_indexer.py, read 2026-11.

Legend: B rows, V vocabulary, K indices.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from harness.core.records import Verdict
from harness.judging.correctness import failed
from harness.kinds.trace import schema
from harness.kinds.trace.rank_inputs import definition
from harness.ranks import strict_check, wire
from harness.ranks.trusted import Trusted

SLACK = 1e-2  # that cumulated probabilities of float32 may be off by
LEAST = 1e-12  # probability of a token, below which none is drawn
TINY = 1e-12
SURE = 0.9  # of a token: that row says nothing of how tokens are drawn
CHANCE = 1e-7  # of tokens that are drawn as they should be: less likely ones are wrong
TAIL = 0.01  # of the indices, whose scores may tie


class ChoiceTrusted(Trusted):
    """Judges by the allowed choices what is not the reference's own result."""

    draws = torch.empty(0, dtype=torch.float64, device="cpu")  # the places of all tokens so far
    drawn_for: frozenset[tuple[str, int]] = frozenset()  # workloads and seeds: of each, draws count once

    def verified(self, command: wire.Verify) -> wire.Verified:
        found = super().verified(command)
        declared, values = self.taken[command.taken]
        expected, data = self.expected(command.index), self.made[command.index]
        output = strict_check.for_check(declared, values, expected, self.device.kind)
        if not isinstance(output, Tensor) or output.shape != expected.value.shape:
            return found
        named = dict(zip(definition()["inputs"], data["inputs"], strict=True))
        is_drawn = schema.choice(definition()) == schema.TOKENS
        # Tokens that equal the reference's count as well: those that do not would be another choice of all.
        verdict = self.drawn(data, named, output) if is_drawn else ordered(named, output, expected.value)
        if found.verdicts.strict.passed:
            return found
        published = verdict if command.published else found.verdicts.gpumode
        return replace(found, verdicts=replace(found.verdicts, strict=verdict, gpumode=published))

    def drawn(self, data: Mapping[str, Any], named: Mapping[str, Any], tokens: Tensor) -> Verdict:
        """Whether these tokens [B] may be drawn from `probs` [B, V], and all so far are drawn as they should be."""
        places, why = positions(named, tokens)
        if why:
            return failed(why)
        key = (data["workload"], data["seed"])
        if key not in self.drawn_for:
            self.drawn_for |= {key}
            self.draws = torch.cat([self.draws, places.cpu().double()])
        if chance(self.draws) >= CHANCE:
            return Verdict(passed=True)
        return failed(f"its {len(self.draws)} tokens so far are not drawn as the probabilities have it")


def chance(places: Tensor) -> float:
    """How likely places in [0, 1] that are evenly drawn are at least so near to 0, to 1, or to both or neither: at most
    the least of four tails of gamma distributions (Fisher's method)."""
    count = places.new_tensor(float(len(places)))
    if not len(places):
        return 1.0
    folded = 1 - (2 * places - 1).abs()
    tails = [-one.clamp(TINY, 1).log().sum() for one in (places, 1 - places, folded, 1 - folded)]
    return min(float(torch.special.gammaincc(count, one)) for one in tails)


def positions(named: Mapping[str, Any], tokens: Tensor) -> tuple[Tensor, str]:
    """Where drawn tokens [B] lie in their rows' cumulated probabilities, which are even if they are drawn by these;
    without rows that are nearly sure. And why a token cannot be drawn, or ""."""
    probs_BV, token_B1 = named["probs"].double(), tokens.reshape(-1, 1).long()
    vocabulary = probs_BV.shape[-1]
    if bool(((token_B1 < 0) | (token_B1 >= vocabulary)).any()):
        return tokens, f"a token is not below {vocabulary}"
    ranked_BV, order_BV = probs_BV.sort(dim=-1, descending=True, stable=True)
    rank_B1 = (order_BV == token_B1).double().argmax(-1, keepdim=True)
    share_BV = ranked_BV / ranked_BV.sum(-1, keepdim=True)
    is_loose_BV = torch.ones_like(share_BV, dtype=torch.bool)
    if "top_k" in named:
        k_B1 = named["top_k"].reshape(-1, 1).long()
        k_B1 = k_B1.masked_fill((k_B1 <= 0) | (k_B1 > vocabulary), vocabulary)
        is_loose_BV &= ranked_BV >= ranked_BV.gather(-1, k_B1 - 1)  # whichever of those that tie
        share_BV = share_BV.masked_fill(torch.arange(vocabulary, device=share_BV.device) >= k_B1, 0)
        share_BV /= share_BV.sum(-1, keepdim=True)
    if "top_p" in named:
        p_B1 = named["top_p"].reshape(-1, 1).double().clamp_min(0)
        before_BV = share_BV.cumsum(-1) - share_BV
        is_loose_BV &= before_BV <= p_B1 + SLACK * (p_B1 > 0)
        share_BV = share_BV.masked_fill(before_BV > p_B1, 0)
        share_BV /= share_BV.sum(-1, keepdim=True)
    bad_B = ~is_loose_BV.gather(-1, rank_B1)[:, 0] | (ranked_BV.gather(-1, rank_B1)[:, 0] < LEAST)
    if bool(bad_B.any()):
        row = int(bad_B.nonzero()[0])
        return tokens, f"row {row}: token {int(token_B1[row])} is none of those that may be drawn"
    share_B = share_BV.gather(-1, rank_B1)[:, 0]
    place_B = share_BV.cumsum(-1).gather(-1, rank_B1)[:, 0] - share_B * torch.rand_like(share_B)
    return place_B[share_BV.amax(-1) < SURE], ""


def ordered(named: Mapping[str, Any], output: Tensor, wanted: Tensor) -> Verdict:
    """Whether each row of indices [B, K] has the wanted ones, which come best first, in any order; -1 stands for none.
    Others may stand for the last of them, if the sequence has them."""
    page_size = definition()["axes"]["page_size"]["value"]
    for row, (found_K, wanted_K) in enumerate(zip(output.tolist(), wanted.tolist(), strict=True)):
        best = [int(one) for one in wanted_K if one >= 0]
        found = {one for one in found_K if one >= 0}
        if len(found) != len(best) or found_K.count(-1) != len(found_K) - len(best):
            return failed(
                f"row {row}: {len(found)} different indices, and {found_K.count(-1)} of -1; {len(best)} wanted"
            )
        tail = max(1, math.ceil(TAIL * len(best)))
        if missing := set(best[:-tail]) - found:
            return failed(f"row {row}: index {min(missing)} is missing, which is among the best {len(best) - tail}")
        slots = {page: slot for slot, page in enumerate(named["block_table"][row].tolist())}
        for one in found - set(best):
            place = slots.get(one // page_size, math.inf) * page_size + one % page_size
            if place >= int(named["seq_lens"][row]):
                return failed(f"row {row}: index {one} is none of the sequence's")
    return Verdict(passed=True)
