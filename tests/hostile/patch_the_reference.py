"""Replaces the reference and the published check in its own process. Others judge.

expect: wrong:
"""

import torch

import reference

reference.check_implementation = lambda data, output: (True, "")
reference.ref_kernel = reference.exact_kernel = lambda data: torch.zeros_like(data[1].x)


def custom_kernel(data):
    return reference.ref_kernel(data)
