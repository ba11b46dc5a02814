"""Ending processes, with what they have started."""

import contextlib
import os
import signal

import psutil


def end_tree(pid: int) -> None:
    """Kills the process, its group, and every process below it. It must not have been waited for, so that its number is
    still its own."""
    try:
        below = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        below = []
    end_group(pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)  # it may have left its group
    for process in below:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.kill()


def end_group(pid: int) -> None:
    """Kills what is left of the process group that the process was started as the leader of."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
