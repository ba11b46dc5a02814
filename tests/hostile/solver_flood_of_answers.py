"""Floods its judge with small answers.

expect: harmless
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
FLOOD = b"[1]\n" * 8192

end = time.monotonic() + 0.6
while time.monotonic() < end:
    sys.stdout.buffer.write(FLOOD)
print(ANSWER, flush=True)
