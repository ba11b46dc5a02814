"""Leaves a report of a run that never was.

expect: raised: PermissionError.*forged|FileNotFoundError
"""

import pathlib
import sys

from reference import ref_kernel

ROOT = next(pathlib.Path(entry) for entry in sys.path if (pathlib.Path(entry) / "harness" / "popcorn.py").exists())


def custom_kernel(data):
    (ROOT / "runs" / "forged").mkdir()
    return ref_kernel(data)
