"""Copies a trusted rank's memory by the system call that debuggers use.

expect: raised: PermissionError.*process_vm_readv|IndexError
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
    here = (ctypes.c_size_t * 2)(id(data), 8)
    if libc.process_vm_readv(TRUSTED[0], here, 1, here, 1, 0) != 8:
        raise OSError(ctypes.get_errno(), "process_vm_readv")
    return ref_kernel(data)
