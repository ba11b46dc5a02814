"""Keeps the file of its output mapped, to write to it when it has been handed over.

expect: raised: OSError: .*busy
devices: cpu
"""

import mmap
import os

from harness.ranks import exchange
from reference import ref_kernel

mappings = []


def custom_kernel(data):
    new_file = exchange.new_file

    def mapped(name):
        fd = new_file(name)
        os.truncate(fd, 4096)
        mappings.append(mmap.mmap(fd, 4096))
        return fd

    exchange.new_file = mapped
    return ref_kernel(data)
