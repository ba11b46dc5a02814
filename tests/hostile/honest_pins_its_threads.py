"""Honest: gives its threads cores of its own choice by their numbers, raises its own limits and lowers its priority.

expect: ranked
mode: leaderboard
devices: cpu
"""

import os
import resource
import threading

from reference import ref_kernel

os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0))
resource.setrlimit(resource.RLIMIT_STACK, resource.getrlimit(resource.RLIMIT_STACK))


def pin():
    os.sched_setaffinity(threading.get_native_id(), os.sched_getaffinity(0))


thread = threading.Thread(target=pin)
thread.start()
thread.join()
custom_kernel = ref_kernel
