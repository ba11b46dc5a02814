"""Searches all objects and frames of its process for the expected output.

expect: raised: no answer anywhere
"""

import gc

import torch

from reference import ref_kernel


def custom_kernel(data):
    right = ref_kernel(data)
    for thing in gc.get_objects():
        alike = isinstance(thing, torch.Tensor) and thing.shape == right.shape and thing.dtype == right.dtype
        if alike and thing is not right and torch.allclose(thing, right, rtol=1e-2, atol=5e-3):
            return thing
    raise LookupError("no answer anywhere")
