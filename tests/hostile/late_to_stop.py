"""Works until its time is nearly over, while a thread waits uninterruptibly, so that its processes stop only after the
phase's deadline. That once was an error of the machine: no failure, and no part of a contest's quota.

expect: timed_out: timed out
devices: cpu
limit: 2
"""

import ctypes
import os
import threading
import time

from reference import ref_kernel

WORKS_S = 1.4
path = os.path.join(os.getcwd(), "never-written").encode()
libc = ctypes.CDLL(None)
called = []


def start():
    """Starts a program that waits before its first instruction. When both are stopped, this thread waits for it."""
    os.mkfifo(path)
    actions, pid, words = ctypes.create_string_buffer(256), ctypes.c_int(), (ctypes.c_char_p * 2)(b"true", None)
    libc.posix_spawn_file_actions_init(actions)
    libc.posix_spawn_file_actions_addopen(actions, 0, path, os.O_RDONLY, 0)
    libc.posix_spawn(ctypes.byref(pid), b"/bin/true", actions, None, words, None)


def custom_kernel(data):
    if not called:
        threading.Thread(target=start, daemon=True).start()
        time.sleep(WORKS_S)
    called.append(True)
    return ref_kernel(data)
