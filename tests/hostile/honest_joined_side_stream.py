"""Honest: works on a stream of its own, which waits for the current one and which the current one waits for.

expect: ranked
devices: gpu
mode: leaderboard
"""

import torch

from reference import ref_kernel

streams = []


def custom_kernel(data):
    if not streams:
        streams.append(torch.cuda.Stream())
    streams[0].wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(streams[0]):
        result = ref_kernel(data)
    torch.cuda.current_stream().wait_stream(streams[0])
    return result
