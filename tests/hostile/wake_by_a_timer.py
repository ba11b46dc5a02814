"""A child that burns CPU while the reference runs: a timer of its own sends it SIGCONT whenever it is stopped.

expect: crashed|timed_out: ran while not on turn: the candidate used .* of CPU time|timed out
devices: cpu
mode: leaderboard
"""

import ctypes
import os
import signal
import struct

from reference import ref_kernel

AFTER_NS = 2_000_000
libc = ctypes.CDLL(None)
started = []


def burn():
    event = struct.pack("Qii48x", 0, signal.SIGCONT, 0)  # struct sigevent: SIGEV_SIGNAL
    timer = ctypes.c_void_p()
    libc.timer_create(1, event, ctypes.byref(timer))
    signal.signal(signal.SIGCONT, lambda *_: None)
    parent = os.getppid()
    while os.getppid() == parent:  # a stop may take back a signal that is on its way, so the timer is set anew
        libc.timer_settime(timer, 0, struct.pack("4q", 0, 0, 0, AFTER_NS), None)
        sum(range(1000))
    os._exit(0)


def custom_kernel(data):
    if not started:
        if (child := os.fork()) == 0:
            burn()
        started.append(child)
    return ref_kernel(data)
