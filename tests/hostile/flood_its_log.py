"""Prints without end between its calls, so that whoever reads the log takes the reference's cores. It is
stopped while the reference runs, and takes cores from the submission before and after its calls.

expect: harmless|held clock:
devices: cpu
mode: leaderboard
"""

import threading
import time

from reference import ref_kernel

in_call = threading.Event()
begun = []


def flood():
    line = "x" * 8192
    while True:
        if in_call.is_set():
            time.sleep(0.001)
        else:
            print(line, flush=True)


def custom_kernel(data):
    in_call.set()
    if not begun:
        begun.append(True)
        threading.Thread(target=flood, daemon=True).start()
    result = ref_kernel(data)
    in_call.clear()
    return result
