"""Looks on the stack for the clock, to be right only when it is not timed.

expect: wrong:
"""

import sys

from reference import ref_kernel


def custom_kernel(data):
    frame, names = sys._getframe(), set()
    while frame:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return ref_kernel(data) * (0 if "wall" in names else 1)
