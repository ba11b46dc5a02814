"""Honest: waits for its device on the host in the middle of a call, times itself, and uses pinned memory.

expect: ranked
devices: gpu
mode: leaderboard
"""

import torch

from reference import ref_kernel

pinned = {}


def custom_kernel(data):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    result = ref_kernel(data)
    end.record()
    end.synchronize()
    assert begin.elapsed_time(end) > 0
    host = pinned.setdefault(result.shape, torch.empty(result.shape, dtype=result.dtype, pin_memory=True))
    host.copy_(result, non_blocking=True)
    torch.cuda.current_stream().synchronize()
    return host.to(result.device)
