"""Honest: prepares something in a thread at import, and keeps it in the compiler's cache.

expect: ranked
mode: leaderboard
"""

import os
import pathlib
import threading

from reference import ref_kernel

CACHE = pathlib.Path(os.environ["TRITON_CACHE_DIR"]) / "kernel.bin"


def compiled():
    if not CACHE.exists():
        part = CACHE.with_suffix(f".{os.getpid()}")
        part.write_bytes(b"a kernel")
        part.replace(CACHE)


thread = threading.Thread(target=compiled)
thread.start()


def custom_kernel(data):
    thread.join()
    assert CACHE.read_bytes() == b"a kernel"
    return ref_kernel(data)
