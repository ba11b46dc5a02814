"""What a case of a2a is made of, and what it costs. Knows no tensors, so the parent process can import it.

Legend: E num_experts, k experts_per_token, H hidden_dim, M max_num_tokens, W world_size, T a rank's num_tokens.
"""

from collections.abc import Callable
from dataclasses import replace

from harness.core.records import Cost
from harness.problems.routing import RoutedParams as Params
from harness.problems.routing import is_empty, load

__all__ = ["Params", "cost", "depends_on", "near"]


def cost(params: Params, world_size: int) -> Cost:
    """What the busiest rank must do at least, in expectation over seeds.

    link_bytes, one direction: in dispatch each of its tokens (2H bytes) leaves once to every other rank that holds
    one of its experts; in combine it sends one partial sum (2H bytes) for each token that another rank sent to it.
    Where all experts have the same chance, a rank holds one of a token's with q = 1 - C(E - E/W, k) / C(E, k), and the
    busiest rank is the one with the most tokens:
        2 H q ((W - 1) Tmax + sum of the other ranks' T), in expectation 2 H q ((W - 2) E[max T] + W M / 2).
    Not twice the dispatch of Tmax: a rank's dispatch goes out and its combine comes in, and links are full duplex.
    With a skewed routing it may also be the rank whose experts are chosen most: harness.problems.routing has the sums.
    Assumed: data goes straight from rank to rank; neither a third rank nor the fabric copies or adds on the way.
    A single draw of tokens can cost less than this expectation; compare it with a mean over seeds.

    hbm_bytes: x, indices and weights read once, the result written once: E[max T] (4H + 8k). What comes from peers
    may stay out of this rank's memory, so it is not counted.
    flops: one multiply and one add per element of each token that the experts of the rank which most tokens need see:
    2 H q times all tokens; H M W q where all ranks are alike.

    Anchors, official benchmarks (W = 8) on MI300X's 448 GB/s: 1.01 1.54 6.40 29.13 50.55 us, all bound by the link.
    """
    expected = load(params, world_size)
    busiest, average = expected.rows()
    return Cost(
        flops=2 * params.hidden_dim * expected.total * max(expected.chances),
        hbm_bytes=expected.most * (4 * params.hidden_dim + 8 * params.experts_per_token),
        link_bytes=2 * params.hidden_dim * busiest,
        mean_link_bytes=2 * params.hidden_dim * average if params.routing else None,
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
