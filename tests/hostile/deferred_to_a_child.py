"""Has a child process fill the output, which lies in memory they share, after the call.

expect: wrong:
devices: cpu
"""

import os
import time

import torch

from reference import ref_kernel


def custom_kernel(data):
    right = ref_kernel(data)
    output = torch.zeros_like(right).share_memory_()
    if os.fork() == 0:
        time.sleep(0.02)
        output.copy_(right)
        os._exit(0)
    return output
