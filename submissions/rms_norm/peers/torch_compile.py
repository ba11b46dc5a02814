# library: torch.compile
"""rms_norm as one function for each direction, written out in float32 and compiled."""

import torch
from task import input_t, output_t
from torch import Tensor


def custom_kernel(data: input_t) -> output_t:
    first_MH, second_MH, weight_H, grad_MH, eps = data
    if grad_MH is None:
        return forward(first_MH, second_MH, weight_H, eps)
    return backward(first_MH, second_MH, weight_H, grad_MH, eps)


@torch.compile(dynamic=False)
def forward(x_MH: Tensor, residual_MH: Tensor, weight_H: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    total_MH = x_MH + residual_MH
    wide_MH = total_MH.float()
    scale_M1 = torch.rsqrt(wide_MH.square().mean(1, keepdim=True) + eps)
    return (wide_MH * scale_M1 * weight_H.float()).to(x_MH.dtype), total_MH


@torch.compile(dynamic=False)
def backward(
    total_MH: Tensor, grad_total_MH: Tensor, weight_H: Tensor, grad_MH: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    wide_MH, grad_MH = total_MH.float(), grad_MH.float()
    scale_M1 = torch.rsqrt(wide_MH.square().mean(1, keepdim=True) + eps)
    normed_MH = wide_MH * scale_M1
    given_MH = grad_MH * weight_H.float()
    through_MH = scale_M1 * (given_MH - normed_MH * (given_MH * normed_MH).mean(1, keepdim=True))
    grad_weight_H = (grad_MH * normed_MH).sum(0)
    return (through_MH + grad_total_MH.float()).to(total_MH.dtype), grad_weight_H.to(weight_H.dtype)
