"""Puts itself on the first place.

expect: raised: PermissionError.*leaderboard.yaml
"""

import pathlib
import sys

from reference import ref_kernel

ROOT = next(pathlib.Path(entry) for entry in sys.path if (pathlib.Path(entry) / "harness" / "popcorn.py").exists())


def custom_kernel(data):
    with open(ROOT / "leaderboard.yaml", "a"):
        pass
    return ref_kernel(data)
