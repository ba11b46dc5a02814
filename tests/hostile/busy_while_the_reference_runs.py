"""Leaves the device work that nobody needs at the end of each of its bursts, so that it is busy when it is the
reference's turn.

expect: no gain|held clock|wrong: between|what rounding explains|its device works
devices: gpu
problem: gemm_rs
mode: benchmark
"""

import gc

import torch

from harness.ranks.roles import Untrusted
from reference import ref_kernel

calls = 0
side = []


def custom_kernel(data):
    global calls
    result = ref_kernel(data)
    if not side:
        program = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted))
        side[:] = [program, torch.cuda.Stream(), torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)]
    program, stream, ballast = side
    calls += 1
    if calls % max(1, len(program.loaded)) == 0:
        with torch.cuda.stream(stream):
            for _ in range(20):  # about 30 ms
                torch.matmul(ballast, ballast)
    return result
