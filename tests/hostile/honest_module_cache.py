"""Honest: keeps what depends on the shape alone from call to call.

expect: ranked
mode: leaderboard
"""

import torch

from reference import ref_kernel

buffers = {}


def custom_kernel(data):
    buffer_TH = buffers.setdefault(data[1].x.shape, torch.empty_like(data[1].x))
    return buffer_TH.copy_(ref_kernel(data))
