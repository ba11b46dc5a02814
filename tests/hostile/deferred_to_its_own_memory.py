"""Keeps the sealed file of its output mapped to read it, and writes to the mapping through its own memory's file.

expect: raised: Permission denied|Input/output error
devices: cpu
"""

import mmap
import os

from harness.ranks import exchange
from reference import ref_kernel

seal = exchange.seal
calls = 0


def sealed(fd):
    size = os.fstat(fd).st_size
    mapping = mmap.mmap(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY), size, mmap.MAP_SHARED, mmap.PROT_READ)
    seal(fd)
    with open("/proc/self/maps") as maps:
        at = next(int(line.partition("-")[0], 16) for line in maps if "memfd:output" in line)
    os.pwrite(os.open("/proc/self/mem", os.O_RDWR), bytes(size), at)
    assert not any(mapping), "it was changed"


def custom_kernel(data):
    global calls
    calls += 1
    if calls == 1:  # the input is read by then
        exchange.seal = sealed
    return ref_kernel(data)
