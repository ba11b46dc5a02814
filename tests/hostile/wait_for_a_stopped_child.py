"""A thread waits for a child that never starts its program: stopped, both wait for ever, in a way that nothing ends.

expect: harmless
"""

import ctypes
import os
import threading

from reference import ref_kernel

path = os.path.join(os.getcwd(), "never-written").encode()
libc = ctypes.CDLL(None)


def start():
    os.mkfifo(path)
    actions, pid, words = ctypes.create_string_buffer(256), ctypes.c_int(), (ctypes.c_char_p * 2)(b"true", None)
    libc.posix_spawn_file_actions_init(actions)
    libc.posix_spawn_file_actions_addopen(actions, 0, path, os.O_RDONLY, 0)
    libc.posix_spawn(ctypes.byref(pid), b"/bin/true", actions, None, words, None)


threading.Thread(target=start, daemon=True).start()


def custom_kernel(data):
    return ref_kernel(data)
