"""Changes the judge for the next evaluation.

expect: raised: PermissionError.*correctness.py
"""

import pathlib
import sys

from reference import ref_kernel

ROOT = next(pathlib.Path(entry) for entry in sys.path if (pathlib.Path(entry) / "harness" / "popcorn.py").exists())


def custom_kernel(data):
    with open(ROOT / "harness" / "judging" / "correctness.py", "a"):
        pass
    return ref_kernel(data)
