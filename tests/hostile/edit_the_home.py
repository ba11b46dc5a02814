"""Leaves something in the user's home.

expect: raised: PermissionError.*forged
"""

import os
import pathlib
import sys

from reference import ref_kernel

ROOT = next(pathlib.Path(entry) for entry in sys.path if (pathlib.Path(entry) / "harness" / "popcorn.py").exists())


def custom_kernel(data):
    pathlib.Path(os.path.expanduser("~/.forged")).write_text("")
    return ref_kernel(data)
