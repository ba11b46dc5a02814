"""Has every timed call claim four fifths of the time that it took. A fifth is more than the noise of a long run and
less than that of a short one: `bench/trust.py attacks` shows what it gains, tests/ranks/test_timing.py that the rules
count it.

expect: ranked|held (clock|communication): us more than around|finished meanwhile
mode: benchmark
devices: cpu
"""

import gc
import statistics

from harness.ranks.roles import Untrusted
from reference import ref_kernel

DELAYED = 2.5  # a call that takes so many times as long as others may be one that is probed
calls = 0
stopwatch = None
taken_ns = []


def wall(kernel, data, epoch, keep):
    start_ns, end_ns, device_us, output = stopwatch.wall(kernel, data, epoch, keep)
    taken_ns.append(end_ns - start_ns)
    if len(taken_ns) < 4 or taken_ns[-1] > DELAYED * statistics.median(taken_ns):
        return start_ns, end_ns, device_us, output
    return start_ns, end_ns - (end_ns - start_ns) // 5, device_us, output


def custom_kernel(data):
    global calls, stopwatch
    calls += 1
    if calls == 6:  # after checks and probes
        stopwatch = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted)).stopwatch
        stopwatch.clocks["wall"] = wall
    return ref_kernel(data)
