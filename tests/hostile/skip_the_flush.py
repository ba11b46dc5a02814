"""Does not flush its rank's caches before its calls, as the harness's code in its process would. What it gains is in
docs/trust.md (python bench/trust.py attacks).

expect: no gain|held clock: us more than around
mode: benchmark
devices: gpu
"""

import gc

from harness.ranks.roles import Untrusted
from reference import ref_kernel

program = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted))
program.device.flush_caches = lambda: None


def custom_kernel(data):
    return ref_kernel(data)
