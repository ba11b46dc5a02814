"""Timers that go off while its ranks are stopped: the kernel serves them on the reference's cores. Each wakes
1000 epoll instances, which takes the kernel microseconds. Turns come in the order ABBA, so that each call shows by
the time since the one before whether the reference is next; only then are timers armed. It runs the reference, so that
1 is the truth.

expect: no gain|held reference|crashed: not on turn|beside the submission|it passed
devices: cpu
mode: leaderboard
"""

import ctypes
import os
import select
import struct
import time

from reference import ref_kernel

TIMERS, WATCHERS = 40, 1000  # of a rank; epoll instances that each timer wakes, one after the other
AFTER_NS, EVERY_NS = 2_000_000, 60_000  # when the reference begins; a call takes 2 ms on 2 ranks
NEXT_NS = 3_500_000  # between two calls of its own
ABSOLUTE = 1
libc = ctypes.CDLL(None)
timers = []
watchers = []


def prepare():
    for _ in range(TIMERS):
        timer = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK)
        timers.append(timer)
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
    """Follows the turns of two blocks, its own eight among them. Twice its calls follow each other at once, with one
    call between these pairs: that tells where in the order it is. `ends` says whether the reference is next."""

    def __init__(self):
        self.ended_ns, self.place, self.were_next = 0, 0, [False, False]

    def begins(self):
        is_next = time.monotonic_ns() - self.ended_ns < NEXT_NS
        self.place = 0 if is_next and self.were_next[0] else (self.place + 1) % 8
        self.were_next = [self.were_next[1], is_next]

    def ends(self):
        self.ended_ns = time.monotonic_ns()
        return self.place in (0, 1, 3, 4, 6)


order = Order()


def custom_kernel(data):
    if not timers:
        prepare()
    order.begins()
    result = ref_kernel(data)
    if order.ends():
        arm(order.ended_ns + AFTER_NS)
    return result
