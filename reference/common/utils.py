"""What the references share. Staged beside a problem's files as `utils.py`.

Knows torch and nothing of any problem.
"""

import torch
import torch.distributed as dist
from torch import Tensor

# torch 2.13 renames these two and warns about the old names; torch 2.11 and 2.12 have only the old ones.
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

SHOWN = 3  # of the worst elements in a message


def rank_device() -> torch.device:
    """The device of this rank: the default device while the harness has inputs made or outputs judged."""
    return torch.get_default_device()


def seeded(seed: int, device: torch.device) -> torch.Generator:
    """A generator on `device`. The same seed gives other numbers on another kind of device."""
    return torch.Generator(device=device).manual_seed(seed)


def uniform_bf16(shape: tuple[int, ...], bound: float, generator: torch.Generator) -> Tensor:
    """bf16 numbers in [-bound, bound], with bf16 steps in between: drawn in bf16, as the published inputs are."""
    unit = torch.rand(shape, dtype=torch.bfloat16, device=generator.device, generator=generator)
    return (unit * 2 - 1) * bound


def half_zeroed(values_N: Tensor, seed: int) -> Tensor:
    """A copy of `values_N` with a random half of its elements zero; which, depends on `seed` alone."""
    (count,) = values_N.shape
    chosen = torch.randperm(count, generator=seeded(seed, values_N.device), device=values_N.device)[: count // 2]
    return values_N.index_fill(0, chosen, 0)


def within_tolerance(output: Tensor, expected: Tensor, rtol: float, atol: float) -> tuple[bool, str]:
    """The published verdict, torch.allclose, without its gaps: shape and dtype must be right.

    Returns (passed, what is wrong). Never raises, whatever tensor `output` is.
    """
    if output.shape != expected.shape:
        return False, f"the shape is {list(output.shape)}; expected {list(expected.shape)}"
    if output.dtype != expected.dtype:
        return False, f"the dtype is {output.dtype}; expected {expected.dtype}"
    if output.device != expected.device:
        return False, f"the result is on {output.device}; expected it on {expected.device}"
    wrong = ~torch.isclose(output, expected, rtol=rtol, atol=atol)  # NaN is close to nothing, inf only to inf
    count = int(wrong.sum())
    if not count:
        return True, ""
    error = (output.float() - expected.float()).abs().nan_to_num(nan=torch.inf).masked_fill(~wrong, -1.0).flatten()
    worst = error.topk(min(SHOWN, count)).indices.tolist()
    named = (_element(output, expected, index) for index in worst)
    return False, f"{count} of {output.numel()} elements are off (rtol {rtol}, atol {atol}): {'; '.join(named)}"


def _element(output: Tensor, expected: Tensor, index: int) -> str:
    place: list[int] = []
    rest = index
    for size in reversed(output.shape):  # torch.unravel_index would import sympy, which takes 0.3 s
        rest, at = divmod(rest, size)
        place.insert(0, at)
    return f"{output.flatten()[index].item():.6g} instead of {expected.flatten()[index].item():.6g} at {place}"
