"""Which experts a rank's tokens go to, for problems that route tokens. Staged beside their files as `routed.py`."""

import torch
from torch import Tensor

from harness.problems.routing import RoutedParams, tokens_of, weights


def experts_of_tokens(
    params: RoutedParams, rank: int, world_size: int, seed: int, generator: torch.Generator
) -> Tensor:
    """[T, k] int32: the distinct experts of each of this rank's T tokens, drawn as the case routes them."""
    on = {"generator": generator, "device": generator.device}
    tokens = int(torch.randint(1, params.max_num_tokens, (1,), **on))
    if params.routing:
        tokens = tokens_of(params, tokens, rank, world_size)
        return chosen_by_weight(weights(params, world_size, seed), tokens, params.experts_per_token, generator)
    orders = [torch.randperm(params.num_experts, **on)[: params.experts_per_token] for _ in range(tokens)]
    return torch.stack(orders).to(torch.int32)


def chosen_by_weight(weights: list[float], count: int, chosen: int, generator: torch.Generator) -> Tensor:
    """[count, chosen] int32: in each row distinct numbers of `weights`, chosen one after the other with chances that
    are proportional to them: those whose exponential clocks ring first."""
    rates_E = torch.tensor(weights, device=generator.device)
    clocks = torch.empty(count, len(weights), device=generator.device).exponential_(generator=generator)
    return (clocks / rates_E).topk(chosen, dim=1, largest=False).indices.to(torch.int32)
