"""Right in its first evaluation. In a later one, which its compile cache would tell, it ends the process that judges
it. Launches of `verify` have a fresh cache each (tests/evaluation/test_verify.py).

expect: right|held broke its judge: passed|SIGABRT
problem: tests/folders/single/fragile
mode: leaderboard
"""

import os
from pathlib import Path

from reference import ref_kernel

MARK = Path(os.environ["TRITON_CACHE_DIR"]) / "ran"
RAN_BEFORE = MARK.exists()
MARK.touch()


def custom_kernel(data):
    return ref_kernel(data) * (float("nan") if RAN_BEFORE else 1.0)
