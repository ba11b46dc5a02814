"""Has Python run its code at every start from now on.

expect: raised: PermissionError.*sitecustomize
"""

import pathlib
import sys

from reference import ref_kernel

ROOT = next(pathlib.Path(entry) for entry in sys.path if (pathlib.Path(entry) / "harness" / "popcorn.py").exists())


def custom_kernel(data):
    import torch

    pathlib.Path(torch.__file__).parents[1].joinpath("sitecustomize.py").write_text("")
    return ref_kernel(data)
