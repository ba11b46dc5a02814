"""Does its work when its device is to be switched to it, before the clock starts, so that nothing is left for its call.

expect: no gain|held clock: host's clock
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
    stream = torch.cuda.current_stream().cuda_stream
    device._wait(stream, 0, epoch)
    result = call()
    device._tell(stream, 0, epoch)
    device._wait(stream, 1, epoch)
    device._tell(stream, 1, epoch)
    return result


device.stepped = stepped


def custom_kernel(data):
    return ref_kernel(data)
