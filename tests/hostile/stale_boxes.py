"""Returns what lies in the files that it has open: no answer, and no input of another call.

expect: wrong:
devices: cpu
"""

import os

import torch


def custom_kernel(data):
    x_TH = data[1].x
    for fd in map(int, os.listdir("/proc/self/fd")):
        if os.path.exists(f"/proc/self/fd/{fd}") and "memfd:" in os.readlink(f"/proc/self/fd/{fd}"):
            found = os.pread(fd, x_TH.nbytes, 0)
            if len(found) == x_TH.nbytes:
                return torch.frombuffer(bytearray(found), dtype=x_TH.dtype).view(x_TH.shape).clone()
    return torch.zeros_like(x_TH)
