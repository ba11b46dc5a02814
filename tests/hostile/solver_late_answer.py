"""Answers when its limit is over, within the grace.

expect: wrong: printed answers after its limit of 1 s, which do not count
problem: iopddl
mode: test
devices: cpu
"""

import json
import sys
import time
from pathlib import Path

USAGES = json.loads(Path(sys.argv[1]).read_bytes())["problem"]["nodes"]["usages"]
ANSWER = [usage.index(min(usage)) for usage in USAGES]
time.sleep(1.2)
print(ANSWER)
