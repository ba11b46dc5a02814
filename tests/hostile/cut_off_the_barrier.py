"""Cuts off the barrier's page, which the parent has mapped.

expect: raised: PermissionError
"""

import os

from reference import ref_kernel


def shared(name):
    for fd in map(int, os.listdir("/proc/self/fd")):
        if os.path.exists(f"/proc/self/fd/{fd}") and f"memfd:{name}" in os.readlink(f"/proc/self/fd/{fd}"):
            return fd
    raise LookupError(name)


def custom_kernel(data):
    os.truncate(shared("barrier"), 0)
    return ref_kernel(data)
