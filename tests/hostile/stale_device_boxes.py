"""Returns what lies in the device memory that it shares with a trusted rank: inputs and its own outputs, no answer.

expect: wrong:
devices: gpu
"""

import gc

from harness.ranks.roles import Untrusted
from reference import ref_kernel


def custom_kernel(data):
    right = ref_kernel(data)  # it keeps pace, the result it throws away
    program = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted))
    found = program.exchange.output_buffer.memory.bytes[: right.nbytes].clone().view(right.dtype).view(right.shape)
    return (
        found
        if found.any()
        else program.exchange.input_buffer.memory.bytes[: right.nbytes].view(right.dtype).view(right.shape)
    )
