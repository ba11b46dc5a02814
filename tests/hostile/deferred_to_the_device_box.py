"""Hands over zeros, and a thread writes the right bytes into the memory they were handed over in.

expect: wrong:
devices: gpu
"""

import gc
import threading
import time

import torch

from harness.ranks.roles import Untrusted
from reference import ref_kernel


def custom_kernel(data):
    right = ref_kernel(data)
    program = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted))
    data_bytes = right.reshape(-1).view(torch.uint8)

    def later():
        time.sleep(0.05)
        program.exchange.output_buffer.memory.bytes[: data_bytes.numel()].copy_(data_bytes)

    threading.Thread(target=later).start()
    return torch.zeros_like(right)
