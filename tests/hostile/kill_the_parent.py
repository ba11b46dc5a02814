"""Kills the process that evaluates.

expect: raised: PermissionError|FileNotFoundError.*/proc/0/
"""

import os
import signal

from reference import ref_kernel


def parent_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


CELL = os.getppid()
ZYGOTE = parent_of(CELL)
PARENT = parent_of(ZYGOTE)
OTHERS = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in (os.getpid(), CELL)]


def custom_kernel(data):
    os.kill(PARENT, signal.SIGKILL)
    return ref_kernel(data)
