"""Keeps 2 GiB in files of memory that no process has mapped, and hides from those who look.

expect: wrong: used more than 0.5 GiB of memory
problem: iopddl
mode: test
devices: cpu
"""

import ctypes
import json
import os
import sys
import time
from pathlib import Path

USAGES = json.loads(Path(sys.argv[1]).read_bytes())["problem"]["nodes"]["usages"]
ANSWER = [usage.index(min(usage)) for usage in USAGES]
PR_SET_DUMPABLE = 4

ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
files = [os.memfd_create("kept"), os.open("/dev/shm/kept", os.O_CREAT | os.O_RDWR)]
for _ in range(128):
    for file in files:
        os.write(file, bytes(8 << 20))
time.sleep(0.4)
print(ANSWER)
