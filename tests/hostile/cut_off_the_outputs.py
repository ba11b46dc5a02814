"""Cuts off the file that a judge reads its output from.

expect: raised: PermissionError
devices: cpu
"""

import gc
import os

from harness.ranks.roles import Candidate
from reference import ref_kernel


def custom_kernel(data):
    program = next(thing for thing in gc.get_objects() if isinstance(thing, Candidate))
    hand_over = type(program).hand_over

    def cut_off(result):
        output = hand_over(program, result)
        os.truncate(program.to_send[-1], 0)
        return output

    program.hand_over = cut_off
    return ref_kernel(data)
