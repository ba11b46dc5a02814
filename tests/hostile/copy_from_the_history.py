"""Looks for other sources in what git knows of the checkout.

expect: raised: FileNotFoundError.*git
"""

import os
import pathlib
import sys

from reference import ref_kernel

ROOT = next(pathlib.Path(entry) for entry in sys.path if (pathlib.Path(entry) / "harness" / "popcorn.py").exists())


def custom_kernel(data):
    os.stat(ROOT / ".git")
    return ref_kernel(data)
