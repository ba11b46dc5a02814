"""Leaves the parent and the judges no CPU time, no memory, no descriptors and files without room.

expect: raised: nobody was limited
"""

import os
import resource

from reference import ref_kernel

SEEN = {int(name) for name in os.listdir("/proc") if name.isdigit()}
OTHERS = set(range(2, 1 << 16)) - SEEN if os.getppid() == 1 else SEEN - {os.getpid()}
LIMITS = (resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)


def custom_kernel(data):
    limited = 0
    for pid in OTHERS:
        for what in LIMITS:
            try:
                resource.prlimit(pid, what, (0, 0))
                limited += 1
            except OSError:
                pass
    if limited == 0:
        raise PermissionError("nobody was limited")
    return ref_kernel(data)
