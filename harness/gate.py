"""The host gate: all ranks wait at it and leave together, so that a timed call starts everywhere at once.

One shared page holds the epoch that was released last; epochs only grow, so nothing is ever reset. Where every
rank has a core to itself the ranks spin on the page (they leave within a microsecond of each other); on fewer
cores spinning would take time from whoever still works, so they sleep in a futex that one system call wakes.
"""

import ctypes
import mmap
import os
import platform
import time

FUTEX_WAIT, FUTEX_WAKE = 0, 1  # linux/futex.h
SYS_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine())  # asm/unistd.h
POLL_S = 50e-6  # where the futex call's number is not known

_libc = ctypes.CDLL(None, use_errno=True)


def cores() -> int:
    """How many cores this process may run on."""
    return len(os.sched_getaffinity(0))


def make_gate() -> int:
    """A new gate as a file descriptor, to be handed to every rank of a group."""
    fd = os.memfd_create("gate")
    os.ftruncate(fd, mmap.PAGESIZE)
    return fd


class Gate:
    """One side of a gate. The parent calls `release`, ranks call `wait`. `spin`: every rank has its own core."""

    def __init__(self, fd: int, spin: bool) -> None:
        self.page = mmap.mmap(fd, mmap.PAGESIZE)
        self.epochs = memoryview(self.page).cast("q")
        self.spin = spin
        # futex works on 32 bits: the low half of the epoch (both machines in SYS_FUTEX are little-endian)
        self.word = ctypes.c_int32.from_buffer(self.page)

    def release(self, epoch: int) -> None:
        """Let all ranks that wait for `epoch` go."""
        self.epochs[0] = epoch
        if not self.spin and SYS_FUTEX is not None:
            _libc.syscall(SYS_FUTEX, ctypes.byref(self.word), FUTEX_WAKE, 2**31 - 1, None, None, 0)

    def wait(self, epoch: int) -> None:
        """Returns once `epoch` was released. Has no deadline: the parent's kills the process."""
        epochs = self.epochs
        if self.spin:
            while epochs[0] < epoch:
                pass
            return
        while (released := epochs[0]) < epoch:
            if SYS_FUTEX is None:
                time.sleep(POLL_S)
            else:
                _libc.syscall(SYS_FUTEX, ctypes.byref(self.word), FUTEX_WAIT, ctypes.c_int32(released), None, None, 0)
