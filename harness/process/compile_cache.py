"""Compile caches: what compilers made of a submission is kept for its next evaluation.

Each text of a submission has a folder of its own: whoever can write to a cache decides what the next run executes, so
no submission writes where another one reads. torch's compiler of extensions waits for a lock file in its folder, for
ever if the process that made it was killed: such a file is removed before ranks start.
"""

import contextlib
import os
import shutil
import time
from pathlib import Path

from harness.core.files import locked_by_several
from harness.core.records import Submission

FOLDER = ".cache/compiled"
KEPT_S = 14 * 86400.0  # since its last use


def folder(root: Path, name: str) -> Path | None:
    """The cache folder of that name; None in a checkout that cannot be written to. Deletes old caches."""
    found = root / FOLDER / name
    try:
        found.mkdir(parents=True, exist_ok=True)
        os.utime(found)
        for other in found.parent.iterdir():
            with contextlib.suppress(OSError):  # another evaluation was quicker; it is another user's
                if other.stat().st_mtime < time.time() - KEPT_S:
                    shutil.rmtree(other, ignore_errors=True)
                    other.unlink(missing_ok=True)  # a lock of `held`
    except OSError:
        return None
    return found


def compiles(submission: Submission) -> bool:
    """Whether importing the submission is likely to compile an extension, judged by its text alone."""
    texts = (submission.source, *(module.source for module in submission.modules))
    return any(word in text for text in texts for word in ("cpp_extension", "load_inline"))


def held(found: Path) -> contextlib.AbstractContextManager[None]:
    """Holds the cache while ranks use it. At the start no compiler's lock is left in it, unless another evaluation of
    the same text uses it now."""
    return locked_by_several(found.with_name(f"{found.name}.lock"), lambda: _drop_locks(found / "extensions"))


def _drop_locks(extensions: Path) -> None:
    """Removes the lock files. A submission can write there, so links that lead out of the folder are not followed."""
    if extensions.is_dir() and not extensions.is_symlink():
        for built in extensions.iterdir():
            if built.is_dir() and not built.is_symlink():
                (built / "lock").unlink(missing_ok=True)
