"""Notes which inputs a file of another benchmark draws, so that they can be hardened (rank_judging)."""

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from harness.kinds.benchmarks.rank_judging import leaves_of

UNIFORM = (torch.rand, torch.rand_like)
NORMAL = (torch.randn, torch.randn_like)
CONVERSIONS = (Tensor.to, Tensor.half, Tensor.bfloat16, Tensor.float, Tensor.double, Tensor.cuda)


class Draws(TorchFunctionMode):
    """Notes which tensors are torch.rand's or torch.randn's own results, or these in another floating-point dtype of 16
    bits or more: their values are anybody's choice."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[tuple[Tensor, bool]] = []  # and whether they are uniform

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func in UNIFORM + NORMAL:
            self.drawn.append((found, func in UNIFORM))
        elif func in CONVERSIONS and found is not args[0] and found.is_floating_point() and found.itemsize > 1:
            self.drawn += [(found, is_uniform) for drawn, is_uniform in self.drawn if drawn is args[0]]
        return found

    def free(self, inputs: Any) -> list[tuple[Tensor, bool]]:
        """Those of them that are inputs as they were drawn, and whether they are uniform."""
        own = {id(tensor) for tensor in leaves_of(inputs)}
        return [
            (tensor.detach(), is_uniform)
            for tensor, is_uniform in self.drawn
            if id(tensor) in own and not tensor._version
        ]
