"""Has nobody in its process wait for the device on the host's clock, so that only its launches are in the time.

expect: no gain|wrong|held clock: what rounding explains|host's clock|passed between
devices: gpu
problem: gemm_rs
mode: benchmark
"""

import gc

import torch

import harness.ranks.driver
from harness.ranks.roles import Untrusted
from reference import ref_kernel

calls = 0
synchronize = harness.ranks.driver.synchronize, torch.cuda.synchronize


def custom_kernel(data):
    global calls
    calls += 1
    if calls == 6:  # after checks and probes
        program = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted))
        wall, device_clock = program.stopwatch.clocks["wall"], program.stopwatch.clocks["device"]

        def hasty(*arguments):
            harness.ranks.driver.synchronize = torch.cuda.synchronize = lambda *_: None
            return wall(*arguments)

        def honest(*arguments):
            harness.ranks.driver.synchronize, torch.cuda.synchronize = synchronize
            return device_clock(*arguments)

        program.stopwatch.clocks.update(wall=hasty, device=honest)
    torch.cuda._sleep(1_000_000)  # so that it is worth something at this size
    return ref_kernel(data)
