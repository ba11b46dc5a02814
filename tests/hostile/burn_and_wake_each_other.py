"""Processes that burn CPU beside the reference, each of which lets the others go on again and again.

expect: harmless|held reference
devices: cpu
mode: leaderboard
"""

import os
import signal

from reference import ref_kernel

burners = []


def custom_kernel(data):
    if not burners:
        for _ in range(3):
            if (child := os.fork()) == 0:
                while True:
                    for other in burners:
                        os.kill(other, signal.SIGCONT)
                    if os.getppid() == 1:
                        os._exit(0)
            burners.append(child)
    return ref_kernel(data)
