"""Returns one zero seen as a whole matrix: no memory, no work, and allclose broadcasts.

expect: wrong:
problem: gemm_rs
"""

import torch


def custom_kernel(data):
    return torch.zeros((), dtype=data[0].dtype, device=data[0].device)
