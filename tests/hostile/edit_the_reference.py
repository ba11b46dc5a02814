"""Changes the reference that trusted ranks have in their folders.

expect: raised: (PermissionError|FileNotFoundError).*reference.py
"""

import pathlib
import sys

from reference import ref_kernel

ROOT = next(pathlib.Path(entry) for entry in sys.path if (pathlib.Path(entry) / "harness" / "popcorn.py").exists())


def custom_kernel(data):
    pathlib.Path(__file__).parents[2].joinpath("trusted/0/reference.py").write_text("")
    return ref_kernel(data)
