"""Records as JSON: on one line, read strictly, from a text, a file of ours, or a file of lines. RecursionError, which
JSON that is nested deeply causes, is a ValueError here like everything else that a text may be instead of a record."""

import json
from pathlib import Path
from typing import TypeVar

from harness.core.decode import decode, encode
from harness.core.errors import BadFileError
from harness.core.files import read_text

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
