"""Stops every process below this one, lets them go on again, and reports whether one of them ran meanwhile.

A stopped process can go on by itself: a timer of its own may send it SIGCONT. Nothing in this process runs at that
moment. Therefore CPU clocks are compared: those of `freeze` with those of `thaw`. The kernel counts the CPU time of all
threads of a process, ended ones too, and it stands still while the process is stopped.

A process that has stopped may still be on its core, or be put there once more to leave it; an interrupt at that moment
is charged to it. Clocks are therefore read until they stand still, and as much as interrupts may charge is taken for
the group's own doing only when it comes again. So is a process that has started or ended, since a fork may have been
under way.

A process that starts and ends between the two leaves no clock. If this process is the first of a PID namespace, the
number of the process that was started last shows it.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from harness.core.processes import descendants, stat
from harness.process.sandbox import FIRST_PID

FREEZE_S, LOOK_S = 5.0, 0.0003  # for all processes to stop, or to end what they have begun to; between two looks
WAIT_S = 0.1  # for an uninterruptible wait to end. One that waits for a stopped process (vfork) does not.
PATIENCE_S = 2.0  # longer than that, in all freezes of a group together: a fork may be under way in such a wait
SLACK_NS = 50_000  # of CPU time, of all together. Honest groups used 0 in 224 freezes at load 6 (2 cores, 2026-11-24)
CHARGED_NS = 30_000_000  # that interrupts may charge, on a core that the machine's own host may take away meanwhile
# Freezes in which something ran, started or ended before the group is said to have done it: at least so many, and this
# part of all. Interrupts came to 3 in an honest evaluation on a slow host; who runs in fewer turns moves no median.
REPEATS, PART = 3, 0.05
READINGS = 10  # of clocks, until two agree
RUNS, WAITS = "RS", "D"  # states (proc(5)) in which SIGSTOP has not been taken in; a sleeping process wakes up to stop
ENDED = "ZXx"
FLAGS_AT, THREADS_AT = 6, 17  # a thread's flags and the number of threads, counted from the state
PF_EXITING = 0x4  # linux/sched.h: it ends, and does not stop any more
CPUCLOCK_SCHED = 2  # linux/posix-timers.h: a clock's number is made of the process's and of what it counts
LOADAVG = "/proc/loadavg"


@dataclass
class Freezer:
    """`ran` says what processes did while they were to be stopped, or is empty."""

    ran: str = ""
    below: set[int] = field(default_factory=set)  # the processes, when all had stopped
    clocks_ns: dict[int, int] = field(default_factory=dict)  # of those that had not ended
    used_ns: list[int] = field(default_factory=list)  # in freezes in which they did anything
    freezes: int = 0  # that were looked at
    last: int = 0  # the process that was started last
    is_frozen: bool = False
    patience_s: float = PATIENCE_S  # that is left

    def freeze(self) -> int:
        """Stops them all. Processes that wake each other are stopped again; returns how many still run after
        FREEZE_S. Of those that are stopped already it notes what ran, as `thaw` does."""
        below = self._compare()
        began = time.monotonic()
        while True:
            signal_all(signal.SIGSTOP, below)
            below = _below()
            states = {pid: states_of(pid) for pid in below}
            passed_s = time.monotonic() - began
            awaited = RUNS + (WAITS if passed_s < WAIT_S + self.patience_s else "")
            running = [pid for pid, each in states.items() if any(state in awaited for state in each)]
            if not running or passed_s > FREEZE_S:
                break
            time.sleep(LOOK_S)
        self.patience_s = max(0.0, self.patience_s - max(0.0, passed_s - WAIT_S))
        self.last = last_started()
        self.below = set(states)
        self.clocks_ns = _standing_ns(
            [pid for pid, each in states.items() if any(state not in ENDED for state in each)]
        )
        self.is_frozen = True
        return len(running)

    def thaw(self) -> None:
        """Compares the processes' CPU clocks with those at their stop, and continues them."""
        below = self._compare()
        self.is_frozen = False
        signal_all(signal.SIGCONT, below)

    def _compare(self) -> list[int]:
        """Notes what ran since they were stopped, if they are. Returns the processes that there are."""
        below = _below()
        if not self.is_frozen or self.ran:
            return below
        self.freezes += 1
        now_ns = _clocks_ns(self.clocks_ns)
        used_ns = sum(clock_ns - self.clocks_ns[pid] for pid, clock_ns in now_ns.items())
        did = "used {:.1f} ms of CPU time" if used_ns > SLACK_NS else ""
        if len(now_ns) < len(self.clocks_ns):
            did = "ended a process"
        elif last_started() != self.last or (not self.last and set(below) - self.below):
            did = "started a process"
        if did:
            self.used_ns.append(used_ns)
        if did and (used_ns > CHARGED_NS or len(self.used_ns) >= max(REPEATS, PART * self.freezes)):
            self.ran = did.format(sum(self.used_ns) / 1e6)
        return below


def signal_all(number: int, below: Iterable[int]) -> None:
    if os.getpid() == FIRST_PID:  # all of the namespace but this one, at once: none is missed while it forks
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, number)
        return
    for pid in below:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _below() -> list[int]:
    """The processes below this one. Without a PID namespace, all of the machine's are read for it."""
    if os.getpid() == FIRST_PID:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != FIRST_PID]
    return descendants(os.getpid())


def states_of(pid: int) -> str:
    """The states of a process's threads; empty where it is gone."""
    first = stat(pid)
    if not first or _state(first) in RUNS or first[THREADS_AT] == "1":
        return _state(first)
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        threads = os.listdir(f"/proc/{pid}/task")
        return "".join(_state(stat(pid, thread)) for thread in threads)
    return ""


def _state(words: list[str]) -> str:
    """A thread's state. One that is about to end runs until it has, even if it waits."""
    if not words or words[0] in ENDED:
        return words[0] if words else ""
    return "R" if int(words[FLAGS_AT]) & PF_EXITING else words[0]


def _clocks_ns(pids: Iterable[int]) -> dict[int, int]:
    """The CPU time of each process that is still there, all its threads together."""
    clocks_ns = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            clocks_ns[pid] = time.clock_gettime_ns(~pid << 3 | CPUCLOCK_SCHED)
    return clocks_ns


def _standing_ns(pids: list[int]) -> dict[int, int]:
    """The CPU clocks once two readings agree, or after READINGS readings."""
    clocks_ns = _clocks_ns(pids)
    for _ in range(READINGS):
        before_ns, clocks_ns = clocks_ns, _clocks_ns(pids)
        if clocks_ns == before_ns:
            break
        time.sleep(LOOK_S)
    return clocks_ns


def last_started() -> int:
    """The number of the process or thread that was started last in this PID namespace; 0 where it cannot be known, as
    this process shares its namespace, or a container has a file of its own there."""
    if os.getpid() != FIRST_PID or os.path.ismount(LOADAVG):
        return 0
    with open(LOADAVG, "rb") as file:
        return int(file.read().split()[-1])
