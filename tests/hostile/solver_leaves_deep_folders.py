"""Leaves folders deeper than Python's calls may nest.

expect: harmless
problem: iopddl
mode: test
devices: cpu
"""

import json
import os
import sys
from pathlib import Path

USAGES = json.loads(Path(sys.argv[1]).read_bytes())["problem"]["nodes"]["usages"]
print([usage.index(min(usage)) for usage in USAGES], flush=True)
for _ in range(2000):
    os.mkdir("a")
    os.chdir("a")
