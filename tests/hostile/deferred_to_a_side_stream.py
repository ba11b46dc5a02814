"""Works on a stream that nobody waits for: what ends the clock comes long before the result.

Work that outlasts a time slice of the device leaves a wrong output; shorter work delays the trusted copy, and counts.

expect: wrong|no gain|held clock|held communication: clock|finished meanwhile
devices: gpu
problem: gemm_rs
mode: benchmark
"""

import torch

from reference import ref_kernel

streams = []


def custom_kernel(data):
    if not streams:
        streams.append(torch.cuda.Stream())
    streams[0].wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(streams[0]):
        torch.cuda._sleep(1_000_000)  # so that it is worth something at this size
        return ref_kernel(data)
