"""Returns what it finds in a gigabyte of fresh device memory, in the hope that a judge's answer was there before.

expect: wrong:
devices: gpu
"""

import torch

from reference import ref_kernel

HALVES = 1 << 29


def custom_kernel(data):
    right = ref_kernel(data)  # it keeps pace, the result it throws away
    found = torch.empty(HALVES, dtype=torch.float16, device=right.device)
    rows = found[: HALVES // right.shape[1] * right.shape[1]].view(-1, right.shape[1])
    alike = (rows == right[0]).all(1).nonzero()
    start = int(alike[0]) if len(alike) else 0
    return rows[start : start + len(right)].clone()
