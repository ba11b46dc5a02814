"""Returns zeros in the calls between the checks and the timed ones, which warm up.

expect: wrong: a call before the timed ones
mode: benchmark
"""

import torch.distributed as dist

from reference import ref_kernel

CHECKED = 2
calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    result = ref_kernel(data)
    probed = dist.get_world_size()  # each rank is late once in the first case
    return result * 0 if calls == CHECKED + probed + 1 else result
