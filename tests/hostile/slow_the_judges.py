"""Gives all other processes one core, the lowest priority and the idle scheduler.

expect: raised: nobody was slowed down
"""

import os

from reference import ref_kernel

SEEN = {int(name) for name in os.listdir("/proc") if name.isdigit()}
ATTEMPTS = (
    lambda pid: os.sched_setaffinity(pid, {0}),
    lambda pid: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),
    lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19),
)


def others():
    """Where only this group can be seen, all other numbers, but for those of this group's threads."""
    if os.getppid() != 1:
        return SEEN - {os.getpid()}
    own = {int(task) for pid in SEEN for task in os.listdir(f"/proc/{pid}/task")}
    return set(range(2, 1 << 16)) - own


def custom_kernel(data):
    slowed = 0
    for pid in others():
        for attempt in ATTEMPTS:
            try:
                attempt(pid)
                slowed += 1
            except OSError:
                pass
    if slowed == 0:
        raise PermissionError("nobody was slowed down")
    return ref_kernel(data)
