"""Reading and removing files that somebody else may have put there."""

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from harness.core.checkout import shown
from harness.core.records import HarnessError, UsageError

DYING_S = 1.0  # for what was killed to be gone


def open_ordinary(path: Path, flags: int = 0) -> BinaryIO:
    """The file, open for reading. Raises OSError where it cannot be opened, or is none whose reading has an end: a
    pipe, a socket, a device. `flags` as os.open has them."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)  # does not wait for a pipe's writer
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not an ordinary file", str(path))
        return open(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def read_bytes(path: Path) -> bytes:
    """All of an ordinary file; OSError as above."""
    with open_ordinary(path) as file:
        return file.read()


def read_text(path: Path) -> str:
    """All of it as UTF-8; UnicodeDecodeError where it is not."""
    return read_bytes(path).decode("utf-8")


def remove(folder: Path) -> None:
    """Removes a folder to which a submission may have done anything, as far as that can be done. Into it its processes,
    killed, may still write while they die, so that it is tried again."""
    end = time.monotonic() + DYING_S
    shutil.rmtree(folder, ignore_errors=True)
    while folder.exists() and time.monotonic() < end:
        time.sleep(0.02)
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def locked(path: Path, wait_s: float) -> Iterator[None]:
    """Holds the lock file's lock, which the kernel lets go when its holder ends, however that ends.

    A file of its own, because leaderboard.yaml itself is replaced: whoever waited for the old file's lock would then
    write beside whoever locks the new one. It is never deleted, for the same reason.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise HarnessError(
                        f"another process has held {shown(path)} for {wait_s:g} s; see who with `fuser {path}`, "
                        "end it, and evaluate again"
                    ) from None
                time.sleep(0.01)
        yield
    finally:
        os.close(fd)


def replace_held(path: Path, text: str) -> None:
    """Puts `text` in the file's place in one step, with the file's mode. To be called under the lock, which is why
    the temporary file can have a fixed name: what a killed writer left there is written over."""
    temporary = path.parent / f".{path.name}.tmp"
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(fd, "wb") as file:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(fd, path.stat().st_mode & 0o7777)
            file.write(text.encode())
            file.flush()
            os.fsync(fd)  # the content is on the disk before the name points to it
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)  # and so is the name
    finally:
        os.close(folder)


def replace_file(path: Path, data: bytes) -> None:
    """Puts `data` in the file's place in one step: whoever looks sees the old file or the new one. Raises UsageError
    where it cannot be written."""
    path = path.resolve()  # replacing a link would leave what it points to as it is
    temporary = None
    try:
        fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, path.stat().st_mode & 0o7777 if path.exists() else 0o666 & ~_umask())
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.replace(temporary, path)
    except OSError as error:
        raise UsageError(f"--out {path}: cannot be written: {error.strerror}; name another file") from None
    finally:
        if temporary is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)


def _umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value
