"""Reads the shipped submission's source and runs it as its own.

expect: raised: FileNotFoundError.*submission.py
"""

import pathlib
import sys

ROOT = next(pathlib.Path(entry) for entry in sys.path if (pathlib.Path(entry) / "harness" / "popcorn.py").exists())


def custom_kernel(data):
    scope = {"__name__": "shipped"}
    exec((ROOT / "submissions" / "a2a" / "submission.py").read_text(), scope)
    return scope["custom_kernel"](data)
