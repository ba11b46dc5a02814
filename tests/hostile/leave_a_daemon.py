"""Leaves a process behind that has cut all ties.

expect: harmless
"""

import os
import time

from reference import ref_kernel


def custom_kernel(data):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(999)
        os._exit(0)
    return ref_kernel(data)
