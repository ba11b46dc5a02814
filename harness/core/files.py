"""Files that other processes read, write, lock or put there: reading, replacing, locking and removing them."""

import contextlib
import errno
import fcntl
import gzip
import io
import os
import secrets
import shutil
import stat
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from harness.core.checkout import shown
from harness.core.errors import HarnessError

ENTRY_BYTES = 4096  # that a file or folder takes at least, empty ones too
DYING_S = 1.0  # for what was killed to be gone


class LockedError(HarnessError):
    """Another process holds a lock."""


def open_ordinary(path: Path, flags: int = 0) -> BinaryIO:
    """Opens the file for reading. Raises OSError where it cannot be opened or is not an ordinary file: reading from a
    pipe, a socket or a device may never end. `flags` are those of os.open."""
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


def tail_from(path: Path, start: int) -> bytes:
    """The bytes of a growing ordinary file from byte `start` on; nothing where it is not there, or not readable."""
    try:
        with open_ordinary(path) as file:
            file.seek(start)
            return file.read()
    except OSError:
        return b""


def read_text(path: Path) -> str:
    """All of it as UTF-8; UnicodeDecodeError where it is not."""
    return read_bytes(path).decode("utf-8")


def text_if_any(path: Path | str) -> str:
    """What can be read of a file of /proc or /sys; empty where nothing can."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def taken_bytes(folder: Path, seen: set[int] | None = None) -> int:
    """The bytes that the folder and all below it take on the disk; 0 where it is missing. Links are not followed. With
    `seen`, a file that has several names counts once over all calls."""
    total, todo = 0, [folder]
    while todo:
        with contextlib.suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                stat = entry.stat(follow_symlinks=False)
                if seen is None or stat.st_nlink == 1 or entry.is_dir(follow_symlinks=False):
                    total += max(ENTRY_BYTES, 512 * stat.st_blocks)
                elif stat.st_ino not in seen:
                    seen.add(stat.st_ino)
                    total += max(ENTRY_BYTES, 512 * stat.st_blocks)
                if entry.is_dir(follow_symlinks=False):
                    todo.append(Path(entry.path))
    return total


def new_folder(prefix: str, place: Path | None = None) -> Path:
    """A new folder in `place` (None: where temporary ones are), by its absolute path, also where TMPDIR=. is set: who
    works in it works elsewhere."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=place)).absolute()


@contextlib.contextmanager
def scratch(prefix: str, place: Path | None = None) -> Iterator[Path]:
    """A new folder in `place` (None: where temporary ones are), in which a submission may do anything. It is gone when
    the `with` ends, and soon after this process was killed: a shell waits for that."""
    folder = new_folder(prefix, place)
    script = 'read _; sleep 1; rm -rf -- "$1"'  # a second, in which all below this process are gone, too
    shell = subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is this process's alone
    )
    try:
        yield folder
    finally:
        remove(folder)
        shell.kill()
        shell.communicate()


def remove(folder: Path) -> None:
    """Removes a folder in which a submission may have done anything, as far as possible. Killed processes may still be
    writing there, so it retries."""
    end = time.monotonic() + DYING_S
    _remove(folder)
    while folder.exists() and time.monotonic() < end:
        time.sleep(0.02)
        _remove(folder)
    if folder.exists():
        _remove_by_commands(folder)


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:  # folders may be nested deeper than Python's calls
        _remove_by_commands(folder)


def _remove_by_commands(folder: Path) -> None:
    for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):  # at any depth; neither follows links
        with contextlib.suppress(OSError):
            subprocess.run([*command, "--", str(folder)], capture_output=True, check=False)


def lock_of(file: Path) -> Path:
    """The lock file of a file that several processes write, beside it."""
    return file.with_name(f".{file.name}.lock")


@contextlib.contextmanager
def locked(path: Path, wait_s: float) -> Iterator[None]:
    """Holds the lock file's lock, which the kernel releases when its holder ends, however that ends. Raises
    HarnessError where another process still holds it after `wait_s`, OSError where the file cannot be opened.

    The lock is a file of its own, because the file that it guards is replaced: whoever waited for the old file's lock
    would then write beside whoever locks the new one. It is never deleted, for the same reason.
    """
    try:
        held = FileLock(path, timeout=wait_s).acquire(poll_interval=0.01)
    except Timeout:
        raise LockedError(
            f"another process has held {shown(path)} for {wait_s:g} s; see which one with `fuser {path}`, end it, and "
            "try again"
        ) from None
    with held:
        _let_its_folders_group(path)
        yield


def _let_its_folders_group(path: Path) -> None:
    """Lets the group that may write the file's folder open the lock too: its members may replace what it guards. By a
    descriptor, since they may also put a link to another file in the lock's place."""
    folder = path.parent.stat()
    if not folder.st_mode & stat.S_IWGRP:
        return
    # An error is of a link, or another's lock, whose owner's next command does it.
    with contextlib.suppress(OSError), _descriptor(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK) as fd:
        own = os.fstat(fd)
        is_lock = stat.S_ISREG(own.st_mode) and own.st_nlink == 1 and own.st_size == 0
        if is_lock and not own.st_mode & stat.S_IWGRP:
            os.fchown(fd, -1, folder.st_gid)
            os.fchmod(fd, stat.S_IMODE(own.st_mode) | stat.S_IRGRP | stat.S_IWGRP)


@contextlib.contextmanager
def locked_by_several(path: Path, first: Callable[[], object]) -> Iterator[None]:
    """Holds the lock file's lock together with others that call this. `first` is called where nobody else holds it;
    until it returns, nobody else gets it."""
    with _descriptor(path, os.O_RDWR | os.O_CREAT) as fd:
        os.utime(fd)  # it is in use
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            first()
        fcntl.flock(fd, fcntl.LOCK_SH)  # filelock shares no file's lock, so it is asked for here
        yield


@contextlib.contextmanager
def locked_alone(path: Path) -> Iterator[int]:
    """Holds the lock file's lock alone; yields its descriptor. Raises BlockingIOError where anybody holds it now."""
    with _descriptor(path, os.O_RDWR | os.O_CREAT) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield fd


@contextlib.contextmanager
def _descriptor(path: Path, flags: int) -> Iterator[int]:
    """The file or folder, open while the context lasts; a new file is this user's alone."""
    fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of that file, which need not be there."""
    try:
        with open_ordinary(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes them below the folder. Raises OSError, always with the file's name: which disk is full?"""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.write_bytes(data)
        except OSError as error:
            error.filename = str(path)  # an open file's write names none
            raise


def archived(files: Mapping[str, bytes]) -> bytes:
    """The files as a .tar.gz without times and owners, so that the same files give the same bytes."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as archive:
        for path, data in sorted(files.items()):
            member = tarfile.TarInfo(path)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def private_mode(mode: int) -> int:
    """The mode without what it permits to everybody else. What an owner permits to a group stays."""
    return stat.S_IMODE(mode) & ~stat.S_IRWXO


def replace_file(path: Path, data: bytes, is_alone: bool = False, mode: int = 0o666) -> None:
    """Puts `data` in the file's place in one step, with the mode and group of the file that was there: whoever looks
    sees the old file or the new one, and after a power failure finds one of them. Raises OSError where it cannot be
    written. `mode` is a new file's; one that permits others nothing takes from the old mode what that permits them.

    `is_alone`: nobody else writes the file now, as where its lock is held. The temporary file then has a fixed name, so
    that what a killed writer left there is written over.
    """
    path = path.resolve()  # replacing a link would leave what it points to as it is
    middle = "" if is_alone else f".{secrets.token_hex(4)}"
    temporary = path.parent / f".{path.name}{middle}.tmp"
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            with contextlib.suppress(FileNotFoundError):
                old = path.stat()
                with contextlib.suppress(PermissionError):  # not a member of that group
                    os.fchown(fd, -1, old.st_gid)
                os.fchmod(fd, stat.S_IMODE(old.st_mode) if mode & stat.S_IRWXO else private_mode(old.st_mode))
            file.write(data)
            file.flush()
            os.fsync(fd)  # the content is on the disk before the name points to it
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_names(path.parent)  # and so is the name


def append(fd: int, data: bytes) -> None:
    """Writes all of it at the file's end, and on the disk; nothing of it where it raises OSError."""
    size = os.fstat(fd).st_size
    try:
        while data:
            data = data[os.write(fd, data) :]
        os.fsync(fd)
    except OSError:
        os.ftruncate(fd, size)
        raise


def sync_names(folder: Path) -> None:
    with _descriptor(folder, os.O_RDONLY | os.O_DIRECTORY) as fd:
        os.fsync(fd)
