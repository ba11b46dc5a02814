"""Returns what lies in the files that it shares with a trusted rank: inputs and its own outputs, no answer.

expect: wrong:
devices: cpu
"""

import os

import torch


def shared(name):
    for fd in map(int, os.listdir("/proc/self/fd")):
        if os.path.exists(f"/proc/self/fd/{fd}") and f"memfd:{name}" in os.readlink(f"/proc/self/fd/{fd}"):
            return fd
    raise LookupError(name)


def custom_kernel(data):
    x_TH = data[1].x
    for name in ("outputs", "inputs"):
        found = os.pread(shared(name), x_TH.nbytes, 0)
        if len(found) == x_TH.nbytes:
            return torch.frombuffer(bytearray(found), dtype=x_TH.dtype).view(x_TH.shape).clone()
    return torch.zeros_like(x_TH)
