"""rms_norm with the residual connection before it, forward or backward.

h = x + residual; n = h / sqrt(mean(h^2) + eps); the result is n * weight, and h.

Legend: M rows, H hidden dimension.
"""

import torch
from params import cost as cost
from task import input_t, output_t
from torch import Tensor
from torch.nn.functional import rms_norm
from utils import rank_device, seeded, within_tolerance

from harness.judging.correctness import Expected, accumulation_variance, rounding_noise

RTOL, ATOL = 2e-2, 2e-2
SUMMED_RTOL, SUMMED_ATOL = 2e-2, 0.5  # of the weight's gradient, a sum over rows


def generate_input(
    rank: int, world_size: int, rows: int, hidden: int, backward: bool, eps: float, seed: int
) -> input_t:
    """All normal; weights have a mean of 1."""
    device = rank_device()
    on = {"dtype": torch.bfloat16, "device": device, "generator": seeded(seed, device)}
    first_MH, second_MH = (torch.randn(rows, hidden, **on) for _ in range(2))
    weight_H = 1 + 0.25 * torch.randn(hidden, **on)
    return first_MH, second_MH, weight_H, torch.randn(rows, hidden, **on) if backward else None, eps


def harden(data: input_t, seed: int) -> input_t:
    """No weight is near 0, and every other row of h is so small that eps matters; no gradient is near 0."""
    first_MH, second_MH, weight_H, grad_MH, eps = data
    small_M1 = torch.ones(len(first_MH), 1, dtype=first_MH.dtype, device=first_MH.device)
    small_M1[::2] = eps**0.5
    weight_H = torch.where(weight_H < 0, weight_H - 0.5, weight_H + 0.5)
    if grad_MH is None:
        return first_MH * small_M1, second_MH * small_M1, weight_H, None, eps
    grad_MH = torch.where(grad_MH < 0, grad_MH - 0.5, grad_MH + 0.5)
    # Of a small row the norm's gradient is divided by about sqrt(eps): what is passed on must not vanish beside it.
    return first_MH * small_M1, second_MH / small_M1, weight_H, grad_MH, eps


def ref_kernel(data: input_t) -> output_t:
    """The forward pass as models write it; the backward pass as an autograd function would, in float32."""
    first_MH, second_MH, weight_H, grad_MH, eps = data
    if grad_MH is None:
        total_MH = first_MH + second_MH
        return rms_norm(total_MH, weight_H.shape, weight_H, eps), total_MH
    scale_M1 = torch.rsqrt(first_MH.float().square().mean(1, keepdim=True) + eps)
    normed_MH = first_MH.float() * scale_M1
    given_MH = grad_MH.float() * weight_H.float()
    through_MH = scale_M1 * (given_MH - normed_MH * (given_MH * normed_MH).mean(1, keepdim=True))
    grad_weight_H = (grad_MH.float() * normed_MH).sum(0)
    return (through_MH + second_MH.float()).to(first_MH.dtype), grad_weight_H.to(weight_H.dtype)


def exact_kernel(data: input_t) -> tuple[Expected, Expected]:
    return forward(data) if data[3] is None else backward(data)


def forward(data: input_t) -> tuple[Expected, Expected]:
    """A kernel may round to bf16: h, before it is normalised or after; the norm, before it is multiplied by the weight;
    and the results. Three values as large as the first result, one as large as the second."""
    x_MH, residual_MH, weight_H, _, eps = data
    total_MH = x_MH.float() + residual_MH.float()
    scale_M1 = torch.rsqrt(total_MH.square().mean(1, keepdim=True) + eps)
    value_MH = total_MH * scale_M1 * weight_H.float()
    return (
        expected("the norm", value_MH, 3 * value_MH.square()),
        expected("the sum", total_MH, total_MH.square()),
    )


def backward(data: input_t) -> tuple[Expected, Expected]:
    """A kernel may round to bf16, for the gradient of x: grad * weight; n times the mean that is subtracted; the norm's
    gradient, before what came next is added; and the result. The mean's terms may be products of rounded factors, each
    an error of its own, which is what is left where both gradients are nearly 0. For the weight's gradient: n, its
    product with grad, both in every row; and the result. Sums are in float32."""
    total_MH, passed_MH, weight_H, grad_MH, eps = data
    assert grad_MH is not None
    scale_M1 = torch.rsqrt(total_MH.float().square().mean(1, keepdim=True) + eps)
    normed_MH = total_MH.float() * scale_M1
    product_MH = grad_MH.float() * normed_MH
    summed_H, squares_H = product_MH.double().sum(0).float(), product_MH.square().sum(0)
    given_MH = grad_MH.float() * weight_H.float()
    terms_MH = product_MH.mul_(weight_H.float())
    mean_M1 = terms_MH.mean(1, keepdim=True)
    squares_M1 = 2 * (torch.linalg.vector_norm(terms_MH, dim=1, keepdim=True) / len(weight_H)).square()
    through_MH = torch.addcmul(given_MH, normed_MH, mean_M1, value=-1).mul_(scale_M1)
    value_MH = through_MH + passed_MH.float()
    given_MH.square_().addcmul_(normed_MH.square_(), squares_M1.add_(mean_M1.square()))
    squares_MH = given_MH.mul_(scale_M1.square()).add_(through_MH.square_())
    accumulation = accumulation_variance(len(total_MH), squares_H.mean())
    return (
        expected("the gradient of x", value_MH, squares_MH.add_(value_MH.square())),
        expected("the gradient of the weight", summed_H, 2 * squares_H + summed_H.square(), accumulation),
    )


def expected(name: str, value: Tensor, squares: Tensor, accumulation: float | Tensor = 0.0) -> Expected:
    noise = rounding_noise(squares, torch.bfloat16, accumulation)
    return Expected(value=value, noise=noise, dtype=torch.bfloat16, name=name)


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    tolerances = ((RTOL, ATOL), (RTOL, ATOL) if data[3] is None else (SUMMED_RTOL, SUMMED_ATOL))
    pairs = zip(output, ref_kernel(data), tolerances, strict=True)
    found = [within_tolerance(own, right, *tolerance) for own, right, tolerance in pairs]
    return next((one for one in found if not one[0]), (True, ""))
