"""Doing something again whenever a file is saved: `check --watch`."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from harness.core.errors import BadSubmissionError
from harness.core.words import count_text

LOOK_S = 0.3  # between two looks at the files: a person does not notice it, and it takes no time of a core
SETTLE_S = 0.1  # for a program that saves in several steps

Stamp = tuple[int, int, int]


def watch(
    do: Callable[[], object], files: Callable[[], Sequence[Path]], sleep: Callable[[float], None] = time.sleep
) -> NoReturn:
    """Calls `do`, and again after each change of one of `files`, the first of which must exist, until it is
    interrupted. A bad submission is printed; other errors end it. A change while `do` runs counts."""
    while True:
        watched = list(files())
        before = _stamps(watched)
        try:
            do()
        except BadSubmissionError as error:
            print(f"error: {error}", file=sys.stderr)
        print(f"\nwatching {count_text(len(watched), 'file')}, Ctrl-C ends", file=sys.stderr, flush=True)
        while _stamps(watched) == before:
            sleep(LOOK_S)
        while True:  # until nothing has changed for a moment, and what was being replaced is there
            now = _stamps(watched)
            sleep(SETTLE_S)
            if now == _stamps(watched) and now[0] is not None:
                break


def _stamps(files: Sequence[Path]) -> list[Stamp | None]:
    """What changes when a file is saved; None for one that is not there."""
    found: list[Stamp | None] = []
    for file in files:
        try:
            stat = file.stat()
        except OSError:
            found.append(None)
        else:
            found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return found
