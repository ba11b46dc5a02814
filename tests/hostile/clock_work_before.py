"""Does its work, ten times, while it says that it still gets ready for the call.

expect: held clock:
devices: cpu
mode: benchmark
"""

import gc

from harness.ranks.roles import Candidate
from reference import ref_kernel

calls = 0
results = []


def custom_kernel(data):
    global calls
    calls += 1
    if calls == 6:
        program = next(thing for thing in gc.get_objects() if isinstance(thing, Candidate))
        flush = program.device.flush_caches

        def ahead():
            flush()
            if program.loaded[0][1].x.shape[1] == data[1].x.shape[1]:  # in the first shape, then it behaves
                results.append([ref_kernel(program.loaded[0]) for _ in range(10)][-1])

        program.device.flush_caches = ahead
    return results.pop() if results else ref_kernel(data)
