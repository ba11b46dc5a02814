"""Keeps so many files on their way between its own sockets, while others are on turn, that those can send none: where
two files meet, the other one would seem to fail.

expect: held broke its judge: with the reference as the submission the same step passes
devices: apart
mode: benchmark
"""

import contextlib
import gc
import os
import socket
import time

from harness.ranks.roles import Untrusted
from reference import ref_kernel

program = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted))
honest = program.exchange.hand_over
ends = os.pipe()
kept = []
calls = 0


def fill():
    with contextlib.suppress(OSError):
        while True:
            pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            kept.extend(pair)
            pair[0].setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    socket.send_fds(pair[0], [b"x"], [ends[0]] * 250)


def hand_over(result):
    output = honest(result)
    if calls > 4 and program.order.rank == 0:
        time.sleep(0.02)  # until the other ranks have sent theirs
        fill()
    return output


program.exchange.hand_over = hand_over


def custom_kernel(data):
    global calls
    calls += 1
    while kept:
        kept.pop().close()
    return ref_kernel(data)
