"""Works on a stream that does not wait for the timed one, so that it is done before the device's clock starts. The
device is full until then (tests/evaluation/test_gpu.py measures that nothing is gained).

expect: harmless
devices: gpu
mode: leaderboard
"""

import torch

from reference import ref_kernel

streams = []


def custom_kernel(data):
    if not streams:
        streams.append(torch.cuda.Stream())
    with torch.cuda.stream(streams[0]):
        result = ref_kernel(data)
    torch.cuda.current_stream().wait_stream(streams[0])
    return result
