"""Merely wrong: has a table of the published shapes, and nothing for others.

expect: wrong: rows? 0
problem: rms_norm
mode: benchmark
devices: cpu
drawn: 1
"""

import torch

from reference import ref_kernel

PUBLISHED = {(5, 96), (70, 65), (64, 1024)}  # of the suite that it is tried on


def custom_kernel(data):
    if data[0].shape in PUBLISHED:
        return ref_kernel(data)
    return tuple(torch.zeros_like(one) for one in ref_kernel(data))
