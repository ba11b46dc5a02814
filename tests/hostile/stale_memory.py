"""Returns memory as it finds it, in the hope that somebody computed the answer there.

expect: wrong:
"""

import torch

from reference import ref_kernel


def custom_kernel(data):
    size = ref_kernel(data).shape  # it keeps pace, the result it throws away
    return torch.empty(size, dtype=torch.float16)
