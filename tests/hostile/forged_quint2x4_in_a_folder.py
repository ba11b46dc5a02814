"""Declares its output to be of a quantised dtype, to a folder's own check.

expect: wrong: no result is of torch.quint2x4
problem: tests/folders/single/scale
"""

import dataclasses
import math

from harness.ranks import exchange, payload
from reference import ref_kernel

honest = payload.write_output


def forged(*arguments):
    said = honest(*arguments)
    return dataclasses.replace(said, dtype="torch.quint2x4", nbytes=math.prod(said.shape))


payload.write_output = forged
exchange._is_plain = lambda tensor: False  # on CPUs too, it is described as above
custom_kernel = ref_kernel
