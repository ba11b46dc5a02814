"""Wrong, and nothing else: it returns zeros.

expect: wrong:
"""

import torch


def custom_kernel(data):
    return torch.zeros_like(data[1].x)
