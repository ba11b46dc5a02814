"""Waits for what other processes do, for however long a busy machine takes."""

import time
from collections.abc import Callable
from pathlib import Path


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline_s, "it does not happen"
        time.sleep(0.01)


def in_time(check: Callable[[float], object], *seconds: float) -> None:
    """Calls `check` with the first of these limits, and with the next longer one where it does not pass: a busy machine
    may need that one, and what is wrong fails with all of them."""
    for limit_s in seconds[:-1]:
        try:
            check(limit_s)
            return
        except AssertionError:
            continue
    check(seconds[-1])


def is_gone(pid: int) -> bool:
    """A zombie is: it waits for a parent that is not ours."""
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
