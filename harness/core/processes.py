"""Which processes there are below one, and how they end, with whatever they have started.

psutil compares start times, so that no process is killed that merely got the number of one that is gone.
"""

import contextlib
import os
import signal
import time
from collections.abc import Sequence

import psutil

PR_SET_PDEATHSIG = 1  # linux/prctl.h
KILLED_S = 5.0  # for killed processes to be gone
POLL_S = 0.02


def descendants(root: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(IndexError, ValueError):
                parents[int(entry)] = int(stat(int(entry))[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


def state(pid: int) -> str:
    """R for a process that runs, S for one that waits, T for a stopped one (proc(5)); empty where it is gone."""
    return (stat(pid) or [""])[0]


def stat(pid: int, thread: int | str = "") -> list[str]:
    """The fields of the process's or the thread's stat (proc(5)) from the state on; none where it is gone. Read without
    Python's files, which take four times as long: all processes of a machine are read whenever a turn changes."""
    try:
        fd = os.open(f"/proc/{pid}/task/{thread}/stat" if thread else f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(fd, 4096).rpartition(b")")[2].decode().split()
        finally:
            os.close(fd)
    except OSError:
        return []


def interrupt_on_signals() -> None:
    """SIGTERM and a hang-up raise KeyboardInterrupt from now on, unless ignored as by nohup."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


def end_tree(pid: int, grace_s: float = 0.0) -> None:
    """Kills the process, its group, and every process below it. With a grace, the process is first asked to end
    (SIGTERM), so that it can end its own children in order.

    The process must not have been waited for, so that its number is still its own. A child of the caller stays to be
    waited for.
    """
    try:
        root = psutil.Process(pid)
        below = root.children(recursive=True)
    except psutil.Error:
        return
    if grace_s > 0:
        with contextlib.suppress(psutil.Error):
            root.terminate()
        if not _are_gone([root], grace_s):
            with contextlib.suppress(psutil.Error):
                below += root.children(recursive=True)
    end_group(pid)
    for process in [root, *below]:  # the root may have left its group
        with contextlib.suppress(psutil.Error):
            process.kill()
    if grace_s > 0:
        _are_gone([root, *below], KILLED_S)


def end_group(pid: int) -> None:
    """Kills what is left of the process group that the process was started as the leader of."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


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
