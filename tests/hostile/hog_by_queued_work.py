"""Leaves seconds of work in its device's queue, which goes on when its processes are stopped.

expect: crashed|timed_out|no gain|held clock: while not on turn|its time went to|from input to output|its device works
devices: gpu
problem: gemm_rs
mode: benchmark
"""

import torch

from reference import ref_kernel

calls = 0
side = torch.cuda.Stream()
ballast = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)


def custom_kernel(data):
    global calls
    calls += 1
    result = ref_kernel(data)
    if calls % 20 == 19:
        with torch.cuda.stream(side):
            for _ in range(2000):  # about 3 s
                torch.matmul(ballast, ballast)
    return result
