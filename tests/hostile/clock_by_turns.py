"""Has every second call claim less than it took, by as much as its rank waited for the others, and the rest as much
more: they say that they began earlier. Tells the truth where a rank is delayed: it knows such a call by a mark of its
own in the barrier's page, since the harness stands in for the late rank's own mark.

expect: no gain|held (clock|communication): us more than around|finished meanwhile
mode: benchmark
devices: cpu
"""

import gc
import time

from harness.ranks.barrier import Barrier
from harness.ranks.roles import Untrusted
from reference import ref_kernel

OWN_MARK = 5  # of the words that each rank has, one that nobody uses
calls = 0
all_came = True
came_ns = 0  # when the rank had its input


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
        global all_came, came_ns
        came_ns = time.monotonic_ns()
        barrier.words[barrier.marks[rank] + OWN_MARK] = epoch
        Barrier.open(barrier, rank, epoch)
        all_came = all(barrier.words[place + OWN_MARK] >= epoch for place in barrier.marks)

    def wall(kernel, data, epoch, keep):
        start_ns, end_ns, device_us, output = honest(kernel, data, epoch, keep)
        if not all_came:
            return start_ns, end_ns, device_us, output
        hidden_ns = min((end_ns - start_ns) * 9 // 10, start_ns - came_ns)
        if epoch % 2:
            return start_ns, end_ns - hidden_ns, device_us, output
        return start_ns - hidden_ns, end_ns, device_us, output

    barrier.open, stopwatch.clocks["wall"] = opening, wall
