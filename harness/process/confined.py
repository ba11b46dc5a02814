"""Starts one untrusted command confined, and says how it ended: `python -m harness.process.confined ORDER`.

ORDER is a ConfinedOrder as JSON. This process joins the command's cgroup, confines itself (process.sandbox), forks the
command, waits for it, and writes its wait status to a descriptor that the command does not have. When it ends, whatever
the command has left behind ends too.
"""

import os
import resource
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.core.decode import part
from harness.core.json_file import record_of
from harness.core.processes import PR_SET_PDEATHSIG
from harness.process import cgroup, seccomp
from harness.process.sandbox import PR_SET_CHILD_SUBREAPER, Sandbox, die_first, hide, prctl


@dataclass(frozen=True, kw_only=True)
class ConfinedOrder:
    """What is run, in `folder`/work, and within which limits. `groups` are the folders of the cgroup that it joins,
    `kept` the controllers by which the kernel keeps limits there. `status_fd` takes what is missing of the sandbox, a
    line each, then STARTED when the command is about to run, then its wait status, or the reason why it could not be
    started."""

    command: tuple[str, ...]
    folder: Path
    cache: Path
    hidden: tuple[Path, ...]
    shown: tuple[Path, ...]
    cores: tuple[int, ...]
    memory_bytes: int
    status_fd: int
    groups: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    confined: bool = True


STARTED = b"\0"
NO_LIMIT = "limits: {} were only a request, since no cgroup can be made here ({}){}"
WHAT = {cgroup.CORES: "cores", cgroup.MEMORY: "memory", cgroup.TASKS: "processes"}


def main() -> None:
    order = record_of(ConfinedOrder, sys.argv[1])
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # in a PID namespace, the only one that the command could end it by
    cgroup.join(order.groups)
    if order.cores:
        os.sched_setaffinity(0, order.cores)
    die_first()
    refused: tuple[seccomp.Syscall, ...] = () if cgroup.CORES in order.kept else seccomp.OF_CORES
    refused += () if cgroup.MEMORY in order.kept else seccomp.OF_SEGMENTS
    lacking = part(order, Sandbox, device="cpu", refused=refused).enter(order.confined)
    lacking += requests(
        order.kept, is_filtered=order.confined and not any(one.startswith("seccomp") for one in lacking)
    )
    hide(True)  # the command could write its own status; a program is shown again when it is executed
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    least = order.memory_bytes if hard == resource.RLIM_INFINITY else min(order.memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (least, least))
    os.chdir(order.folder / "work")
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    os.write(order.status_fd, "\n".join(lacking).encode() + STARTED)
    os.write(order.status_fd, _waited(_started(order)).encode())


def requests(kept: tuple[str, ...], is_filtered: bool) -> tuple[str, ...]:
    """Says which limits the kernel does not keep. A filter keeps programs on their cores too."""
    asked = [what for name, what in WHAT.items() if name not in kept and not (name == cgroup.CORES and is_filtered)]
    if not asked:
        return ()
    lacking = ", ".join(name for name in WHAT if name not in kept)
    watched = " and ".join(what for what in asked if what != WHAT[cgroup.CORES])
    return (
        NO_LIMIT.format(" and ".join(asked), lacking, f"; {watched} are looked at 4 times a second" * bool(watched)),
    )


def _started(order: ConfinedOrder) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.set_inheritable(order.status_fd, False)
            os.execve(order.command[0], order.command, dict(os.environ))
        except OSError as error:
            os.write(order.status_fd, f"{order.command[0]} cannot be started: {error.strerror}\n".encode())
        finally:
            os._exit(127)
    return pid


def _waited(pid: int) -> str:
    """The wait status of the process; what else ends meanwhile is reaped."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            return str(status)


if __name__ == "__main__":
    main()
