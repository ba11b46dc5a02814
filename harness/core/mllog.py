"""MLPerf's log lines, `:::MLLOG {json}`: written, and read strictly.

A line has the keys `namespace`, `time_ms` (Unix time in whole milliseconds), `event_type`, `key`, `value` (any JSON)
and `metadata` (a mapping; `file` and `lineno` name the place that logged it). Launchers and training programs print
other text around these lines, also before the mark on the same line (`0: :::MLLOG {...}`); that text is ignored. What
follows the mark has to be whole: a line that was cut off would otherwise go unnoticed.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO

from harness.core.checkout import ROOT, shown
from harness.core.decode import DecodeError, decode

MARK = ":::MLLOG"
EventType = Literal["POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"]
MOST_MS = 10**15  # some 30,000 years
KEYS = ("namespace", "time_ms", "event_type", "key", "value", "metadata")


@dataclass(frozen=True, kw_only=True)
class LogEvent:
    """One line. `value` and the values of `metadata` are JSON; `time_ms` is Unix time."""

    time_ms: int
    event_type: EventType
    key: str
    value: Any = None
    metadata: dict[str, Any] = field(default_factory=dict)
    namespace: str = ""


def line(event: LogEvent) -> str:
    """The event as a line without its end. Raises ValueError where `value` or `metadata` is not JSON."""
    try:
        return f"{MARK} {json.dumps({key: getattr(event, key) for key in KEYS})}"
    except TypeError as error:
        raise ValueError(f"the key {event.key!r} has a value that is not JSON: {error}") from None


def parse(text: str) -> list[LogEvent]:
    """The events of a log, in its order. Raises DecodeError (`line 12: ...`) for a marked line that is none."""
    events = []
    for number, content in enumerate(text.split("\n"), start=1):  # JSON may hold other line ends, as U+2028
        _, mark, rest = content.partition(MARK)
        if mark:
            events.append(_event(rest, f"line {number}"))
    return events


class Writer:
    """Writes events to a text file, each on a line that is flushed at once. `clock_ms` gives the Unix time in ms."""

    def __init__(self, file: TextIO, clock_ms: Callable[[], int]) -> None:
        self._file = file
        self._clock_ms = clock_ms

    def point(self, key: str, value: object = None, **metadata: object) -> None:
        """Something that holds at this time: a seed, a quality."""
        self._write("POINT_IN_TIME", key, value, metadata)

    def start(self, key: str, value: object = None, **metadata: object) -> None:
        self._write("INTERVAL_START", key, value, metadata)

    def end(self, key: str, value: object = None, **metadata: object) -> None:
        self._write("INTERVAL_END", key, value, metadata)

    def _write(self, event_type: EventType, key: str, value: object, metadata: Mapping[str, object]) -> None:
        caller = sys._getframe(2)
        place = {"file": shown(Path(caller.f_code.co_filename), ROOT), "lineno": caller.f_lineno}
        event = LogEvent(
            time_ms=self._clock_ms(), event_type=event_type, key=key, value=value, metadata=place | dict(metadata)
        )
        self._file.write(line(event) + "\n")
        self._file.flush()


def _event(text: str, where: str) -> LogEvent:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DecodeError(where, f"what follows {MARK} is not JSON, as if cut off ({error})") from None
    event = decode(LogEvent, found, f"{where}, $")
    if missing := [key for key in KEYS if key not in found]:  # none has a default in a file
        raise DecodeError(where, f"the key '{missing[0]}' is missing")
    if abs(event.time_ms) > MOST_MS:
        raise DecodeError(f"{where}, $.time_ms", f"expected milliseconds since 1970, found {event.time_ms}")
    return event
