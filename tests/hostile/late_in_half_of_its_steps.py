"""Says in every second call that its device is done half-way through its work, and in the others the truth.

expect: no gain|held clock|wrong: host's clock|a timed call
devices: gpu
problem: gemm_rs
mode: benchmark
"""

import gc

from harness.ranks.roles import Untrusted
from reference import ref_kernel

program = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted))
device = program.device
honest = device.stepped


def stepped(call, epoch):
    result = honest(call, epoch)
    return result if epoch // 2 % 2 else call()


device.stepped = stepped


def custom_kernel(data):
    return ref_kernel(data)
