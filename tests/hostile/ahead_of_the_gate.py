"""Looks for its input while it waits at the gate, to begin before the others: in its memory, and in files that it has.

expect: raised: nothing before the gate
devices: cpu
mode: benchmark
"""

import gc
import os

from harness.ranks.roles import Candidate
from reference import ref_kernel

looked = []


def custom_kernel(data):
    program = next(thing for thing in gc.get_objects() if isinstance(thing, Candidate))
    if not looked:
        flush = program.device.flush_caches

        def look():
            flush()
            files = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if int(fd) > 2]
            looked.append(bool(program.channel.files) or any("memfd:input" in name for name in files))

        program.device.flush_caches = look
        looked.append(False)
    if len(looked) > 8 and not any(looked):
        raise LookupError("nothing before the gate")
    return ref_kernel(data)
