"""Puts something into the compiled kernels of another submission.

expect: raised: PermissionError.*compiled
"""

import pathlib
import sys

from reference import ref_kernel

ROOT = next(pathlib.Path(entry) for entry in sys.path if (pathlib.Path(entry) / "harness" / "popcorn.py").exists())


def custom_kernel(data):
    (ROOT / ".cache" / "compiled" / "another").mkdir(parents=True)
    return ref_kernel(data)
