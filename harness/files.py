"""Reading and removing files that somebody else may have put there."""

import errno
import os
import shutil
import stat
import time
from pathlib import Path
from typing import BinaryIO

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
