"""A filter of system calls: refuses those that change, trace or copy another process, and those by which the kernel
would go on working for a stopped one.

For other processes it is a second layer behind the PID namespace, and the only one where there is none. A filter sees a
call's number and its arguments, but not whose process a number names, so "another" means any number but 0, the caller
itself. What is refused fails with EPERM. Children inherit the filter, and nothing takes it off again.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW = 1, 1 << 2  # linux/seccomp.h
RET_ALLOW, RET_ERRNO = 0x7FFF0000, 0x00050000
# linux/bpf_common.h: of 32-bit words
LOAD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16  # struct seccomp_data; the low word of an argument comes first
X32_BIT = 0x40000000  # x86-64's calls by their second numbers
IOPRIO_WHO_PROCESS = 1  # linux/ioprio.h
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Syscall:
    """A system call and its numbers (asm/unistd.h). It is refused unless the arguments at the places of `unless` have
    these values, and those of `without` none of these bits; if neither names a place it is always refused. `fails_with`
    is the error that it ends with."""

    name: str
    x86_64: int
    aarch64: int
    unless: Mapping[int, int] = field(default_factory=dict)
    without: Mapping[int, int] = field(default_factory=dict)
    fails_with: int = errno.EPERM


SELF = {0: 0}
CLONE_NEW = 0x7E020000  # linux/sched.h: of mounts, cgroups, names, IPC, users, PIDs, networks
ALWAYS = (
    Syscall("ptrace", 101, 117),
    Syscall("process_vm_readv", 310, 270),
    Syscall("process_vm_writev", 311, 271),
    Syscall("kcmp", 312, 272),
    Syscall("pidfd_send_signal", 424, 424),
    Syscall("process_madvise", 440, 440),
    Syscall("process_mrelease", 448, 448),
    Syscall("prlimit64", 302, 261, SELF),
    Syscall("sched_setattr", 314, 274, SELF),
    Syscall("setpriority", 141, 140, {0: os.PRIO_PROCESS, 1: 0}),
    Syscall("ioprio_set", 251, 30, {0: IOPRIO_WHO_PROCESS, 1: 0}),
    Syscall("migrate_pages", 256, 238, SELF),
    Syscall("move_pages", 279, 239, SELF),
    # In a network of its own, packets between interfaces go round and round while all processes are stopped; in a user
    # namespace of its own a process has every capability.
    Syscall("unshare", 272, 97),
    Syscall("setns", 308, 268),
    Syscall("clone", 56, 220, without={0: CLONE_NEW}),
    Syscall("clone3", 435, 435, fails_with=errno.ENOSYS),  # has its flags in memory; C libraries take clone instead
    # The kernel's own threads do this work, or events do.
    Syscall("io_uring_setup", 425, 425),
    Syscall("perf_event_open", 298, 241),
    Syscall("bpf", 321, 280),
    Syscall("add_key", 248, 217),
    Syscall("request_key", 249, 218),
    Syscall("keyctl", 250, 219),
)
# glibc names the caller's own threads by their numbers here (pthread_setaffinity_np), so these are refused only where
# no PID namespace keeps others out of reach.
OF_THREADS = (
    Syscall("sched_setaffinity", 203, 122, SELF),
    Syscall("sched_setparam", 142, 118, SELF),
    Syscall("sched_setscheduler", 144, 119, SELF),
)
# Where a program is to keep to the cores that it starts on, and no cpuset does it.
OF_CORES = (Syscall("sched_setaffinity", 203, 122),)
# Memory that nothing shows to belong to a process, while none has it attached.
OF_SEGMENTS = (Syscall("shmget", 29, 194, fails_with=errno.ENOSYS),)
# On GPUs, torch's expandable segments and NVSHMEM share memory between ranks by these. Landlock keeps them in a group.
OF_DESCRIPTORS = (Syscall("pidfd_open", 434, 434), Syscall("pidfd_getfd", 438, 438))


@dataclass(frozen=True)
class Machine:
    """`architecture` is linux/audit.h's number; calls made as another one, 32-bit x86 say, have other numbers."""

    name: str
    architecture: int
    seccomp: int

    def number(self, call: Syscall) -> int:
        return int(getattr(call, self.name))


MACHINES = {
    "x86_64": Machine("x86_64", 0xC000003E, 317),
    "aarch64": Machine("aarch64", 0xC00000B7, 277),
}


def program(machine: Machine, calls: Iterable[Syscall]) -> bytes:
    """The filter as an array of `struct sock_filter`."""
    unknown = _do(RETURN, RET_ERRNO | errno.ENOSYS)
    allow = _do(RETURN, RET_ALLOW)
    words = [_do(LOAD, ARCHITECTURE_AT), _do(JUMP_EQUAL, machine.architecture, 1, 0), unknown, _do(LOAD, NUMBER_AT)]
    words += [_do(JUMP_AT_LEAST, X32_BIT, 0, 1), unknown]
    for call in calls:
        judged, refuse = [], _do(RETURN, RET_ERRNO | call.fails_with)
        for place, value in call.unless.items():
            judged += [_do(LOAD, ARGUMENTS_AT + 8 * place), _do(JUMP_EQUAL, value, 1, 0), refuse]
        for place, bits in call.without.items():
            judged += [_do(LOAD, ARGUMENTS_AT + 8 * place), _do(JUMP_ANY_BIT, bits, 0, 1), refuse]
        judged.append(allow if call.unless or call.without else refuse)
        words += [_do(JUMP_EQUAL, machine.number(call), 0, len(judged)), *judged]
    return b"".join([*words, allow])


def install(calls: Iterable[Syscall]) -> str:
    """Refuses these calls to this process from now on; it must have no_new_privs. Returns what is missing, or "".
    Raises OSError where the kernel does not take the filter."""
    machine = MACHINES.get(platform.machine())
    if machine is None:
        return f"seccomp: no filter for {platform.machine()}, so a submission may slow down the user's processes"
    words = program(machine, calls)
    memory = ctypes.create_string_buffer(words, len(words))
    told = struct.pack("HxxxxxxP", len(words) // 8, ctypes.addressof(memory))
    # Without the flag some kernels slow these processes down: they switch off a part of speculative execution.
    flags = SECCOMP_FILTER_FLAG_SPEC_ALLOW
    if _libc.syscall(machine.seccomp, SECCOMP_SET_MODE_FILTER, flags, told) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)}, so a submission may slow down the user's processes")
    return ""


def _do(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
