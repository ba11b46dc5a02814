"""gemm: a linear layer without a bias, in bf16 with float32 sums: the products of a Llama's training step.

Legend: M rows and N columns of the product, K its depth.
"""

import torch
from params import cost as cost
from task import input_t, output_t
from torch import Tensor
from utils import rank_device, seeded, within_tolerance

from harness.judging.correctness import Expected, accumulation_variance, product, rounding_noise

RTOL = ATOL = 1e-2
LEAST = 0.25  # of hardened inputs' magnitude, in standard deviations


def generate_input(rank: int, world_size: int, m: int, n: int, k: int, seed: int) -> input_t:
    """(input, weight): normal, the weight scaled by 1 / sqrt(K) so that the product's elements are about 1."""
    generator = seeded(seed, rank_device())
    return _normal(m, k, generator), _normal(n, k, generator) * k**-0.5


def _normal(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    return torch.randn(rows, columns, dtype=torch.bfloat16, device=generator.device, generator=generator)


def harden(data: input_t, seed: int) -> input_t:
    """The inputs of the strict checker: no element is near 0, so that no term of any sum can be left out unseen."""
    input_MK, weight_NK = data
    least = LEAST * input_MK.shape[1] ** -0.5
    return _away_from_zero(input_MK, LEAST), _away_from_zero(weight_NK, least)


def _away_from_zero(values: Tensor, least: float) -> Tensor:
    return torch.where(values < 0, values.clamp_max(-least), values.clamp_min(least))


def ref_kernel(data: input_t) -> output_t:
    """The reference that is timed."""
    input_MK, weight_NK = data
    return torch.nn.functional.linear(input_MK, weight_NK)


def exact_kernel(data: input_t) -> Expected:
    """The product in float32, and the noise of a kernel that adds up in float32 and rounds once."""
    input_MK, weight_NK = data
    value_MN = product(input_MK, weight_NK)
    squares_MN = value_MN.square()
    accumulation = accumulation_variance(input_MK.shape[1], squares_MN.mean())
    return Expected(
        value=value_MN, noise=rounding_noise(squares_MN, input_MK.dtype, accumulation), dtype=input_MK.dtype
    )


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """A plain tolerance, against the timed reference."""
    return within_tolerance(output, ref_kernel(data), RTOL, ATOL)
