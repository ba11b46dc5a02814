"""Cuts off the file that a judge reads its output from.

expect: raised: PermissionError
devices: cpu
"""

import gc
import os

from harness.ranks.roles import Untrusted
from reference import ref_kernel


def custom_kernel(data):
    program = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted))

    def cut_off():
        del program.exchange.send_files
        for fd in program.exchange.to_send:
            os.truncate(fd, 0)

    program.exchange.send_files = cut_off
    return ref_kernel(data)
