"""Cuts off the file of its next input, which the reference reads too.

expect: raised: PermissionError
devices: cpu
"""

import gc
import os

from harness.ranks.roles import Untrusted
from reference import ref_kernel


def custom_kernel(data):
    program = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted))

    def cut_off(command):
        program.channel.receive_files()
        os.truncate(program.channel.files[0], 0)

    program.take_in = cut_off
    return ref_kernel(data)
