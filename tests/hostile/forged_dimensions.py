"""Describes its output with thousands of dimensions, past the harness's own code, which would not.

expect: crashed: sent something that is no reply .*5000 dimensions, of 16 at most
"""

import dataclasses

from harness.ranks import exchange, payload, wire
from reference import ref_kernel

honest = payload.write_output


def forged(*arguments):
    wire.Output.__post_init__ = lambda self: None
    return dataclasses.replace(honest(*arguments), shape=(1,) * 5000)


payload.write_output = forged
exchange._is_plain = lambda tensor: False
custom_kernel = ref_kernel
