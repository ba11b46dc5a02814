"""Compile caches: what compilers made of a submission is kept for its next evaluation.

Each text of a submission has a folder of its own: whoever can write to a cache decides what the next run executes, so
no submission writes where another one reads. Beside each folder lies its lock file, which no submission can write. The
lock's date says when the cache was used last and its text how large it was after that. The text is empty while a cache
is in use, and stays empty if its evaluation is killed: its size is then counted anew. A folder's own date and size are
its submission's to choose. torch's compiler of extensions waits for a lock file in its folder, for ever if the process
that made it was killed: such a file is removed before ranks start.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from harness.core.files import locked_alone, locked_by_several, remove, taken_bytes
from harness.core.records import Submission

FOLDER = ".cache/compiled"
COMPILE_S = 600.0  # for what a submission compiles when it is imported or built
KEPT_S = 14 * 86400.0  # since its last use
ONE_BYTES, ALL_BYTES = 1 << 30, 4 << 30  # of one cache after its use, and of all


def folder(root: Path, name: str) -> Path | None:
    """The cache folder of that name; None in a checkout that cannot be written to. Deletes caches that have not been
    used for KEPT_S, and the ones used longest ago where all together are larger than ALL_BYTES."""
    found = root / FOLDER / name
    try:
        found.mkdir(parents=True, exist_ok=True)
        _prune(found.parent, name)
    except OSError:
        return None
    return found if all(os.access(place, os.W_OK) for place in (found, found.parent)) else None


def _prune(caches: Path, wanted: str) -> None:
    now, total = time.time(), 0
    used = {name: _last_use(caches, name) for name in {path.name.removesuffix(".lock") for path in caches.iterdir()}}
    for name in sorted(used, key=lambda name: (name != wanted, -used[name])):
        is_old = abs(now - used[name]) > KEPT_S  # a date in the future is no reason to keep it
        size = _size(caches, name)
        if name != wanted and (is_old or total + size > ALL_BYTES):
            _drop(caches / name, with_lock=is_old)
        else:
            total += size


def _last_use(caches: Path, name: str) -> float:
    for path in (_lock(caches / name), caches / name):  # the folder's date counts only where nobody has used it
        with contextlib.suppress(OSError):
            return path.lstat().st_mtime
    return 0.0


def _size(caches: Path, name: str) -> int:
    try:
        return int(_lock(caches / name).read_bytes()[:20])
    except (OSError, ValueError):  # it is in use, or its evaluation was killed
        return taken_bytes(caches / name)


def unused(root: Path, age_s: float = KEPT_S) -> dict[str, int]:
    caches, now = root / FOLDER, time.time()
    names = {path.name for path in caches.iterdir() if path.is_dir()} if caches.is_dir() else set()
    return {name: _size(caches, name) for name in sorted(names) if abs(now - _last_use(caches, name)) > age_s}


def drop(root: Path, name: str) -> bool:
    """Removes that cache, unless an evaluation uses it; whether it is gone."""
    _drop(root / FOLDER / name, with_lock=True)
    return not (root / FOLDER / name).exists()


def _drop(found: Path, with_lock: bool = False) -> None:
    """Removes the cache, unless an evaluation uses it or it is another user's."""
    with contextlib.suppress(OSError), locked_alone(_lock(found)) as lock:
        remove(found)
        os.truncate(lock, 0)
        if with_lock:
            _lock(found).unlink()


def _note_size(found: Path) -> None:
    """Notes how large the cache is, and removes one that is larger than ONE_BYTES, or than what it leaves free on the
    disk; unless an evaluation uses it, which will do so."""
    with contextlib.suppress(OSError), locked_alone(_lock(found)) as lock:
        size = taken_bytes(found)
        os.truncate(lock, 0)
        if size > min(ONE_BYTES, shutil.disk_usage(found).free):
            remove(found)
        else:
            os.pwrite(lock, str(size).encode(), 0)


def _lock(found: Path) -> Path:
    return found.with_name(f"{found.name}.lock")


def compiles(submission: Submission) -> bool:
    """Whether importing the submission is likely to compile an extension, judged by its text alone."""
    texts = (submission.source, *(module.source for module in submission.modules))
    return any(word in text for text in texts for word in ("cpp_extension", "load_inline"))


@contextlib.contextmanager
def held(found: Path) -> Iterator[None]:
    """Holds the cache while ranks use it. At the start no compiler's lock is left in it, unless another evaluation of
    the same text uses it now. A cache that is larger than ONE_BYTES at the end is removed."""
    try:
        with locked_by_several(_lock(found), lambda: _drop_locks(found / "extensions")):
            os.truncate(_lock(found), 0)
            yield
    finally:
        _note_size(found)


def _drop_locks(extensions: Path) -> None:
    """Removes the lock files. A submission can write there, so links that lead out of the folder are not followed."""
    if extensions.is_dir() and not extensions.is_symlink():
        for built in extensions.iterdir():
            if built.is_dir() and not built.is_symlink():
                (built / "lock").unlink(missing_ok=True)
