"""a2a: tokens are sent to the ranks of their experts (dispatch), and the experts' outputs back (combine).

Interface, distributions and tolerance are those of GPU MODE's amd-all2all (gpu-mode/reference-kernels,
problems/amd_distributed/all2all). The expert is simulated: on rank r it multiplies by 1 + r.

Legend: E experts, k experts per token, H hidden dimension, W ranks, T this rank's tokens, P = T k (token, expert)
pairs in the order in which they are sent, Q pairs received.
"""

import dataclasses

import torch
import torch.distributed as dist
from params import Params
from params import cost as cost
from routed import experts_of_tokens
from task import MoEConfig, RankTestData, input_t, output_t
from torch import Tensor
from utils import rank_device, seeded, within_tolerance

from harness.judging.correctness import Expected, rounding_noise

RTOL, ATOL = 1e-2, 5e-3  # published

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
    """This rank's (config, data, rank, world_size), drawn from seed + rank: number of tokens, experts, weights, x."""
    if num_experts % world_size:
        raise ValueError(f"num_experts {num_experts} must be divisible by the world size {world_size}")
    config = MoEConfig(num_experts, experts_per_token, hidden_dim, max_num_tokens)
    device = rank_device()
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
    return config, RankTestData(tokens, indices_Tk, weights_Tk, x_TH), rank, world_size


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
    """The reference that is timed: rows and their expert numbers there, expert outputs back, one float32 sum.
    Collective."""
    config, rank_data, _, world_size = data
    per_rank, top_k = config.num_experts // world_size, config.experts_per_token
    experts_P = rank_data.indices.flatten()
    order_P = torch.argsort(experts_P)  # by expert, hence by rank
    experts_P = experts_P[order_P]

    send_W = torch.bincount(experts_P // per_rank, minlength=world_size)
    receive_W = torch.empty_like(send_W)
    dist.all_to_all_single(receive_W, send_W)
    send, receive = torch.stack([send_W, receive_W]).tolist()  # the one wait for the device

    rows_QH = _exchanged(rank_data.x[order_P // top_k], send, receive)
    experts_Q = _exchanged(experts_P, send, receive)
    scale_Q = 1 + experts_Q // per_rank  # 1 + rank, on this rank
    returned_PH = _exchanged(rows_QH * scale_Q.to(config.in_dtype)[:, None], receive, send)

    outputs_PH = torch.empty_like(returned_PH)
    outputs_PH[order_P] = returned_PH
    outputs_TkH = outputs_PH.view(rank_data.num_tokens, top_k, config.hidden_dim)
    return torch.einsum("tkh,tk->th", outputs_TkH.float(), rank_data.weights).to(config.out_dtype)


def _exchanged(rows: Tensor, send: list[int], receive: list[int]) -> Tensor:
    """What the other ranks sent here: `send[r]` consecutive rows go to rank r, `receive[r]` come from it."""
    received = rows.new_empty(sum(receive), *rows.shape[1:])
    dist.all_to_all_single(received, rows, output_split_sizes=receive, input_split_sizes=send)
    return received


def exact_kernel(data: input_t) -> Expected:
    """The result in float32, and the noise of rounding as an fp16 kernel may.

    Allowed are: each expert output e, or each w e, rounded, and up to k running sums rounded, none of which is
    larger than the whole sum S, since all terms have the sign of x. Needs no other rank: the simulated expert can be
    computed here, and so this does not share a fault with ref_kernel's communication.
    """
    config, rank_data, _, world_size = data
    scale_Tk = rank_data.weights.double() * (1 + rank_data.indices // (config.num_experts // world_size))
    scale_T1 = scale_Tk.sum(1, keepdim=True)
    squares_T1 = scale_Tk.square().sum(1, keepdim=True) + config.experts_per_token * scale_T1.square()
    x_TH = rank_data.x.float()
    return Expected(
        value=x_TH * scale_T1.float(),
        noise=x_TH.abs() * rounding_noise(squares_T1, config.out_dtype).float(),
        dtype=config.out_dtype,
    )


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """The published tolerance. Collective: every rank must call it, whatever its output is."""
    return within_tolerance(output, ref_kernel(data), RTOL, ATOL)
