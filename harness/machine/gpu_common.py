"""What the readers of both vendors' libraries share: visible GPUs, their users, texts."""

import os
from collections.abc import Sequence
from typing import Any

import psutil

from harness.core import processes
from harness.machine.readings import Process, Unread, Usage, attempt, printable


def visible(uuids: Sequence[str], text: str | None) -> tuple[int, ...]:
    """The indices that a `CUDA_VISIBLE_DEVICES` leaves, in its order; as CUDA reads it, the first entry that names
    no GPU ends the list. Without the variable (None), all."""
    if text is None:
        return tuple(range(len(uuids)))
    found: list[int] = []
    for word in (word.strip() for word in text.split(",")):
        if word.isdecimal() and int(word) < len(uuids):
            found.append(int(word))
        elif word and not word.isdecimal() and sum(uuid.startswith(word) for uuid in uuids) == 1:
            found.append(next(index for index, uuid in enumerate(uuids) if uuid.startswith(word)))
        else:
            break
    return tuple(found)


def usage_of(found: Sequence[tuple[int, int]], memory_bytes: int, busy_percent: int) -> Usage:
    """`found` are all users of a GPU as (pid, bytes); this process and those below it are left out."""
    own = {os.getpid(), *processes.descendants(os.getpid())}

    def name(pid: int) -> str:
        found = attempt(lambda: printable(psutil.Process(pid).name()))
        return "unknown" if isinstance(found, Unread) else found  # another container's

    return Usage(
        processes=tuple(Process(pid=pid, name=name(pid), memory_bytes=used) for pid, used in found if pid not in own),
        memory_bytes=memory_bytes - sum(used for pid, used in found if pid in own),
        busy_percent=busy_percent,
    )


def text_of(value: Any) -> str:
    return printable(value.decode(errors="replace") if isinstance(value, bytes) else str(value))
