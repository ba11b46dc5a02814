"""Returns an empty tensor that a thread fills after the call.

expect: wrong:
"""

import threading
import time

import torch

from reference import ref_kernel


def custom_kernel(data):
    right = ref_kernel(data)
    output = torch.zeros_like(right)

    def later():
        time.sleep(0.02)
        output.copy_(right)

    threading.Thread(target=later).start()
    return output
