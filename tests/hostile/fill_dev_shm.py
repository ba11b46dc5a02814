"""Leaves a file in /dev/shm, which nobody would clean up.

expect: harmless
"""

import os
import pathlib
import sys

from reference import ref_kernel

ROOT = next(pathlib.Path(entry) for entry in sys.path if (pathlib.Path(entry) / "harness" / "popcorn.py").exists())


def custom_kernel(data):
    pathlib.Path(f"/dev/shm/forged-{os.getpid()}").write_bytes(bytes(1 << 20))
    return ref_kernel(data)
