"""What a case of moe is made of, and what it costs. Knows no tensors, so the parent process can import it.

Legend: E num_experts, k experts_per_token, H hidden_dim, I intermediate dimension, M max_num_tokens, W world_size,
T a rank's num_tokens.
"""

import math
from collections.abc import Callable
from dataclasses import replace

from harness.core.records import Cost
from harness.problems.routing import RoutedParams as Params
from harness.problems.routing import is_empty, load, weights

__all__ = ["INTERMEDIATE_DIM", "Params", "cost", "depends_on", "near"]

INTERMEDIATE_DIM = 16  # I of every case: the least that matrix units take, and more than pays to send (see `cost`)


def experts_in_use(params: Params, world_size: int) -> float:
    """How many experts at least one token of all ranks has, of the rank whose experts are chosen most.

    Of each, u = 1 - (mean over T = 1..M-1 of (1 - c)^T)^W, if a token has it with the chance c: k/E where all experts
    are alike. Else c is at least 1 - (1 - w)^k, if w is its part of all weights, and W counts ranks with tokens.
    Anchors at W = 8, of u: (E 1, k 1) 1; (E 8, k 2, M 16) 0.99995.
    """
    chosen, of_experts, per_rank = (
        params.experts_per_token,
        weights(params, world_size),
        params.num_experts // world_size,
    )
    hottest = max(
        (of_experts[first : first + per_rank] for first in range(0, len(of_experts), per_rank)), key=math.fsum
    )
    parts = [weight / math.fsum(of_experts) for weight in hottest]
    chances = [1 - (1 - part) ** chosen for part in parts] if params.routing else [chosen * part for part in parts]
    counts, holders = range(1, params.max_num_tokens), world_size - is_empty(params, world_size - 1, world_size)
    used = {
        chance: 1 - (sum((1 - chance) ** count for count in counts) / len(counts)) ** holders for chance in set(chances)
    }
    return math.fsum(used[chance] for chance in chances)


def cost(params: Params, world_size: int) -> Cost:
    """What the busiest rank must do at least, in expectation over seeds.

    link_bytes, one direction. A token's x (2H bytes) goes to each other rank that holds one of its experts, and one
    partial sum (2H bytes) comes back. Incoming is the mirror image, so no direction is busier. Or a rank fetches the
    matrices of another's E/W experts (4 I H bytes each) in place of sending its n tokens there; that pays for n > c =
    I E/W. Between two ranks so pass t(n) = min(q n, c) rows for either rank's tokens, if a rank holds one of a token's
    experts with the chance q. Where all ranks are alike, the busiest is the one with the most tokens:
        2 H (W - 1) (t(E[max T]) + t(the other ranks' expected T)).
    With a skewed routing it may also be the rank whose experts are chosen most: harness.problems.routing has the sums.
    In the official shapes c is never the smaller one, and the sum is a2a's. Fetching single experts would pay only
    where more than I of a rank's tokens have an expert and no other one of the same rank: at most 6 do on average.
    Assumed: data goes straight from rank to rank; neither a third rank nor the fabric copies or adds on the way.
    A single draw of tokens can cost less than this expectation; compare it with a mean over seeds.

    hbm_bytes: x, indices and weights read once, the result written once, E[max T] (4H + 8k), and the matrices of this
    rank's experts that any token has, read once, 4 I H E/W u. What comes from peers may stay out of this rank's memory,
    so it is not counted.
    flops: two products of I x H a (token, expert) pair, 4 I H. Pairs: k M / 2, averaged over ranks; or as many as there
    are tokens that need the experts of the rank which most tokens need, if those are more.

    Anchors, official benchmarks (W = 8) on MI300X's 448 GB/s: 1.01 1.54 6.40 29.13 50.55 us, all bound by the link.
    """
    hidden, top_k = params.hidden_dim, params.experts_per_token
    expected = load(params, world_size)
    busiest, average = expected.rows(cap=INTERMEDIATE_DIM * params.num_experts // world_size)
    pairs = expected.total * max(top_k / world_size, *expected.chances)
    matrices_bytes = 4 * INTERMEDIATE_DIM * hidden * experts_in_use(params, world_size)
    return Cost(
        flops=4 * INTERMEDIATE_DIM * hidden * pairs,
        hbm_bytes=expected.most * (4 * hidden + 8 * top_k) + matrices_bytes,
        link_bytes=2 * hidden * busiest,
        mean_link_bytes=2 * hidden * min(average, busiest) if params.routing else None,
    )


def depends_on(params: Params, rank: int, world_size: int) -> frozenset[int]:
    """The other ranks whose data this rank's result on a hardened input needs.

    `harden` gives token 0 of every rank an expert on the next rank, if it has a token.
    """
    return frozenset() if is_empty(params, rank, world_size) else frozenset({(rank + 1) % world_size} - {rank})


def near(params: Params, world_size: int, draw: Callable[..., int]) -> Params:
    """A shape near that one, of sizes that `draw` draws (harness.problems.drawn)."""
    return replace(
        params,
        num_experts=draw(params.num_experts, world_size),
        experts_per_token=draw(params.experts_per_token),
        hidden_dim=draw(params.hidden_dim),
        max_num_tokens=draw(params.max_num_tokens),
    )
