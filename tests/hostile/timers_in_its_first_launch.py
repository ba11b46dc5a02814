"""Timers that go off while its ranks are stopped, as timers_dense.py has them, but fewer and heavier: one wakes 4000
epoll instances, which takes the kernel a millisecond or more. A mark in its compile cache tells its first launch from
those in which the reference is looked at again; in these it is honest. It runs the reference, so that 1 is the truth.

expect: no gain|held reference|crashed: not on turn|beside the submission|it passed
devices: cpu
mode: leaderboard
"""

import ctypes
import os
import select
import statistics
import struct
import time
from collections import deque
from pathlib import Path

from reference import ref_kernel

TIMERS, WATCHERS = 4, 4000  # of a rank; epoll instances that each timer wakes, one after the other
AFTER_NS, EVERY_NS = 1_200_000, 1_600_000  # when the reference begins; between two timers
AT_ONCE = 0.5  # of the usual time between two calls of its own: less passes where no other call lies between them
LAUNCHED_S = 90  # between two launches of an evaluation, at most
ABSOLUTE = 1
libc = ctypes.CDLL(None)
mark = Path(os.environ["XDG_CACHE_HOME"], f"ran-{Path.cwd().name}")
is_first = not mark.exists() or time.time() - mark.stat().st_mtime > LAUNCHED_S
mark.parent.mkdir(parents=True, exist_ok=True)
mark.touch()
timers = []
watchers = []


def prepare():
    for _ in range(TIMERS):
        timers.append(libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK))
    for _ in range(WATCHERS):
        watcher = select.epoll()
        for timer in timers:
            watcher.register(timer, select.EPOLLIN)
        watchers.append(watcher)


def arm(first_ns):
    for number, timer in enumerate(timers):
        at_ns = first_ns + number * EVERY_NS
        libc.timerfd_settime(timer, ABSOLUTE, struct.pack("4q", 0, 0, *divmod(at_ns, 10**9)), None)


class Order:
    """Follows the turns as in timers_dense.py. `ends` says whether the reference is next."""

    def __init__(self):
        self.ended_ns, self.place, self.were_next = 0, 0, [False, False]
        self.between_ns = deque([0], maxlen=32)

    def begins(self):
        self.between_ns.append(time.monotonic_ns() - self.ended_ns)
        is_next = self.between_ns[-1] < AT_ONCE * statistics.median(self.between_ns)
        self.place = 0 if is_next and self.were_next[0] else (self.place + 1) % 8
        self.were_next = [self.were_next[1], is_next]

    def ends(self):
        self.ended_ns = time.monotonic_ns()
        return self.place in (0, 1, 3, 4, 6)


order = Order()


def custom_kernel(data):
    if is_first and not timers:
        prepare()
    order.begins()
    result = ref_kernel(data)
    if order.ends() and is_first:
        arm(order.ended_ns + AFTER_NS)
    return result
