"""Returns at once and does its work, ten times, when its output is handed over, after the clock stopped.

On a GPU trusted ranks take what the call itself returned, which is wrong.

expect: held (clock|communication|roofline)|wrong:
mode: benchmark
"""

import gc

import torch

from harness.ranks.roles import Untrusted
from reference import ref_kernel

calls = 0
asked = []


def custom_kernel(data):
    global calls
    calls += 1
    asked[:] = [data]
    if calls == 6:  # after checks and probes
        program = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted))
        hand_over = program.exchange.hand_over
        program.exchange.hand_over = lambda result: hand_over([ref_kernel(asked[0]) for _ in range(10)][-1])
    return ref_kernel(data) if calls <= 6 else torch.empty(0)
