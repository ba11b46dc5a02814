"""moe: a2a with experts that are real: tokens go to the ranks of their experts, and the experts' outputs come back.

A problem of this project, with the interface of a2a. An expert is y = down @ (up @ x), two matrices that only its own
rank has and that are new in every call. So no rank can work out what another rank's expert makes of a token: without
communication there is no right result, as there is in a2a, whose simulated expert is a factor that all ranks know.

Legend: E experts, k experts per token, H hidden dimension, I intermediate dimension, W ranks, T this rank's tokens,
P = T k (token, expert) pairs in the order in which they are sent, Q pairs received; L this rank's experts, E / W.
In exact_kernel N tokens of all ranks, q pairs of one expert.
"""

import dataclasses

import torch
import torch.distributed as dist
from params import Params
from params import cost as cost
from routed import experts_of_tokens
from task import MoEConfig, RankTestData, input_t, output_t
from torch import Tensor
from utils import all_gather_single, rank_device, seeded, within_tolerance

from harness.judging.correctness import Expected, accumulation_variance, rounding_noise

RTOL, ATOL = 1e-2, 5e-3  # a2a's; the results of both have a spread of about 1

__all__ = [
    "MoEConfig",
    "RankTestData",
    "check_implementation",
    "cost",
    "exact_kernel",
    "generate_input",
    "harden",
    "ref_kernel",
]


def generate_input(
    num_experts: int,
    experts_per_token: int,
    hidden_dim: int,
    max_num_tokens: int,
    seed: int,
    rank: int,
    world_size: int,
    routing: str = "",
) -> input_t:
    """This rank's (config, data, rank, world_size), drawn from seed + rank: number of tokens, experts, weights, x, as
    a2a's are, then up and down. These are normal and scaled so that up @ x and y have a spread of 1, as x has."""
    if num_experts % world_size:
        raise ValueError(f"num_experts {num_experts} must be divisible by the world size {world_size}")
    config = MoEConfig(num_experts, experts_per_token, hidden_dim, max_num_tokens)
    device, per_rank, intermediate = rank_device(), num_experts // world_size, config.intermediate_dim
    generator = seeded(seed + rank, device)
    on = {"generator": generator, "device": device}
    params = Params(
        num_experts=num_experts,
        experts_per_token=experts_per_token,
        hidden_dim=hidden_dim,
        max_num_tokens=max_num_tokens,
        routing=routing,
    )
    indices_Tk = experts_of_tokens(params, rank, world_size, seed, generator)
    tokens = len(indices_Tk)
    weights_Tk = torch.rand(tokens, experts_per_token, dtype=torch.float32, **on)
    x_TH = torch.randn(tokens, hidden_dim, dtype=config.in_dtype, **on)
    up_LIH = torch.randn(per_rank, intermediate, hidden_dim, dtype=config.in_dtype, **on).mul_(hidden_dim**-0.5)
    down_LHI = torch.randn(per_rank, hidden_dim, intermediate, dtype=config.in_dtype, **on).mul_(intermediate**-0.5)
    return config, RankTestData(tokens, indices_Tk, weights_Tk, x_TH, up_LIH, down_LHI), rank, world_size


def harden(data: input_t, seed: int) -> input_t:
    """The inputs of the strict checker: no weight is near 0 (nor 1), and every rank's experts are needed.

    Weights become 0.25 + 0.5 w. Each rank's token 0 gets an expert on the next rank in place of one of its own
    where it has none there: with one or two tokens a rank, an unused rank would otherwise be likely. That is so
    whatever the routing is; the published inputs follow it to the letter.
    """
    config, rank_data, rank, world_size = data
    per_rank, target = config.num_experts // world_size, (rank + 1) % world_size
    device = rank_data.indices.device
    expert = target * per_rank + torch.randint(per_rank, (1,), generator=seeded(seed + rank, device), device=device)
    indices_Tk = rank_data.indices.clone()
    if rank_data.num_tokens and not bool((indices_Tk[0] // per_rank == target).any()):
        indices_Tk[0, 0] = expert  # distinct: the token had no expert on that rank
    hardened = dataclasses.replace(rank_data, indices=indices_Tk, weights=0.25 + 0.5 * rank_data.weights)
    return config, hardened, rank, world_size


def ref_kernel(data: input_t) -> output_t:
    """The reference that is timed: counts an expert, rows there, two products an expert, outputs back, one float32 sum.
    Collective."""
    config, rank_data, _, world_size = data
    per_rank, top_k = config.num_experts // world_size, config.experts_per_token
    experts_P = rank_data.indices.flatten()
    order_P = torch.argsort(experts_P)  # by expert, hence by rank

    send_WL = torch.bincount(experts_P, minlength=config.num_experts).view(world_size, per_rank)
    receive_WL = torch.empty_like(send_WL)
    dist.all_to_all_single(receive_WL, send_WL)
    counts = torch.cat([send_WL.sum(1), receive_WL.sum(1), receive_WL.sum(0)]).tolist()  # the one wait for the device
    send, receive, loads = counts[:world_size], counts[world_size : 2 * world_size], counts[2 * world_size :]

    rows_QH = _exchanged(rank_data.x[order_P // top_k], send, receive)  # by source rank, then by expert
    expert_Q = torch.arange(per_rank, device=rows_QH.device).repeat(world_size)
    expert_Q = expert_Q.repeat_interleave(receive_WL.flatten(), output_size=len(rows_QH))
    by_expert_Q = torch.argsort(expert_Q)
    parts = zip(rows_QH[by_expert_Q].split(loads), rank_data.up, rank_data.down, strict=True)
    made_QH = torch.cat([_product(_product(rows_qH, up_IH), down_HI) for rows_qH, up_IH, down_HI in parts])
    outputs_QH = torch.empty_like(made_QH)
    outputs_QH[by_expert_Q] = made_QH
    returned_PH = _exchanged(outputs_QH, receive, send)

    outputs_PH = torch.empty_like(returned_PH)
    outputs_PH[order_P] = returned_PH
    outputs_TkH = outputs_PH.view(rank_data.num_tokens, top_k, config.hidden_dim)
    return torch.einsum("tkh,tk->th", outputs_TkH.float(), rank_data.weights).to(config.out_dtype)


def _product(rows: Tensor, weight: Tensor) -> Tensor:
    """rows @ weight.T, summed up in float32 and rounded once. CPUs take 4 to 35 times as long for it in fp16 (torch
    2.13, an EPYC without fp16 arithmetic, 2026-11), so there it is done in float32."""
    if rows.is_cuda:
        return rows @ weight.T
    return (rows.float() @ weight.float().T).to(rows.dtype)


def _exchanged(rows: Tensor, send: list[int], receive: list[int]) -> Tensor:
    """What the other ranks sent here: `send[r]` consecutive rows go to rank r, `receive[r]` come from it."""
    received = rows.new_empty(sum(receive), *rows.shape[1:])
    dist.all_to_all_single(received, rows, output_split_sizes=receive, input_split_sizes=send)
    return received


def exact_kernel(data: input_t) -> Expected:
    """The result in float32, and the noise of rounding as an fp16 kernel may. Collective.

    Allowed are, for a token whose k experts give e = down @ a, a = up @ x, with weights w:
    - a and w a rounded, as where a library's product is weighted before the next: errors of mean square down^2 (w a)^2
      an element each, added up over I and over the experts, 2 A;
    - e and w e rounded: 2 Q, where Q is the sum of (w e)^2;
    - the sums of parts of either product's depth, as libraries split it: parts whose squares add up to its own in the
      mean, A + Q more;
    - the k - 1 running sums rounded, the last of which is the result S. The mean over all orders of the square of a sum
      of j of the k terms is (j/k)^2 S^2 + j (k-j) / (k (k-1)) (Q - S^2/k), drawing without replacement.
    With one expert a token the result is w e. The float32 sums over H are accumulation.

    All tokens go to all ranks, and each rank returns for every token what its experts add to S, and to the rest of the
    squares: nothing depends on who sent what where, and so this does not share a fault with ref_kernel's communication.
    """
    config, rank_data, rank, world_size = data
    per_rank, k = config.num_experts // world_size, config.experts_per_token
    counts, x_NH, indices_Nk, weights_Nk = _all_tokens(config, rank_data, world_size)
    factors = [(j / k) ** 2 for j in range(2, k + 1)]
    scatters = [j * (k - j) / (k * (k - 1)) for j in range(2, k + 1)]
    q_factor, s_factor = 3 + sum(scatters), sum(factors) - sum(scatters) / k

    token_Q, slot_Q = (indices_Nk // per_rank == rank).nonzero(as_tuple=True)
    by_expert_Q = torch.argsort(indices_Nk[token_Q, slot_Q])
    token_Q, slot_Q = token_Q[by_expert_Q], slot_Q[by_expert_Q]
    loads = torch.bincount(indices_Nk.flatten(), minlength=config.num_experts).split(per_rank)[rank].tolist()
    made_Q2H = x_NH.new_empty(len(token_Q), 2, config.hidden_dim)  # w e; 3 A + q_factor (w e)^2
    rows = (x_NH[token_Q], weights_Nk[token_Q, slot_Q, None], made_Q2H)
    parts = zip(*(each.split(loads) for each in rows), rank_data.up, rank_data.down, strict=True)
    for x_qH, weights_q1, made_q2H, up_IH, down_HI in parts:
        a_qI = weights_q1 * (x_qH @ up_IH.float().T)
        e_qH = a_qI @ down_HI.float().T
        made_q2H[:, 0] = e_qH
        made_q2H[:, 1] = 3 * (a_qI.square() @ down_HI.float().square().T) + q_factor * e_qH.square()
    made_Nk2H = x_NH.new_zeros(*indices_Nk.shape, 2, config.hidden_dim)
    made_Nk2H[token_Q, slot_Q] = made_Q2H
    sums_N2H = made_Nk2H.sum(1)

    mine_WT2H = sums_N2H.new_empty(world_size * rank_data.num_tokens, 2, config.hidden_dim)
    dist.all_to_all_single(
        mine_WT2H, sums_N2H, output_split_sizes=[rank_data.num_tokens] * world_size, input_split_sizes=counts
    )
    value_TH, squares_TH = mine_WT2H.unflatten(0, (world_size, rank_data.num_tokens)).sum(0).unbind(1)
    squares_TH = squares_TH + s_factor * value_TH.square()
    accumulation = accumulation_variance(config.hidden_dim, value_TH.square().mean())
    noise_TH = rounding_noise(squares_TH.clamp_min(0), config.out_dtype, accumulation)
    return Expected(value=value_TH, noise=noise_TH, dtype=config.out_dtype)


def _all_tokens(
    config: MoEConfig, rank_data: RankTestData, world_size: int
) -> tuple[list[int], Tensor, Tensor, Tensor]:
    """Every rank's number of tokens; x [N, H] in float32, indices and weights [N, k] of all tokens, rank by rank."""
    count = torch.tensor([rank_data.num_tokens], device=rank_data.x.device)
    counts_W = count.new_empty(world_size)
    all_gather_single(counts_W, count)
    counts = counts_W.tolist()
    most = max(1, *counts)

    def gathered(rows: Tensor) -> Tensor:
        padded = rows.new_zeros(most, *rows.shape[1:])
        padded[: len(rows)] = rows
        blocks = rows.new_empty(world_size * most, *rows.shape[1:])
        all_gather_single(blocks, padded)
        return torch.cat([block[:count] for block, count in zip(blocks.split(most), counts, strict=True)])

    return counts, gathered(rank_data.x).float(), gathered(rank_data.indices), gathered(rank_data.weights)


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """a2a's published tolerance. Collective: every rank must call it, whatever its output is."""
    return within_tolerance(output, ref_kernel(data), RTOL, ATOL)
