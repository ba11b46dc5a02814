"""A timer wakes a process that starts children, which burn CPU for a while and are gone before anybody looks. On a slow
machine it may not go off in any of the reference's turns.

expect: crashed|timed_out|no gain: ran while not on turn: the candidate|timed out
devices: cpu
mode: leaderboard
"""

import ctypes
import os
import signal
import struct
import time

from reference import ref_kernel

AFTER_NS, BURN_S = 8_000_000, 0.002
libc = ctypes.CDLL(None)
started = []


def child_burns():
    if os.fork() == 0:
        end = time.monotonic() + BURN_S
        while time.monotonic() < end:
            pass
        os._exit(0)


def wake():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody has to wait for them
    signal.signal(signal.SIGCONT, lambda *_: None)
    event = struct.pack("Qii48x", 0, signal.SIGCONT, 0)  # struct sigevent: SIGEV_SIGNAL
    timer = ctypes.c_void_p()
    libc.timer_create(1, event, ctypes.byref(timer))
    parent = os.getppid()
    while os.getppid() == parent:
        libc.timer_settime(timer, 0, struct.pack("4q", 0, 0, 0, AFTER_NS), None)
        os.kill(os.getpid(), signal.SIGSTOP)
        child_burns()
    os._exit(0)


def custom_kernel(data):
    if not started:
        if (child := os.fork()) == 0:
            wake()
        started.append(child)
    return ref_kernel(data)
