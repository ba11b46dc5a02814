"""Does its work when it is queued, before its input is written and the parent lets it go.

expect: wrong|no gain|held clock: a timed call|host's clock
devices: gpu
problem: gemm_rs
mode: benchmark
"""

import gc

import torch

from harness.ranks.roles import Untrusted
from reference import ref_kernel

program = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted))
device = program.device
honest = device.stepped


def stepped(call, epoch):
    if call.args[2]:  # whose host is to wait for the parent
        return honest(call, epoch)
    result = call()
    stream = torch.cuda.current_stream().cuda_stream
    for step in range(2):
        device._wait(stream, step, epoch)
        device._tell(stream, step, epoch)
    return result


device.stepped = stepped


def custom_kernel(data):
    return ref_kernel(data)
