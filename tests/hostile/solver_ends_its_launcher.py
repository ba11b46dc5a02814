"""Answers, and then ends the process that started it and waits for it.

expect: harmless
problem: iopddl
mode: test
devices: cpu
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

USAGES = json.loads(Path(sys.argv[1]).read_bytes())["problem"]["nodes"]["usages"]
print([usage.index(min(usage)) for usage in USAGES], flush=True)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
    os.kill(os.getppid(), number)
    time.sleep(0.1)
