"""Copies a trusted rank's descriptors by pidfd_getfd.

expect: raised: PermissionError.*pidfd_getfd|IndexError
"""

import ctypes
import os

from reference import ref_kernel


def stat(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return ["", "0"]


def below(pid):
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(stat(name)[1]) == pid]


ZYGOTE = int(stat(os.getppid())[1])
OTHERS = [pid for pid in below(int(stat(ZYGOTE)[1])) if pid != ZYGOTE]
TRUSTED = [rank for zygote in OTHERS for cell in below(zygote) for rank in below(cell)]


def custom_kernel(data):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(438, os.pidfd_open(TRUSTED[0]), 3, 0) < 0:  # pidfd_getfd
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    return ref_kernel(data)
