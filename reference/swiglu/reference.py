"""swiglu: silu(gate) * up of the two halves of each row, or the gradient of both halves.

Legend: M rows, F columns of the result (ffn).
"""

import torch
from params import cost as cost
from task import input_t, output_t
from torch import Tensor
from torch.nn.functional import silu
from utils import rank_device, seeded, within_tolerance

from harness.judging.correctness import Expected, rounding_noise

RTOL, ATOL = 2e-2, 2e-2
ROUNDED = 2  # values as large as the result that a kernel may round on its way, the result among them


def generate_input(rank: int, world_size: int, rows: int, ffn: int, backward: bool, seed: int) -> input_t:
    """Normal x, and for the backward pass a normal gradient."""
    device = rank_device()
    on = {"dtype": torch.bfloat16, "device": device, "generator": seeded(seed, device)}
    x_M2F = torch.randn(rows, 2 * ffn, **on)
    return x_M2F, torch.randn(rows, ffn, **on) if backward else None


def harden(data: input_t, seed: int) -> input_t:
    """No element of x or of the gradient is near 0, so that each matters."""
    x_M2F, grad_MF = data
    return away_from_zero(x_M2F), None if grad_MF is None else away_from_zero(grad_MF)


def away_from_zero(values: Tensor) -> Tensor:
    return values + torch.where(values < 0, -0.5, 0.5).to(values.dtype)


def ref_kernel(data: input_t) -> output_t:
    """The forward pass as models write it; the backward pass as an autograd function would, in float32."""
    x_M2F, grad_MF = data
    if grad_MF is None:
        gate_MF, up_MF = x_M2F.chunk(2, dim=1)
        return silu(gate_MF) * up_MF
    gate_MF, up_MF = x_M2F.float().chunk(2, dim=1)
    grad_MF = grad_MF.float()
    share_MF = torch.sigmoid(gate_MF)
    grad_gate_MF = grad_MF * up_MF * share_MF * (1 + gate_MF * (1 - share_MF))
    grad_up_MF = grad_MF * gate_MF * share_MF
    return torch.cat([grad_gate_MF, grad_up_MF], dim=1).to(x_M2F.dtype)


def exact_kernel(data: input_t) -> Expected:
    """The result in float32, and the noise of two roundings to bf16 as large as the result.

    Allowed are, forward: silu(gate), times up; and the result. Backward, for the gate: grad * up, times silu'(gate), as
    autograd rounds it; and the result. For up: silu(gate), times grad; and the result. Each is as large as the result,
    once multiplied.
    """
    x_M2F, grad_MF = data
    gate_MF, up_MF = x_M2F.float().chunk(2, dim=1)
    share_MF = torch.sigmoid(gate_MF)
    if grad_MF is None:
        value = share_MF.mul_(gate_MF).mul_(up_MF)
    else:
        value = torch.empty(x_M2F.shape, dtype=torch.float32, device=x_M2F.device)
        for_gate_MF, for_up_MF = value.chunk(2, dim=1)
        torch.mul(share_MF, grad_MF, out=for_gate_MF)
        torch.mul(for_gate_MF, gate_MF, out=for_up_MF)
        for_gate_MF.mul_(up_MF).mul_(share_MF.neg_().add_(1).mul_(gate_MF).add_(1))
    noise = rounding_noise(ROUNDED * value.square(), x_M2F.dtype)
    return Expected(value=value, noise=noise, dtype=x_M2F.dtype)


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    return within_tolerance(output, ref_kernel(data), RTOL, ATOL)
