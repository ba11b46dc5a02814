"""Writes noise into the file of inputs, so that the reference is slower or fails: by the descriptor that it has, by
one that it opens, by a mapping, and by taking pages away.

expect: raised: nothing was changed
devices: cpu
"""

import ctypes
import mmap
import os

from reference import ref_kernel


def shared(name):
    for fd in map(int, os.listdir("/proc/self/fd")):
        if os.path.exists(f"/proc/self/fd/{fd}") and f"memfd:{name}" in os.readlink(f"/proc/self/fd/{fd}"):
            return fd
    raise LookupError(name)


def custom_kernel(data):
    libc = ctypes.CDLL(None, use_errno=True)
    fd, changed = shared("inputs"), []

    def reopened():
        os.pwrite(os.open(f"/proc/self/fd/{fd}", os.O_RDWR), b"noise", 0)

    def punched():  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
        if libc.fallocate(fd, 3, ctypes.c_long(0), ctypes.c_long(4096)) != 0:
            raise OSError(ctypes.get_errno(), "fallocate")

    def unprotected():
        page = mmap.mmap(fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ)
        address = ctypes.c_char.from_buffer(page)  # read only, which raises TypeError
        libc.mprotect(ctypes.addressof(address), 4096, 3)

    for attempt in (
        lambda: os.pwrite(fd, b"noise", 0),
        lambda: mmap.mmap(fd, 4096),
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
    return ref_kernel(data)
