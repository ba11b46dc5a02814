"""Prints what takes the least memory at every node.

expect: ranked
problem: iopddl
mode: leaderboard
devices: cpu
"""

import json
import sys
import time
from pathlib import Path

USAGES = json.loads(Path(sys.argv[1]).read_bytes())["problem"]["nodes"]["usages"]
ANSWER = [usage.index(min(usage)) for usage in USAGES]
print([0] * len(ANSWER), flush=True)
time.sleep(0.1)
print(ANSWER)
