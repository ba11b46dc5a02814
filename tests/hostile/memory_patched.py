"""Says that it has had 5 MiB at most. On CPU cores the parent asks the kernel instead:
tests/evaluation/test_opponents.py.

expect: harmless
devices: cpu
"""

import gc

from harness.ranks.program import Program
from reference import ref_kernel

for program in [one for one in gc.get_objects() if isinstance(one, Program)]:
    program.device.peak_bytes = lambda: 5 << 20


def custom_kernel(data):
    return ref_kernel(data)
