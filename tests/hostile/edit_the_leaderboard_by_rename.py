"""Puts another leaderboard in the place of this one.

expect: raised: PermissionError|OSError.*leaderboard
"""

import os
import pathlib
import sys

from reference import ref_kernel

ROOT = next(pathlib.Path(entry) for entry in sys.path if (pathlib.Path(entry) / "harness" / "popcorn.py").exists())


def custom_kernel(data):
    own = pathlib.Path(__file__).with_name("leaderboard.yaml")
    own.write_text("[]")
    os.replace(own, ROOT / "leaderboard.yaml")
    return ref_kernel(data)
