"""Looks for the sources of other entries in the leaderboard and in runs/.

expect: raised: FileNotFoundError.*leaderboard.yaml
"""

import pathlib
import sys

from reference import ref_kernel

ROOT = next(pathlib.Path(entry) for entry in sys.path if (pathlib.Path(entry) / "harness" / "popcorn.py").exists())


def custom_kernel(data):
    for run in (ROOT / "runs").glob("*/submission.py"):
        return ref_kernel(data) if run.read_text() else None
    (ROOT / "leaderboard.yaml").read_text()
    return ref_kernel(data)
