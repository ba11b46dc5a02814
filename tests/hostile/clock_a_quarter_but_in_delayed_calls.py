"""Has every timed call claim a quarter of the time that it took, and tells the truth where a rank is delayed: it knows
such a call by a mark of its own in the barrier's page, since the harness stands in for the late rank's own mark.

expect: no gain|held (clock|communication): us more than around|finished meanwhile
mode: benchmark
devices: cpu
"""

import gc

from harness.ranks.barrier import Barrier
from harness.ranks.roles import Untrusted
from reference import ref_kernel

OWN_MARK = 5  # of the words that each rank has, one that nobody uses
calls = 0
all_came = True


def custom_kernel(data):
    global calls
    calls += 1
    if calls == 6:  # after checks and probes
        lie(next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted)))
    return ref_kernel(data)


def lie(program):
    barrier, stopwatch = program.barrier, program.stopwatch
    honest = stopwatch.clocks["wall"]

    def opening(rank, epoch):
        global all_came
        barrier.words[barrier.marks[rank] + OWN_MARK] = epoch
        Barrier.open(barrier, rank, epoch)
        all_came = all(barrier.words[place + OWN_MARK] >= epoch for place in barrier.marks)

    def wall(kernel, data, epoch, keep):
        start_ns, end_ns, device_us, output = honest(kernel, data, epoch, keep)
        if not all_came:
            return start_ns, end_ns, device_us, output
        return start_ns, start_ns + (end_ns - start_ns) // 4, device_us, output

    barrier.open, stopwatch.clocks["wall"] = opening, wall
