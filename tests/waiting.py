"""Waits for what other processes do."""

import time
from collections.abc import Callable
from pathlib import Path


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline_s, "it does not happen"
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    """A zombie is: it waits for a parent that is not ours."""
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
