"""Does the work of all calls of a burst in the first, which warms up and is not counted; the others return at once.
The inputs of the others are noise until it is their turn.

expect: wrong|held communication: a timed call|a call in a burst|kept out of a call
devices: gpu
problem: gemm_rs
mode: benchmark
"""

import gc

from harness.ranks.roles import Untrusted
from reference import ref_kernel

burst, results = [], []


def custom_kernel(data):
    program = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted))
    if len(program.loaded) == 1:
        return ref_kernel(data)
    if program.loaded is not (burst and burst[0]):
        burst[:] = [program.loaded]
        results[:] = [ref_kernel(each) for each in program.loaded]
    return results.pop(0) if results else ref_kernel(data)
