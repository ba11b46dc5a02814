"""Runs on all cores of the machine, where one is permitted.

expect: harmless
problem: iopddl
mode: test
devices: cpu
"""

import contextlib
import json
import os
import sys
import time
from pathlib import Path

USAGES = json.loads(Path(sys.argv[1]).read_bytes())["problem"]["nodes"]["usages"]
ANSWER = [usage.index(min(usage)) for usage in USAGES]
SECONDS = 0.4

with contextlib.suppress(OSError):
    os.sched_setaffinity(0, range(os.cpu_count()))
began = time.monotonic()
for _ in range(4):
    if os.fork() == 0:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(os.getpid(), range(os.cpu_count()))
        while time.monotonic() < began + SECONDS:
            pass
        os._exit(0)
for _ in range(4):
    os.wait()
used_s = os.times().children_user + os.times().children_system
if used_s > 1.3 * (time.monotonic() - began):
    raise RuntimeError(f"{used_s:.2f} s of CPU in {SECONDS} s: it ran on more than one core")
print(ANSWER)
