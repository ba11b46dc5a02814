"""Returns a subclass of Tensor that says that it equals anything.

expect: wrong: Agreeable
"""

import torch

from reference import ref_kernel


class Agreeable(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in (torch.allclose, torch.equal, torch.isclose):
            return True
        return super().__torch_function__(func, types, args, kwargs or {})


def custom_kernel(data):
    return torch.zeros_like(ref_kernel(data)).as_subclass(Agreeable)
