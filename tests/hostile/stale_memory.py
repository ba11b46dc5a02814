"""Returns memory as it finds it, in the hope that somebody computed the answer there.

expect: wrong:
"""

import torch

from reference import ref_kernel


def custom_kernel(data):
    right = ref_kernel(data)  # it keeps pace, the result it throws away
    return torch.empty_like(right)
