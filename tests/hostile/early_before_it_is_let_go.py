"""Does its work when its device has been switched to it, while the parent has yet to hear of that and to start its
clock. Of ranks that need each other, one that is made late tells; alone it gains the 2 us that the parent needs.

expect: no gain|held clock|wrong: host's clock|a timed call
devices: gpu
gpus: 2
problem: gemm_rs
mode: benchmark
"""

import gc

from harness.ranks.roles import Untrusted
from reference import ref_kernel

program = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted))
device = program.device
honest, honest_step = device.stepped, device._step


def stepped(call, epoch):
    if call.args[2]:  # whose host is to wait for the parent
        return honest(call, epoch)
    results = []

    def hasty(stream, step, work, epoch, is_alone=False):
        if step == 0:
            honest_step(stream, step, work, epoch)
            results.append(call())
            return None
        return honest_step(stream, step, results.pop, epoch, is_alone)

    device._step = hasty
    result = honest(call, epoch)
    device._step = honest_step
    return result


device.stepped = stepped


def custom_kernel(data):
    return ref_kernel(data)
