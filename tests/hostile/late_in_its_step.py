"""Says that its device is done before its work begins, twenty calls of the reference: what takes a few us would not
be seen.

expect: no gain|held clock|held communication|wrong: host's clock|a timed call|was kept out of a call
devices: gpu
problem: gemm_rs
mode: benchmark
"""

import gc

from harness.ranks import driver
from harness.ranks.roles import Untrusted
from reference import ref_kernel

program = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted))
device = program.device
honest = device._step


def hasty(stream, step, work, epoch, is_alone=False):
    if step == 0:
        return honest(stream, step, work, epoch, is_alone)
    steps = device.barrier.steps
    driver.stream_wait(stream, device.barrier_pointer + steps.let_at(step, device.rank), epoch)
    driver.stream_write(stream, device.barrier_pointer + steps.done_at(step, device.rank), epoch)
    return work()


device._step = hasty


def custom_kernel(data):
    return [ref_kernel(data) for _ in range(20)][-1]
