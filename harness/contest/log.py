"""The audit log of a contest: who did what when, as JSON lines that are only ever added.

What a contest is, is what its log folds to (state.py). A record is written whole under a lock and is on the disk before
`add` returns. A writer that dies while it writes leaves a line that is cut off: it was never acknowledged, so nothing
recorded is lost. Readers tell it, and the next writer ends the line and records that (Repaired); the bytes stay. Any
other line that does not decode, and a gap in the numbers, is an error: somebody edited the file.
"""

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from harness.contest.lifecycle import Event, Repaired
from harness.contest.times import read_moment, written
from harness.core.checkout import shown
from harness.core.decode import DecodeError, decode, encode
from harness.core.errors import BadFileError, HarnessError, os_error_as
from harness.core.files import append, lock_of, locked, open_ordinary, private_mode, sync_names

LOCK_WAIT_S = 30.0  # a writer holds the lock for milliseconds


@dataclass(frozen=True, kw_only=True)
class Record:
    """A line of the log: its number, from 1, when it was written (ISO 8601, UTC), by whom, and what happened."""

    n: int
    at: str
    by: str
    event: Event

    def __post_init__(self) -> None:
        read_moment(self.at)

    @property
    def moment(self) -> datetime:
        return read_moment(self.at)


@dataclass(frozen=True, kw_only=True)
class _Read:
    """The part of the log read so far: `records` stand before `offset`. Behind them may be a record that lacks only its
    line end, or a line that a writer did not finish, `torn`."""

    records: tuple[Record, ...] = ()
    offset: int = 0
    lines: int = 0
    unended: tuple[Record, ...] = ()
    torn: bytes = b""


class ContestLog:
    """The log in a file, which need not exist yet. One object may be used from several threads only one at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = _Read()  # the file only grows: what was read is not read again

    def records(self) -> tuple[Record, ...]:
        """All records, in order. Raises BadFileError, with the line, where the file is not such a log."""
        self._update()
        return self._read.records + self._read.unended

    @property
    def torn(self) -> str:
        """A warning about a last line that was cut off, as of the last reading; "" where there is none."""
        count = len(self._read.torn)
        if not count:
            return ""
        return (
            f"{shown(self.path)}: the last line was cut off after {count} bytes, when its writer ended: it was never "
            "recorded; everything before it is. The next command marks it"
        )

    def add(self, decide: Callable[[tuple[Record, ...]], Sequence[Event]], at: datetime, by: str) -> tuple[Record, ...]:
        """Adds the events that `decide` makes of the records so far, all or none of them, and returns the records with
        them. Whatever `decide` raises leaves the file as it is. Raises BadFileError as `records`, HarnessError where
        the file cannot be locked or written."""
        path = self.path.resolve()
        next_ = "make room or check its rights, then try again"
        unwritten = os_error_as(HarnessError, f"{shown(self.path)} was not written", next_)
        with unwritten, locked(lock_of(path), LOCK_WAIT_S):
            known = self.records()
            events = decide(known)
            if events:
                self._write([*([Repaired(bytes=len(self._read.torn))] if self._read.torn else []), *events], at, by)
            return self.records()

    def _write(self, events: Sequence[Event], at: datetime, by: str) -> None:
        found = self._read
        first = len(found.records) + len(found.unended) + 1
        records = [Record(n=n, at=written(at), by=by, event=event) for n, event in enumerate(events, start=first)]
        lines = [json.dumps(encode(one), separators=(",", ":"), allow_nan=False) for one in records]
        data = ("\n" if found.torn or found.unended else "") + "\n".join(lines) + "\n"
        is_new = not self.path.exists()
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with contextlib.suppress(PermissionError):  # a member of the group that the owner lets write
                os.fchmod(fd, private_mode(os.fstat(fd).st_mode))
            append(fd, data.encode())
        finally:
            os.close(fd)
        if is_new:
            sync_names(self.path.resolve().parent)

    def _update(self) -> None:
        """Reads the records added since the last time."""
        try:
            with open_ordinary(self.path) as file:
                if os.fstat(file.fileno()).st_size < self._read.offset:
                    raise BadFileError(f"{shown(self.path)}: it is shorter than it was: a log is only ever added to")
                file.seek(self._read.offset)
                data = file.read()
        except FileNotFoundError:
            self._read = _Read()
            return
        except OSError as error:
            raise BadFileError(f"{shown(self.path)}: cannot be read: {error.strerror}; check its rights") from None
        self._read = _parsed(self._read, data, shown(self.path))


def _parsed(before: _Read, data: bytes, where: str) -> _Read:
    """`before` and what `data`, which begins at its offset, adds."""
    records, offset, number = list(before.records), before.offset, before.lines
    broken: list[bytes] = []  # lines that do not decode, until a record says that a writer left them
    *whole, rest = data.split(b"\n")
    for line in whole:
        found = _record(line)
        if isinstance(found, str):
            broken.append(line)
            continue
        left = b"\n".join(broken)
        if broken and not (isinstance(found.event, Repaired) and found.event.bytes == len(left)):
            raise _damaged(where, number + 1, broken[0])
        if found.n != len(records) + 1:
            raise BadFileError(
                f"{where}: line {number + len(broken) + 1}: record {found.n} follows record {len(records)}: lines were "
                "removed, added or moved; restore the file from a copy"
            )
        records.append(found)
        offset += len(left) + bool(broken) + len(line) + 1
        number += len(broken) + 1
        broken = []
    if broken and not rest:
        raise _damaged(where, number + 1, broken[0])
    last = _record(rest)
    if not broken and isinstance(last, Record) and last.n == len(records) + 1:
        return _Read(records=tuple(records), offset=offset, lines=number, unended=(last,))
    return _Read(records=tuple(records), offset=offset, lines=number, torn=b"\n".join([*broken, rest]))


def _record(line: bytes) -> Record | str:
    """The line's record, or a text that says what is wrong with it."""
    try:
        return decode(Record, json.loads(line))
    except DecodeError as error:
        return str(error)
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}"


def _damaged(where: str, number: int, line: bytes) -> BadFileError:
    return BadFileError(
        f"{where}: line {number}: {_record(line)}; the log is only ever added to, by `contest`: restore the file from "
        "a copy"
    )
