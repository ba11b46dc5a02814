"""Says that its device is done before its work begins, twenty calls of the reference: what takes a microsecond would
not be seen.

expect: no gain|held clock|held communication|wrong: host's clock|a timed call|was kept out of a call
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
    honest(lambda: None, epoch)
    return call()


device.stepped = stepped


def custom_kernel(data):
    return [ref_kernel(data) for _ in range(20)][-1]
