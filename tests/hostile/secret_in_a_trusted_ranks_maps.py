"""Looks where in a trusted rank's memory things lie.

expect: raised: PermissionError.*maps'|IndexError
"""

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
    os.open(f"/proc/{TRUSTED[0]}/maps", os.O_RDONLY)
    return ref_kernel(data)
