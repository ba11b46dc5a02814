"""Where compilers keep what they made of a submission, so that its next evaluation starts warm.

A folder for each text of a submission: whoever can write to a cache decides what the next run executes, so no
submission writes where another one reads. torch's compiler of extensions waits for a lock file in its folder, for good
where whoever made it was killed: such a file is removed before ranks start.
"""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from harness.core.records import Submission

FOLDER = ".cache/compiled"
KEPT_S = 14 * 86400.0  # since its last use


def folder(root: Path, name: str) -> Path | None:
    """The cache of what has this name; None in a checkout that cannot be written to. Old ones are dropped."""
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
    """Whether its import is likely to compile an extension: by its text, since to try would be the import itself."""
    texts = (submission.source, *(module.source for module in submission.modules))
    return any(word in text for text in texts for word in ("cpp_extension", "load_inline"))


@contextlib.contextmanager
def held(found: Path) -> Iterator[None]:
    """While ranks use the cache. Nobody else's compiler has a lock in it at the start, unless another evaluation of the
    same text is at it."""
    fd = os.open(found.with_name(f"{found.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.utime(fd)  # in use, see `folder`
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _drop_locks(found / "extensions")
        fcntl.flock(fd, fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)


def _drop_locks(extensions: Path) -> None:
    """A submission can write there, so nothing is followed out of it."""
    if extensions.is_dir() and not extensions.is_symlink():
        for built in extensions.iterdir():
            if built.is_dir() and not built.is_symlink():
                (built / "lock").unlink(missing_ok=True)
