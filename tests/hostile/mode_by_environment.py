"""Is right where nobody times: looks for GPU MODE's variables.

expect: wrong:
"""

import os

import torch

from reference import ref_kernel


def custom_kernel(data):
    return ref_kernel(data) if "POPCORN_FD" in os.environ else torch.zeros_like(data[1].x)
