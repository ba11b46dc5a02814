"""Does its work when its device has been switched to it, while the parent has yet to hear of that and to start its
clock. Of ranks that need each other, one that is made late tells; alone it gains the microsecond that the parent needs.

expect: no gain|held clock|wrong: host's clock|a timed call
devices: gpu
gpus: 2
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
    device.ended.fill_(epoch % 2)  # a stream sets its words before the device has switched, a kernel runs behind that
    device._tell(stream, 0, epoch)
    result = call()
    device._wait(stream, 1, epoch)
    device._tell(stream, 1, epoch)
    return result


device.stepped = stepped


def custom_kernel(data):
    return ref_kernel(data)
