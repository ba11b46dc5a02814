"""Records as JSON: on one line, read strictly, from a text, a file of ours, or a file of lines. RecursionError, which
JSON that is nested deeply causes, is a ValueError here like everything else that a text may be instead of a record."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from harness.core.decode import decode, encode
from harness.core.errors import BadFileError, HarnessError, UsageError, os_error_as
from harness.core.files import append, locked_alone, read_text

T = TypeVar("T")


def line_of(value: object) -> str:
    """The record, with the line's end."""
    return json.dumps(encode(value)) + "\n"


def record_of(kind: type[T], text: str | bytes | bytearray) -> T:
    """Raises ValueError where the text is not JSON, or no such record (then a DecodeError)."""
    try:
        return decode(kind, json.loads(text))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def record_if_any(kind: type[T], text: str | bytes | bytearray) -> T | None:
    """The record; None where the text is none."""
    try:
        return record_of(kind, text)
    except ValueError:
        return None


def file_if_any(kind: type[T], path: Path) -> T | None:
    """What was kept in the file; None where there is none, or only a part of it, or what another version kept."""
    try:
        return record_of(kind, read_text(path))
    except (OSError, ValueError):
        return None


def lines_of(kind: type[T], text: str, where: str, what: str) -> list[T]:
    """The record in each line that is not blank. Raises BadFileError for another, which `what` calls it."""
    found = []
    for number, line in enumerate(text.split("\n"), start=1):  # not splitlines: texts may have U+2028 in them
        if line.strip():
            try:
                found.append(record_of(kind, line))
            except ValueError as error:
                raise BadFileError(f"{where}:{number}: {what}: {error}; name another file") from None
    return found


def lines_if_any(kind: type[T], text: str) -> list[T]:
    """The records among the lines: others are ignored, such as the last one of a writer that was killed."""
    return [found for line in text.split("\n") if (found := record_if_any(kind, line)) is not None]


@contextlib.contextmanager
def locked_lines(path: Path) -> Iterator[None]:
    """Holds a file of lines, the option --out's, for this process alone. UsageError where that cannot be."""
    with contextlib.ExitStack() as stack:
        with os_error_as(UsageError, f"--out {path}: cannot be written", "name another file"):
            if path.exists() and not path.is_file():  # reading a pipe or a device may never end
                raise UsageError(f"--out {path}: not an ordinary file; name another")
            path.touch()  # with the user's rights, which a lock file has not
            try:
                stack.enter_context(locked_alone(path))
            except BlockingIOError:
                held = f"--out {path}: another process writes it; wait for it, or name another"
                raise UsageError(held) from None
        yield


def open_lines(kind: type[T], path: Path, what: str) -> tuple[int, list[T]]:
    """Opens a file of lines to append to, and reads them. A line that a kill cut off is removed; one that lacks only
    its end gets it. Raises UsageError where it cannot be written, and BadFileError as lines_of; then nothing is
    changed, as it is another's file."""
    with os_error_as(UsageError, f"--out {path}: cannot be written", "name another file"):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            data = path.read_bytes()
            whole = uncut(kind, data)
            found, half = lines_of(kind, text_of(whole), str(path), what), data[len(whole) :]
            if half and not _may_be_cut(half):
                raise BadFileError(f"{path}: its last line is {what}, nor a part of one; name another file")
            if half:
                os.ftruncate(fd, len(whole))
            elif whole and not whole.endswith(b"\n"):
                append(fd, b"\n")
        except BaseException:
            os.close(fd)
            raise
    return fd, found


def add_line(fd: int, path: Path, record: object) -> None:
    """Appends the record to that open file: it is on the disk when this returns, or nothing of it is when it raises
    HarnessError."""
    with os_error_as(HarnessError, f"{path}: cannot be written", "make room, and the same command goes on"):
        append(fd, line_of(record).encode())


def text_of(data: bytes) -> str:
    return data.decode("utf-8-sig", errors="replace")


def uncut(kind: type[object], data: bytes) -> bytes:
    """The lines without a last one that is only a part of a record. An editor may have left out its end alone."""
    start = data.rfind(b"\n") + 1
    return data if record_if_any(kind, data[start:]) is not None else data[:start]


def _may_be_cut(line: bytes) -> bool:
    """Whether it may be the beginning of a record's line. Another file's text must not be removed as such."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return line.startswith(b"{")
    return False
