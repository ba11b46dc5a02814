"""Cuts off the file of inputs, which the reference reads too.

expect: raised: PermissionError
devices: cpu
"""

import os

from reference import ref_kernel


def shared(name):
    for fd in map(int, os.listdir("/proc/self/fd")):
        if os.path.exists(f"/proc/self/fd/{fd}") and f"memfd:{name}" in os.readlink(f"/proc/self/fd/{fd}"):
            return fd
    raise LookupError(name)


def custom_kernel(data):
    os.truncate(shared("inputs"), 0)
    return ref_kernel(data)
