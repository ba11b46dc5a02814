"""Where compilers keep what they made of a submission, so that its next evaluation starts warm.

A folder for each text of a submission: whoever can write to a cache decides what the next run executes, so no
submission writes where another one reads.
"""

import contextlib
import os
import shutil
import time
from pathlib import Path

FOLDER = ".cache/compiled"
KEPT_S = 14 * 86400.0  # since its last use


def folder(root: Path, name: str) -> Path | None:
    """The cache of what has this name; None in a checkout that cannot be written to. Old ones are dropped."""
    found = root / FOLDER / name
    try:
        found.mkdir(parents=True, exist_ok=True)
        os.utime(found)
        for other in found.parent.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another evaluation was quicker
                if other.stat().st_mtime < time.time() - KEPT_S:
                    shutil.rmtree(other, ignore_errors=True)
    except OSError:
        return None
    return found
