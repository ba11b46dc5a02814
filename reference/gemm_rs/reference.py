"""gemm_rs: each rank multiplies its slice of K, the products are summed over ranks, each rank keeps its rows.

Interface, distributions and tolerance are those of GPU MODE's amd-gemm-rs (gpu-mode/reference-kernels,
problems/amd_distributed/gemm-rs). The bias is added on every rank, so the sum holds it W times.

Legend: M rows and N columns of the product, K its depth (k: this rank's K / W), W ranks, m = M / W.
"""

import torch
import torch.distributed as dist
from params import cost as cost
from task import input_t, output_t
from torch import Tensor
from utils import half_zeroed, rank_device, reduce_scatter_single, seeded, uniform_bf16, within_tolerance

from harness.judging.correctness import Expected, accumulation_variance, product, rounding_noise

BOUND = 0.01  # inputs are uniform in +-BOUND
RTOL = ATOL = 1e-2  # published


def generate_input(rank: int, world_size: int, m: int, n: int, k: int, has_bias: bool, seed: int) -> input_t:
    """This rank's (input, weight, bias): input and weight from seed + rank, bias from seed, alike on every rank."""
    if m % world_size or k % world_size:
        raise ValueError(f"m {m} and k {k} must be divisible by the world size {world_size}")
    generator = seeded(seed + rank, rank_device())
    input_Mk = uniform_bf16((m, k // world_size), BOUND, generator)
    weight_Nk = uniform_bf16((n, k // world_size), BOUND, generator)
    bias_N = uniform_bf16((n,), BOUND, seeded(seed, rank_device())) if has_bias else None
    return input_Mk, weight_Nk, bias_N


def harden(data: input_t, seed: int) -> input_t:
    """The inputs of the strict checker: the bias is 0 in half of the columns, the same half on every rank.

    W * bias is several to a hundred times the rest of the output, and rounding to bf16 is relative: beside it the
    noise of, say, fp8 inputs disappears. Where it is 0, the product stands alone.
    """
    input_Mk, weight_Nk, bias_N = data
    return input_Mk, weight_Nk, None if bias_N is None else half_zeroed(bias_N, seed + 1)


def ref_kernel(data: input_t) -> output_t:
    """The reference that is timed: product, bias and reduce-scatter in bf16. Collective."""
    input_Mk, weight_Nk, bias_N = data
    partial_MN = torch.matmul(input_Mk, weight_Nk.T)
    if bias_N is not None:
        partial_MN = partial_MN + bias_N
    output_mN = partial_MN.new_empty(partial_MN.shape[0] // dist.get_world_size(), partial_MN.shape[1])
    reduce_scatter_single(output_mN, partial_MN)
    return output_mN


def exact_kernel(data: input_t) -> Expected:
    """The result in float32, and the noise of rounding as a bf16 kernel may. Collective.

    Allowed are: each rank's product p rounded; the bias added in one of three ways and rounded (on every rank before
    the sum, W times on one rank before it, W times after it); and a sum over ranks in any order with each running sum
    rounded. Per element the way that rounds the largest values counts: where the bias cancels the product, they differ.
    """
    input_Mk, weight_Nk, bias_N = data
    world_size, k = dist.get_world_size(), input_Mk.shape[1]
    p_MN = product(input_Mk, weight_Nk)
    sums_WxmN = torch.stack([p_MN, p_MN.square()]).unflatten(1, (world_size, -1)).transpose(0, 1).contiguous()
    del p_MN
    mine_xmN = torch.empty_like(sums_WxmN[0])
    reduce_scatter_single(mine_xmN, sums_WxmN.flatten(0, 1))
    sum_p_mN, sum_p2_mN = mine_xmN
    accumulation = accumulation_variance(k, sum_p2_mN.mean())
    value_mN, squares_mN = sum_p_mN, 2 * sum_p2_mN + running_squares(sum_p_mN, sum_p2_mN, world_size)
    if bias_N is not None:
        total_bias_N = world_size * bias_N.float()
        value_mN = sum_p_mN + total_bias_N
        squares_mN = sum_p2_mN + biased_squares(sum_p_mN, sum_p2_mN, total_bias_N, world_size)
    return Expected(
        value=value_mN,
        noise=rounding_noise(squares_mN, input_Mk.dtype, accumulation),
        dtype=input_Mk.dtype,
    )


def running_squares(sum_mN: Tensor, squares_mN: Tensor, world_size: int) -> Tensor:
    """The mean, over all orders, of the sum of the squares of the W - 1 running sums of W values, two at least in each.

    A sum of j of the W values, drawn without replacement, has the mean square
    (j / W)^2 S^2 + j (W - j) / (W (W - 1)) Q, where S is the sum of all and Q = (sum of their squares) - S^2 / W.
    Summed over j = 2..W the factors are (W + 1) (2 W + 1) / (6 W) - 1 / W^2 and (W + 1) / 6 - 1 / W.
    """
    w = world_size
    of_sum = (w + 1) * (2 * w + 1) / (6 * w) - 1 / w**2
    of_scatter = (w + 1) / 6 - 1 / w if w > 1 else 0.0
    sum_squared_mN = sum_mN.square()
    return of_sum * sum_squared_mN + of_scatter * (squares_mN - sum_squared_mN / w).clamp_min(0)


def biased_squares(sum_p_mN: Tensor, sum_p2_mN: Tensor, total_bias_N: Tensor, world_size: int) -> Tensor:
    """The sum of the squares of all values that are rounded after the products p, in the way that rounds the largest.

    `total_bias_N` is B = W * bias. In the second way the rank with the bias comes first, and every running sum holds
    B: the sum over j = 1..W of (P_j + B)^2, where a running sum P_j of p is j / W of the whole P in the mean.
    """
    w = world_size
    sum_v_mN = sum_p_mN + total_bias_N
    sum_v2_mN = sum_p2_mN + total_bias_N * (2 * sum_p_mN + total_bias_N) / w
    running_p_mN = running_squares(sum_p_mN, sum_p2_mN, w)
    every_rank_mN = sum_v2_mN + running_squares(sum_v_mN, sum_v2_mN, w)
    one_rank_mN = running_p_mN + sum_p2_mN / w + total_bias_N * (sum_p_mN * (w + 1) + w * total_bias_N)
    afterwards_mN = running_p_mN + sum_v_mN.square()
    return torch.maximum(every_rank_mN, one_rank_mN).maximum(afterwards_mN)


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """The published tolerance. Collective: every rank must call it, whatever its output is."""
    return within_tolerance(output, ref_kernel(data), RTOL, ATOL)
