"""Leaves something in /tmp for others to find.

expect: raised: PermissionError.*forged
"""

import pathlib
import sys

from reference import ref_kernel

ROOT = next(pathlib.Path(entry) for entry in sys.path if (pathlib.Path(entry) / "harness" / "popcorn.py").exists())


def custom_kernel(data):
    pathlib.Path("/tmp/kernel-eval-forged").write_text("")
    return ref_kernel(data)
