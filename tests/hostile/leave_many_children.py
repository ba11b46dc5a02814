"""Forks children that fork children, 120 in all (a bomb with a limit, since tests run it).

expect: harmless
"""

import os
import time

from reference import ref_kernel

done = []


def custom_kernel(data):
    if not done:
        done.append(True)
        for _ in range(15):
            if os.fork() == 0:
                os.setsid()
                for _ in range(3):
                    if os.fork() == 0:
                        break
                time.sleep(999)
    return ref_kernel(data)
