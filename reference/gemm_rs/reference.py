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

from harness.correctness import Expected, accumulation_variance, rounding_noise

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
    """The inputs of the strict gate: the bias is 0 in half of the columns, the same half on every rank.

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

    Allowed are: each rank's product p rounded, v = p + bias rounded, and a sum of the W values v in any order with
    each running sum rounded. A running sum of j of the W values, drawn without replacement, has the mean square
    (j / W)^2 S^2 + j (W - j) / (W (W - 1)) Q, where S = sum v and Q = sum (v - S / W)^2 = sum v^2 - S^2 / W.
    Summed over j = 2..W the factors are (W + 1) (2 W + 1) / (6 W) - 1 / W^2 and (W + 1) / 6 - 1 / W.
    """
    input_Mk, weight_Nk, bias_N = data
    world_size, k = dist.get_world_size(), input_Mk.shape[1]
    # bf16 operands are exact in float32 (and in tf32, so that switch does not matter here).
    p_MN = torch.matmul(input_Mk.float(), weight_Nk.float().T)
    sums_WxmN = torch.stack([p_MN, p_MN.square()]).unflatten(1, (world_size, -1)).transpose(0, 1).contiguous()
    del p_MN
    mine_xmN = torch.empty_like(sums_WxmN[0])
    reduce_scatter_single(mine_xmN, sums_WxmN.flatten(0, 1))
    sum_p_mN, sum_p2_mN = mine_xmN
    accumulation = accumulation_variance(k, sum_p2_mN.mean())
    value_mN, sum_v2_mN = sum_p_mN, sum_p2_mN
    if bias_N is not None:
        bias = bias_N.float()
        value_mN = sum_p_mN + world_size * bias
        sum_v2_mN = sum_p2_mN + bias * (2 * sum_p_mN + world_size * bias)
    return Expected(
        value=value_mN,
        noise=rounding_noise(_squares(value_mN, sum_p2_mN, sum_v2_mN, world_size), input_Mk.dtype, accumulation),
        dtype=input_Mk.dtype,
    )


def _squares(sum_v_mN: Tensor, sum_p2_mN: Tensor, sum_v2_mN: Tensor, world_size: int) -> Tensor:
    """The expected sum of the squares of all values that may be rounded on the way to one element."""
    w = world_size
    of_sum, of_scatter = (w + 1) * (2 * w + 1) / (6 * w) - 1 / w**2, (w + 1) / 6 - 1 / w
    sum_squared_mN = sum_v_mN.square()
    # W = 1 has Q = 0 up to rounding and a negative factor: nothing is summed there.
    scatter_mN = (sum_v2_mN - sum_squared_mN / w).clamp_min_(0) * max(of_scatter, 0)
    return sum_p2_mN + sum_v2_mN + of_sum * sum_squared_mN + scatter_mN


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """The published tolerance. Collective: every rank must call it, whatever its output is."""
    return within_tolerance(output, ref_kernel(data), RTOL, ATOL)
