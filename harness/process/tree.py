"""Ends a process together with everything below it."""

import contextlib
import time
from collections.abc import Sequence

import psutil

KILLED_S = 5.0  # for killed processes to be gone
POLL_S = 0.02


def end_tree(pid: int, grace_s: float) -> None:
    """Asks the process to end (SIGTERM), so that it can end its own children in order; kills it if it has not ended
    after `grace_s`, and kills whatever else it had started.

    A child of the caller stays to be waited for. psutil compares start times, so that no process is killed that merely
    got the number of one that is gone.
    """
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        below = root.children(recursive=True)
        root.terminate()
        if not _are_gone([root], grace_s):
            below = [root, *below, *root.children(recursive=True)]
        for one in below:
            with contextlib.suppress(psutil.Error):
                one.kill()
        _are_gone(below, KILLED_S)


def _are_gone(processes: Sequence[psutil.Process], limit_s: float) -> bool:
    """Waits until they have ended; False if one has not after `limit_s`."""
    deadline_s = time.monotonic() + limit_s
    while any(map(_lives, processes)):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(POLL_S)
    return True


def _lives(process: psutil.Process) -> bool:
    """A zombie does not: it waits for its parent, which need not be us."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
