"""Does its work when it is queued, before its input is written and the parent lets it go.

expect: wrong|no gain: a timed call
devices: gpu
problem: gemm_rs
mode: benchmark
"""

import gc

import torch

from harness.ranks import driver
from harness.ranks.roles import Untrusted
from reference import ref_kernel

program = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted))
device = program.device
honest = device.stepped


def stepped(call, epoch):
    if call.args[2]:  # whose host is to wait for the parent
        return honest(call, epoch)
    result = call()
    stream, steps = torch.cuda.current_stream().cuda_stream, device.barrier.steps
    for step in range(2):
        driver.stream_wait(stream, device.barrier_pointer + steps.let_at(step, device.rank), epoch)
        driver.stream_write(stream, device.barrier_pointer + steps.done_at(step, device.rank), epoch)
    return result


device.stepped = stepped


def custom_kernel(data):
    return ref_kernel(data)
