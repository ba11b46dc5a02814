"""Makes the machine look slower, so that its bound is easier to reach.

expect: raised: PermissionError.*cache
"""

import pathlib
import sys

from reference import ref_kernel

ROOT = next(pathlib.Path(entry) for entry in sys.path if (pathlib.Path(entry) / "harness" / "popcorn.py").exists())


def custom_kernel(data):
    (ROOT / ".cache" / "peaks-forged.json").write_text("{}")
    return ref_kernel(data)
