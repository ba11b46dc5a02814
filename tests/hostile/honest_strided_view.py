"""Honest: returns a view that is not contiguous.

expect: ranked
problem: ag_gemm
mode: leaderboard
"""

import torch

from reference import ref_kernel


def custom_kernel(data):
    output = ref_kernel(data)
    wide = torch.zeros(output.shape[0], 2 * output.shape[1], dtype=output.dtype, device=output.device)
    wide[:, ::2] = output
    return wide[:, ::2]
