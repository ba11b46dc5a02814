"""Six processes that burn CPU all the time, so that the reference is slower; they rest in its own calls.
They are stopped while the reference runs, and take cores from the submission before and after its calls.

expect: harmless|held clock|held reference:
devices: cpu
mode: leaderboard
"""

import mmap
import os
import time

from reference import ref_kernel

in_call = mmap.mmap(-1, 4096)  # shared with the children
in_call[0] = 1
burners = []


def custom_kernel(data):
    if not burners:
        for _ in range(6):
            if (child := os.fork()) == 0:
                while True:
                    time.sleep(0.001) if in_call[0] else sum(range(10000))
            burners.append(child)
    in_call[0] = 1
    result = ref_kernel(data)
    in_call[0] = 0
    return result
