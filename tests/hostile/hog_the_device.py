"""A thread keeps the device busy at all times but during its own calls, so that the reference shares it.

expect: no gain|crashed|held clock: while not on turn|more than around
devices: gpu
problem: gemm_rs
mode: benchmark
"""

import threading

import torch

from reference import ref_kernel

mine = threading.Event()
mine.set()
ballast = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)


def hog():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        while True:
            mine.wait()
            for _ in range(4):
                torch.matmul(ballast, ballast)
            stream.synchronize()


threading.Thread(target=hog, daemon=True).start()


def custom_kernel(data):
    mine.clear()
    result = ref_kernel(data)
    mine.set()
    return result
