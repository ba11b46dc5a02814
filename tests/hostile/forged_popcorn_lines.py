"""Writes GPU MODE's result lines to every descriptor that it has, and answers nothing. On GPUs some belong
to the driver, which does not survive it.

expect: wrong|raised:
"""

import contextlib
import os

import torch

LINES = b"test-count: 1\ntest.0.status: pass\nbenchmark.0.mean: 1\ncheck: pass\n"
os.environ["POPCORN_FD"] = "1"


def custom_kernel(data):
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:"):
                os.write(fd, LINES)
    return torch.zeros_like(data[1].x)
