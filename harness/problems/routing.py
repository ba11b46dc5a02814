"""How tokens choose experts, and what that sends between ranks: for problems that route tokens. Knows no tensors.

A token chooses k distinct experts, one after the other, each with a chance proportional to its weight. That is the
order in which E exponential clocks ring whose rates are the weights, which is how references draw it and how chances
are worked out here. The ways to route, as a case's `routing` names them:

- `""`          as GPU MODE's: all experts have the same weight, and a rank has 1 to M - 1 tokens, all equally likely
- `zipf`        the n-th expert has the weight 1/n, counted from the first expert of a rank that the seed chooses
- `single`      all tokens go to one rank that the seed chooses, and every rank has M - 1: the most that one can be sent
- `spare`       no token goes to a rank that the seed chooses
- `empty`       the last rank has no tokens

`spare` and `empty` are `""` on one rank. Hardened inputs of all of them have for each rank's first token one
expert on the next rank, whatever the routing says (reference.harden).

Legend: E num_experts, k experts_per_token, M max_num_tokens, W world_size, T a rank's num_tokens.
"""

import functools
import math
from dataclasses import dataclass
from typing import Annotated

from harness.core.decode import DecodeError, did_you_mean
from harness.core.limits import Limited, at_least

ROUTINGS = ("zipf", "single", "spare", "empty")
MOST = {"num_experts": 1 << 14, "max_num_tokens": 1 << 18}  # beyond, what `cost` sums up would take it minutes
MOST_WEIGHED = 1024  # experts of different weights, likewise
POINTS = 64  # of the integral over time; with 64 chances are off by less than 1e-4


@dataclass(frozen=True, kw_only=True)
class RoutedParams(Limited):
    """The arguments of generate_input without rank, world_size and seed. A problem's params.py has them as Params."""

    num_experts: Annotated[int, at_least(1)]
    experts_per_token: Annotated[int, at_least(1)]
    hidden_dim: Annotated[int, at_least(1)]
    max_num_tokens: int
    routing: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
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
        if self.routing and self.routing not in ROUTINGS:
            hint = did_you_mean(self.routing, ROUTINGS)
            raise DecodeError(".routing", f"no such routing{hint} (known: {', '.join(ROUTINGS)}; or leave it out)")
        if self.routing and self.num_experts > MOST_WEIGHED:
            raise DecodeError(
                ".num_experts", f"expected at most {MOST_WEIGHED} with a routing, found {self.num_experts}"
            )

    def check_world_size(self, world_size: int) -> None:
        """Raises DecodeError where the case cannot be split over `world_size` ranks."""
        if self.num_experts % world_size:
            raise DecodeError(
                ".num_experts",
                f"{self.num_experts} is not divisible by the world size {world_size}; choose a multiple of "
                f"{world_size}, or a world size that divides {self.num_experts}",
            )
        usable = sum(weight > 0 for weight in weights(self, world_size))
        if self.experts_per_token > usable:
            raise DecodeError(
                ".routing",
                f"{self.routing} on {world_size} ranks leaves {usable} experts, and a token has "
                f"{self.experts_per_token}; choose more experts",
            )


def weights(params: RoutedParams, world_size: int, seed: int = 0) -> list[float]:
    """The weight of each expert: chances are proportional to them."""
    experts, per_rank = params.num_experts, params.num_experts // world_size
    first = seed % world_size * per_rank  # expert of the rank that the seed chooses
    places = [(expert - first) % experts for expert in range(experts)]  # counted from there
    if params.routing == "zipf":
        return [1 / (1 + place) for place in places]
    if params.routing == "single":
        return [float(place < per_rank) for place in places]
    if params.routing == "spare" and world_size > 1:
        return [float(place >= per_rank) for place in places]
    return [1.0] * experts


def tokens_of(params: RoutedParams, drawn: int, rank: int, world_size: int) -> int:
    """How many tokens a rank has that would have `drawn` of them if the routing said nothing."""
    if params.routing == "single":
        return params.max_num_tokens - 1
    return 0 if is_empty(params, rank, world_size) else drawn


def is_empty(params: RoutedParams, rank: int, world_size: int) -> bool:
    """Whether that rank has no tokens, whatever the seed is."""
    return params.routing == "empty" and 0 < rank == world_size - 1


def expected_max_tokens(max_num_tokens: int, world_size: int) -> float:
    """The expectation of the largest of W independent T, each uniform on 1 to M - 1.

    E[max] = sum over t = 1..M-1 of P(max >= t) = sum of 1 - ((t - 1) / (M - 1))^W.
    Anchors: M = 2 gives 1 for any W; W = 1 gives M / 2; M = 256, W = 8 gives 227.164.
    """
    most = max_num_tokens - 1
    return sum(1 - ((t - 1) / most) ** world_size for t in range(1, most + 1))


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is expected over seeds: how many tokens the rank with the most has (`most`), and all ranks together
    (`total`); and `chances`, for each rank the probability that a given token has at least one expert there."""

    most: float
    total: float
    chances: tuple[float, ...]

    def rows(self, cap: float = math.inf) -> tuple[float, float]:
        """How many rows leave the busiest rank at least, and a rank on average, if one goes to each rank that holds one
        of a token's experts, and one comes back. `cap`: what stands in for more rows than that between two ranks.

        With t(n) = min(n, cap) and q the chances, two ranks may be the busiest; the one that sends more counts:
        the one with the most tokens, which any rank may be, and the one with the most chosen experts (h):
            (W - 1)/W sum over s of t(q_s E[max T]) + t(q_s E[T of the others])
            sum over s, not h, of t(q_s E[T]), and (W - 1) t(q_h E[T])
        Incoming rows mirror these, so no direction is busier. `cap` only counts for the busiest.
        """
        ranks = len(self.chances)
        if ranks == 1:
            return 0.0, 0.0
        others, mean = (self.total - self.most) / (ranks - 1), self.total / ranks
        fullest = sum(min(chance * count, cap) for chance in self.chances for count in (self.most, others))
        *rest, hottest = sorted(self.chances)
        sought = sum(min(chance * mean, cap) for chance in rest) + (ranks - 1) * min(hottest * mean, cap)
        average = 2 * (ranks - 1) / ranks * mean * sum(self.chances)
        return max((ranks - 1) / ranks * fullest, sought), average


def load(params: RoutedParams, world_size: int) -> Load:
    holders = world_size - is_empty(params, world_size - 1, world_size)  # ranks with tokens
    most, mean = expected_max_tokens(params.max_num_tokens, holders), params.max_num_tokens / 2
    if params.routing == "single":
        most = mean = params.max_num_tokens - 1
    chances = _chances(tuple(weights(params, world_size)), params.experts_per_token, world_size)
    return Load(most=most, total=holders * mean, chances=chances)


@functools.lru_cache(maxsize=256)
def _chances(of_experts: tuple[float, ...], chosen: int, world_size: int) -> tuple[float, ...]:
    per_rank = len(of_experts) // world_size
    parts = [of_experts[first : first + per_rank] for first in range(0, len(of_experts), per_rank)]
    known = {part: 1 - _chance_of_none(part, of_experts, chosen) for part in set(parts)}
    return tuple(known[part] for part in parts)


def _chance_of_none(part: tuple[float, ...], of_experts: tuple[float, ...], chosen: int) -> float:
    """The probability that none of a token's experts is of `part`.

    With equal weights, n experts in all, p of them in the part: C(n - p, k) / C(n, k).
    Anchors at W = 8, where the part is E/8: (E 8, k 2) 0.75; (256, 8) 0.33817.
    Else it is the probability that k of the other clocks ring before the first of the part's, whose rates add up to R:
    the integral over u = exp(-R t) from 0 to 1 of P(k or more of the others have rung by t).
    """
    rate, usable = math.fsum(part), [weight for weight in of_experts if weight]
    others = len(usable) - sum(weight > 0 for weight in part)
    if not rate or others < chosen:
        return 0.0 if rate else 1.0
    if len(set(usable)) == 1:
        return math.comb(others, chosen) / math.comb(len(usable), chosen)
    left = list(usable)
    for weight in filter(None, part):
        left.remove(weight)
    times = [-math.log((point + 0.5) / POINTS) / rate for point in range(POINTS)]
    return math.fsum(_at_least(left, chosen, time) for time in times) / POINTS


def _at_least(rates: list[float], count: int, time: float) -> float:
    """The probability that `count` or more of the clocks have rung by then."""
    rung = [1.0] + [0.0] * (count - 1)  # the probability that so many have, below `count`
    for rate in rates:
        chance = -math.expm1(-rate * time)
        for number in range(count - 1, 0, -1):
            rung[number] += chance * (rung[number - 1] - rung[number])
        rung[0] *= 1 - chance
    return 1 - math.fsum(rung)
