"""Kills the process that its own group comes from, and with it all of its group.

expect: harmless|crashed: SIGKILL
"""

import os
import signal

from reference import ref_kernel

CELL = os.getppid()


def custom_kernel(data):
    os.kill(CELL, signal.SIGKILL)
    return ref_kernel(data)
