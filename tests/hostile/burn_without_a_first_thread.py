"""Processes that burn CPU beside the reference and let each other go on. Their first threads have ended, so that each
looks like one that has ended itself.

expect: harmless|held reference|crashed|timed_out: do not stop while|timed out|beside the submission
devices: cpu
mode: leaderboard
"""

import ctypes
import os
import platform
import signal
import threading

from reference import ref_kernel

EXIT = {"x86_64": 60, "aarch64": 93}[platform.machine()]  # of one thread
burners = []


def burn(parent):
    while os.getppid() == parent:
        for other in burners:
            os.kill(other, signal.SIGCONT)
    os._exit(0)


def custom_kernel(data):
    if not burners:
        for _ in range(3):
            if (child := os.fork()) == 0:
                threading.Thread(target=burn, args=[os.getppid()]).start()
                ctypes.CDLL(None).syscall(EXIT, 0)
            burners.append(child)
    return ref_kernel(data)
