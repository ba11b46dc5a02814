"""Looks for its input while it waits at the gate, to begin before the others: in its memory, and in files that it has.

expect: raised: nothing before the gate
devices: cpu
mode: benchmark
"""

import gc
import os

from harness.ranks.roles import Untrusted
from reference import ref_kernel

looked = []


def custom_kernel(data):
    program = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted))
    if not looked:
        flush = program.device.flush_caches

        def look():
            flush()
            files = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
            inputs = [file for file in files if os.path.exists(file) and "memfd:input" in os.readlink(file)]
            looked.append(bool(program.channel.files or inputs))

        program.device.flush_caches = look
        looked.append(False)
    if len(looked) > 8 and not any(looked):
        raise LookupError("nothing before the gate")
    return ref_kernel(data)
