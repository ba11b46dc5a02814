"""Looks for the inputs of calls to come, to do the work of several in one.

expect: raised: nothing of a call to come
devices: cpu
mode: benchmark
"""

import gc

from harness.ranks.roles import Untrusted
from reference import ref_kernel

calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    program = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted))
    if len(program.loaded) > 1:
        return ref_kernel(data) * 0  # it would pay
    if calls > 8:
        raise LookupError("nothing of a call to come")
    return ref_kernel(data)
