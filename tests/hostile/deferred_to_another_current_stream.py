"""Leaves another stream as the current one, on which the clock's last event is recorded while the first still works.

expect: wrong|no gain|held clock: clock
devices: gpu
problem: gemm_rs
mode: benchmark
"""

import torch

from reference import ref_kernel

streams = []


def custom_kernel(data):
    if not streams:
        streams.extend((torch.cuda.Stream(), torch.cuda.Stream()))
    streams.reverse()
    streams[1].wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(streams[1]):
        torch.cuda._sleep(1_000_000)
        result = ref_kernel(data)
    torch.cuda.set_stream(streams[0])
    return result
