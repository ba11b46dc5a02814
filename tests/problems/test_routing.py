"""Skewed routing: what tokens choose, what it costs, and that balanced inputs are those of before there was any."""

import hashlib
import random
from typing import Any

import pytest
import torch

from harness.core.checkout import Checkout
from harness.core.decode import DecodeError
from harness.problems import routing, shape_file
from harness.problems.routing import ROUTINGS, RoutedParams, load
from tests.court import load_reference

BOTH = pytest.mark.parametrize("name", ["a2a", "moe"])
WORLD = 4
SHAPE: dict[str, Any] = {"num_experts": 32, "experts_per_token": 3, "hidden_dim": 8, "max_num_tokens": 12}
# sha256 of rank 1's indices, weights and x for SHAPE and seed 7, by torch 2.13 on CPUs, before cases had a routing
BEFORE = "6ca6cd82175c8d60"


def made(name: str, seed: int, which: str = "", world_size: int = WORLD, **changes: int) -> list[Any]:
    """Every rank's data."""
    generate = load_reference(name).generate_input
    shape = SHAPE | changes
    routed = {"routing": which} if which else {}
    return [generate(**shape, seed=seed, rank=rank, world_size=world_size, **routed)[1] for rank in range(world_size)]


@BOTH
def test_without_a_routing_inputs_are_what_they_were(name: str) -> None:
    mine = made(name, 7)[1]
    digest = hashlib.sha256()
    for part in (mine.indices, mine.weights, mine.x):
        digest.update(part.contiguous().view(torch.uint8).numpy().tobytes())
    assert digest.hexdigest()[:16] == BEFORE


@BOTH
@pytest.mark.parametrize("which", ROUTINGS)
@pytest.mark.parametrize("seed", range(5))
def test_tokens_go_where_the_routing_says(name: str, which: str, seed: int) -> None:
    ranks = made(name, seed, which)
    per_rank = SHAPE["num_experts"] // WORLD
    reached = torch.stack([torch.bincount(one.indices.flatten() // per_rank, minlength=WORLD) for one in ranks]).sum(0)
    counts = [one.num_tokens for one in ranks]
    for one in ranks:
        assert one.indices.dtype == torch.int32
        assert one.indices.shape == (one.num_tokens, 3)
        assert one.x.shape == (one.num_tokens, 8)
        assert all(len(set(row)) == 3 for row in one.indices.tolist())
    if which == "zipf":
        assert reached.argmax() == seed % WORLD
    if which == "single":
        assert reached.nonzero().flatten().tolist() == [seed % WORLD]
        assert counts == [SHAPE["max_num_tokens"] - 1] * WORLD
    if which == "spare":
        assert (reached == 0).nonzero().flatten().tolist() == [seed % WORLD]
    assert [count == 0 for count in counts] == [which == "empty" and rank == WORLD - 1 for rank in range(WORLD)]


@BOTH
@pytest.mark.parametrize("which", ["", *ROUTINGS])
def test_a_hardened_input_depends_on_the_ranks_that_params_name(name: str, which: str) -> None:
    found = shape_file.find(name, Checkout.here())
    params, reference = found.params_type(**SHAPE, routing=which), load_reference(name)
    assert found.depends_of is not None
    for rank, mine in enumerate(made(name, 3, which)):
        _, hardened, *_ = reference.harden((reference.MoEConfig(*SHAPE.values()), mine, rank, WORLD), 3)
        first = set((hardened.indices[:1] // 8).flatten().tolist()) - {rank}
        needs = found.depends_of(params, rank, WORLD)
        assert needs <= first
        assert bool(needs) == bool(mine.num_tokens)


@pytest.mark.parametrize("which", ["", *ROUTINGS])
@pytest.mark.parametrize(("world_size", "shape"), [(4, (16, 3, 6)), (8, (64, 6, 12)), (2, (8, 2, 16))])
@pytest.mark.untraced
def test_the_bound_is_below_a_simulation_and_near_it(which: str, world_size: int, shape: tuple[int, int, int]) -> None:
    """Rows that leave the busiest rank, and a rank on average, over seeds."""
    experts, chosen, most = shape
    params = RoutedParams(
        num_experts=experts, experts_per_token=chosen, hidden_dim=1, max_num_tokens=most, routing=which
    )
    dice, per_rank, trials = random.Random(0), experts // world_size, 300
    busiest = average = 0.0
    for _ in range(trials):
        of_experts = routing.weights(params, world_size, dice.randrange(world_size))
        rows = [0] * world_size
        for rank in range(world_size):
            for _ in range(routing.tokens_of(params, dice.randint(1, most - 1), rank, world_size)):
                clocks = [dice.expovariate(weight) if weight else float("inf") for weight in of_experts]
                first = sorted(range(experts), key=clocks.__getitem__)[:chosen]
                for owner in {expert // per_rank for expert in first} - {rank}:
                    rows[rank] += 1
                    rows[owner] += 1
        busiest += max(rows) / trials
        average += sum(rows) / world_size / trials
    least, mean = load(params, world_size).rows()
    assert 0.8 * busiest <= least <= 1.03 * busiest
    assert mean == pytest.approx(average, rel=0.05)


def test_weights_that_are_equal_give_the_chances_that_a_formula_gives() -> None:
    """The integral against the closed form, by weights that differ by next to nothing."""
    equal = routing._chances((1.0,) * 64, 6, 8)
    nearly = routing._chances((1.0,) * 63 + (1.0 + 1e-12,), 6, 8)
    assert nearly == pytest.approx(equal, abs=1e-4)


@pytest.mark.parametrize(
    ("changes", "world_size", "says"),
    [
        ({"routing": "zipff"}, 1, r"\.routing: no such routing; did you mean 'zipf'\?"),
        ({"routing": "zipf", "num_experts": 2048}, 1, r"\.num_experts: expected at most 1024 with a routing"),
        ({"routing": "single", "num_experts": 8}, 4, r"\.routing: single on 4 ranks leaves 2 experts"),
        ({"routing": "spare", "num_experts": 4}, 2, r"\.routing: spare on 2 ranks leaves 2 experts"),
    ],
)
def test_a_routing_that_cannot_be_is_refused(changes: dict[str, Any], world_size: int, says: str) -> None:
    with pytest.raises(DecodeError, match=says):
        RoutedParams(**SHAPE | changes).check_world_size(world_size)
