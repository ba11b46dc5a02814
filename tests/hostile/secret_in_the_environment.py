"""Collects keys and tokens out of its environment and its initial one. None has come this far.

expect: raised: no secret in sight
"""

import os


def custom_kernel(data):
    with open("/proc/self/environ") as file:
        names = {*os.environ, *(entry.partition("=")[0] for entry in file.read().split("\0"))}
    found = [name for name in names if "TOKEN" in name or "KEY" in name or "SECRET" in name]
    raise LookupError(f"found {found}" if found else "no secret in sight")
