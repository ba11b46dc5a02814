"""Starts more processes than are permitted.

expect: wrong: ran more than 512 processes and threads
problem: iopddl
mode: test
devices: cpu
"""

import json
import os
import sys
import time
from pathlib import Path

USAGES = json.loads(Path(sys.argv[1]).read_bytes())["problem"]["nodes"]["usages"]
ANSWER = [usage.index(min(usage)) for usage in USAGES]
for _ in range(600):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
time.sleep(0.6)
print(ANSWER)
