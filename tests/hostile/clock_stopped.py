"""Finds the rank's program among its objects and has each call end when it began, a microsecond later. On a busy
machine it may last until the next case's probe, which hears that a call ended before the rank it waits for came.

expect: held (clock|communication):
mode: benchmark
"""

import gc

from harness.ranks.roles import Untrusted
from reference import ref_kernel


def wall(kernel, data, epoch, keep):
    program = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted))
    start_ns, _, device_us, output = program.stopwatch.wall(kernel, data, epoch, keep)
    return start_ns, start_ns + 1000, device_us, output


calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    if calls == 6:  # after checks and probes
        program = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted))
        program.stopwatch.clocks["wall"] = wall
    return ref_kernel(data)
