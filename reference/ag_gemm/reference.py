"""ag_gemm: the input's rows are gathered from all ranks, each rank multiplies them with its columns.

Interface, distributions and tolerance are those of GPU MODE's amd-ag-gemm (gpu-mode/reference-kernels,
problems/amd_distributed/ag-gemm). The bias is each rank's own, drawn after its weight.

Legend: M rows and N columns of the product, K its depth, W ranks, m = M / W and n = N / W: this rank's.
"""

import torch
import torch.distributed as dist
from params import cost as cost
from task import input_t, output_t
from torch import Tensor
from utils import all_gather_single, half_zeroed, rank_device, seeded, uniform_bf16, within_tolerance

from harness.judging.correctness import Expected, accumulation_variance, product, rounding_noise

BOUND = 0.01  # inputs are uniform in +-BOUND
RTOL = ATOL = 1e-2  # published


def generate_input(rank: int, world_size: int, m: int, n: int, k: int, has_bias: bool, seed: int) -> input_t:
    """This rank's (input, weight, bias), drawn in this order from seed + rank."""
    if m % world_size or n % world_size:
        raise ValueError(f"m {m} and n {n} must be divisible by the world size {world_size}")
    generator = seeded(seed + rank, rank_device())
    input_mK = uniform_bf16((m // world_size, k), BOUND, generator)
    weight_nK = uniform_bf16((n // world_size, k), BOUND, generator)
    bias_n = uniform_bf16((n // world_size,), BOUND, generator) if has_bias else None
    return input_mK, weight_nK, bias_n


def harden(data: input_t, seed: int) -> input_t:
    """The inputs of the strict checker: the bias is 0 in half of the columns, so that it hides nothing there."""
    input_mK, weight_nK, bias_n = data
    return input_mK, weight_nK, None if bias_n is None else half_zeroed(bias_n, seed + 1)


def ref_kernel(data: input_t) -> output_t:
    """The reference that is timed: gather, product, bias in bf16. Collective."""
    input_mK, weight_nK, bias_n = data
    output_Mn = torch.matmul(_gathered(input_mK), weight_nK.T)
    return output_Mn if bias_n is None else output_Mn + bias_n


def exact_kernel(data: input_t) -> Expected:
    """The result in float32, and the noise of rounding the product p once and p + bias once. Collective."""
    input_mK, weight_nK, bias_n = data
    p_Mn = product(_gathered(input_mK), weight_nK)
    value_Mn = p_Mn if bias_n is None else p_Mn + bias_n
    p2_Mn = p_Mn.square()
    accumulation = accumulation_variance(input_mK.shape[1], p2_Mn.mean())
    noise_Mn = rounding_noise(p2_Mn + value_Mn.square(), input_mK.dtype, accumulation)
    return Expected(value=value_Mn, noise=noise_Mn, dtype=input_mK.dtype)


def _gathered(input_mK: Tensor) -> Tensor:
    input_MK = input_mK.new_empty(input_mK.shape[0] * dist.get_world_size(), input_mK.shape[1])
    all_gather_single(input_MK, input_mK)
    return input_MK


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """The published tolerance. Collective: every rank must call it, whatever its output is."""
    return within_tolerance(output, ref_kernel(data), RTOL, ATOL)
