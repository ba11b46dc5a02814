"""What a case of moe is made of, and what it costs. Knows no tensors, so the parent process can import it.

Legend: E num_experts, k experts_per_token, H hidden_dim, I intermediate dimension, M max_num_tokens, W world_size,
T a rank's num_tokens.
"""

from dataclasses import dataclass
from math import comb

from harness.core.decode import DecodeError
from harness.core.records import Cost

INTERMEDIATE_DIM = 16  # I of every case: the least that matrix units take, and more than pays to send (see `cost`)
MOST = {"num_experts": 1 << 14, "max_num_tokens": 1 << 18}  # beyond, what `cost` sums up would take it minutes


@dataclass(frozen=True, kw_only=True)
class Params:
    """The arguments of generate_input without rank, world_size and seed: a2a's."""

    num_experts: int
    experts_per_token: int
    hidden_dim: int
    max_num_tokens: int

    def __post_init__(self) -> None:
        for name in ("num_experts", "experts_per_token", "hidden_dim"):
            if getattr(self, name) < 1:
                raise DecodeError(f".{name}", f"expected 1 or more, found {getattr(self, name)}")
        for name, most in MOST.items():
            if getattr(self, name) > most:
                raise DecodeError(f".{name}", f"expected at most {most}, found {getattr(self, name)}")
        if self.experts_per_token > self.num_experts:
            raise DecodeError(
                ".experts_per_token",
                f"a token's experts are distinct, so {self.experts_per_token} do not fit into "
                f"{self.num_experts}; choose at most num_experts",
            )
        if self.max_num_tokens < 2:
            raise DecodeError(
                ".max_num_tokens",
                f"expected 2 or more, found {self.max_num_tokens}: a rank has 1 to max_num_tokens - 1 tokens",
            )

    def check_world_size(self, world_size: int) -> None:
        """Raises DecodeError where the case cannot be split over `world_size` ranks."""
        if self.num_experts % world_size:
            raise DecodeError(
                ".num_experts",
                f"{self.num_experts} is not divisible by the world size {world_size}; choose a multiple of "
                f"{world_size}, or a world size that divides {self.num_experts}",
            )


def expected_max_tokens(max_num_tokens: int, world_size: int) -> float:
    """The expectation of the largest of W independent T, each uniform on 1 to M - 1: the sum over t = 1..M-1 of
    1 - ((t - 1) / (M - 1))^W. Anchors: M = 2 gives 1 for any W; W = 1 gives M / 2; M = 256, W = 8 gives 227.164."""
    most = max_num_tokens - 1
    return sum(1 - ((t - 1) / most) ** world_size for t in range(1, most + 1))


def chance_of_a_rank(params: Params, world_size: int) -> float:
    """The probability that one given rank holds at least one of a token's k distinct experts.

    q = 1 - C(E - E/W, k) / C(E, k). Anchors at W = 8: (E 8, k 2) 0.25; (256, 8) 0.66183.
    """
    experts, chosen = params.num_experts, params.experts_per_token
    return 1 - comb(experts - experts // world_size, chosen) / comb(experts, chosen)


def chance_of_use(params: Params, world_size: int) -> float:
    """The probability that at least one token of all ranks has a given expert.

    u = 1 - (mean over T = 1..M-1 of (1 - k/E)^T)^W. Anchors at W = 8: (E 1, k 1) 1; (E 8, k 2, M 16) 0.99995.
    """
    spared, most = 1 - params.experts_per_token / params.num_experts, params.max_num_tokens - 1
    return 1 - (sum(spared**t for t in range(1, most + 1)) / most) ** world_size


def cost(params: Params, world_size: int) -> Cost:
    """What the rank with the most tokens must do at least, in expectation over seeds.

    link_bytes, one direction. A token's x (2H bytes) goes to each other rank that holds one of its experts, and one
    partial sum (2H bytes) comes back. Incoming is the mirror image, so no direction is busier. Or a rank fetches the
    matrices of another's E/W experts (4 I H bytes each) in place of sending its n tokens there; that pays for n > c =
    I E/W. Between two ranks so pass t(n) = min(q n, c) rows for either rank's tokens:
        2 H (W - 1) (t(E[max T]) + t(the other ranks' expected T)).
    In the shapes of shapes/moe.yaml c is never the smaller one, and the sum is a2a's. Fetching single experts would pay
    only where more than I of a rank's tokens have an expert and no other one of the same rank: at most 6 do on average.
    Assumed: data goes straight from rank to rank; neither a third rank nor the fabric copies or adds on the way.
    A single draw of tokens can cost less than this expectation; compare it with a mean over seeds.

    hbm_bytes: x, indices and weights read once, the result written once, E[max T] (4H + 8k), and the matrices of this
    rank's experts that any token has, read once, 4 I H E/W u. What comes from peers may stay out of this rank's memory,
    so it is not counted.
    flops: two products of I x H a (token, expert) pair, averaged over ranks: 4 I H k M / 2.

    Anchors, official benchmarks (W = 8) on MI300X's 448 GB/s: 1.01 1.54 6.40 29.13 50.55 us, all bound by the link.
    """
    experts, hidden, top_k = params.num_experts // world_size, params.hidden_dim, params.experts_per_token
    tokens = expected_max_tokens(params.max_num_tokens, world_size)
    matrices_bytes = 4 * INTERMEDIATE_DIM * hidden * experts * chance_of_use(params, world_size)
    chance, others = chance_of_a_rank(params, world_size), world_size - 1
    rows = 0.0
    if others:
        others_tokens = (world_size * params.max_num_tokens / 2 - tokens) / others
        rows = sum(min(chance * count, INTERMEDIATE_DIM * experts) for count in (tokens, others_tokens))
    return Cost(
        flops=2 * INTERMEDIATE_DIM * hidden * top_k * params.max_num_tokens,
        hbm_bytes=tokens * (4 * hidden + 8 * top_k) + matrices_bytes,
        link_bytes=2 * hidden * others * rows,
    )


def depends_on(params: Params, rank: int, world_size: int) -> frozenset[int]:
    """The other ranks whose data this rank's result on a hardened input needs.

    `harden` gives token 0 of every rank an expert on the next rank.
    """
    return frozenset({(rank + 1) % world_size} - {rank})
