"""Reads what the judges and the other side of a comparison run, beside its own folder.

expect: raised: only my own
"""

import os
import pathlib

from reference import ref_kernel


def custom_kernel(data):
    here = pathlib.Path(__file__).parents[1]
    if os.listdir(here.parent) == [here.name]:
        raise PermissionError("only my own")
    return ref_kernel(data)
