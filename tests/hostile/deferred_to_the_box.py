"""Hands over zeros, and a thread writes the right bytes into the shared file while others judge.

expect: wrong:
devices: cpu
"""

import os
import threading
import time

import torch

from reference import ref_kernel


def output_fd():
    return next(fd for fd in range(3, 64) if "memfd:outputs" in os.readlink(f"/proc/self/fd/{fd}"))


FD = next(fd for fd in map(int, os.listdir("/proc/self/fd")) if "outputs" in os.path.realpath(f"/proc/self/fd/{fd}"))


def custom_kernel(data):
    right = ref_kernel(data)

    def later():
        time.sleep(0.05)
        os.pwrite(FD, right.numpy().tobytes(), 0)

    threading.Thread(target=later).start()
    return torch.zeros_like(right)
