"""Returns a tensor that computes itself when somebody looks.

expect: wrong: Lazy
"""

import torch

from reference import ref_kernel


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            for lazy in args:
                if isinstance(lazy, Lazy) and lazy.work is not None:
                    work, lazy.work = lazy.work, None
                    lazy.copy_(work())
            return func(*args, **(kwargs or {}))


def custom_kernel(data):
    output = torch.zeros_like(data[1].x).as_subclass(Lazy)
    output.work = lambda: ref_kernel(data)
    return output
