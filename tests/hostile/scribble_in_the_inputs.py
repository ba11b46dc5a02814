"""Writes noise into the file of its next input, so that the reference is slower or fails: by the descriptor that it
has, by one that it opens, by a mapping, and by taking pages away.

expect: raised: nothing was changed
devices: cpu
"""

import ctypes
import gc
import mmap
import os

from harness.ranks.roles import Untrusted
from reference import ref_kernel


def scribble(fd):
    libc = ctypes.CDLL(None, use_errno=True)
    changed = []

    def reopened():
        os.pwrite(os.open(f"/proc/self/fd/{fd}", os.O_RDWR), b"noise", 0)

    def punched():  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
        if libc.fallocate(fd, 3, ctypes.c_long(0), ctypes.c_long(4096)) != 0:
            raise OSError(ctypes.get_errno(), "fallocate")

    def unprotected():
        page = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)
        address = ctypes.c_char.from_buffer(page)  # read only, which raises TypeError
        libc.mprotect(ctypes.addressof(address), len(page), 3)

    for attempt in (
        lambda: os.pwrite(fd, b"noise", 0),
        lambda: mmap.mmap(fd, 0),
        reopened,
        punched,
        unprotected,
    ):
        try:
            attempt()
            changed.append(attempt)
        except (OSError, TypeError):
            pass
    if not changed:
        raise PermissionError("nothing was changed")


def custom_kernel(data):
    program = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted))

    def take_in(command):
        program.channel.receive_files()
        scribble(program.channel.files[0])

    program.take_in = take_in
    return ref_kernel(data)
