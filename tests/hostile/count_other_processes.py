"""Looks which processes there are, to wait for the moment when nobody else works.

expect: raised: 3 processes
devices: cpu
"""

import os

from reference import ref_kernel


def custom_kernel(data):
    seen = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    if 1 in seen and os.getppid() == 1:  # two ranks and the process that they come from
        raise PermissionError(f"{len(seen)} processes")
    return ref_kernel(data)
