"""Attaches to a trusted rank as a debugger does.

expect: raised: PermissionError.*ptrace|IndexError
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
    if libc.ptrace(16, TRUSTED[0], None, None) != 0:  # PTRACE_ATTACH
        raise OSError(ctypes.get_errno(), "ptrace")
    return ref_kernel(data)
