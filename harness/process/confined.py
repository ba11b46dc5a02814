"""Starts one untrusted command confined, and says how it ended: `python -m harness.process.confined ORDER`.

ORDER is a ConfinedOrder as JSON. This process confines itself (process.sandbox), forks the command, waits for it, and
writes its wait status to a descriptor that the command does not have. When it ends, whatever the command has left
behind ends too.
"""

import json
import os
import resource
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.core.decode import decode
from harness.process.sandbox import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, Sandbox, die_first, hide, prctl


@dataclass(frozen=True, kw_only=True)
class ConfinedOrder:
    """What is run, in `folder`/work, and within which limits. `status_fd` takes the command's wait status, or the
    reason why it could not be started; then a line for each layer of the sandbox that this kernel lacks."""

    command: tuple[str, ...]
    folder: str
    cache: str
    hidden: tuple[str, ...]
    shown: tuple[str, ...]
    cores: tuple[int, ...]
    memory_bytes: int
    status_fd: int
    confined: bool = True


def main() -> None:
    """Runs the order, and ends."""
    order = decode(ConfinedOrder, json.loads(sys.argv[1]))
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if order.cores:
        os.sched_setaffinity(0, order.cores)
    die_first()
    sandbox = Sandbox(
        folder=Path(order.folder),
        cache=Path(order.cache),
        device="cpu",
        hidden=tuple(map(Path, order.hidden)),
        shown=tuple(map(Path, order.shown)),
    )
    lacking = sandbox.enter(order.confined)
    hide(True)  # the command could write its own status; a program is shown again when it is executed
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    least = order.memory_bytes if hard == resource.RLIM_INFINITY else min(order.memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (least, least))
    os.chdir(Path(order.folder) / "work")
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    status = _waited(_started(order))
    os.write(order.status_fd, "\n".join([status, *lacking]).encode())


def _started(order: ConfinedOrder) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            os.set_inheritable(order.status_fd, False)
            os.execve(order.command[0], order.command, dict(os.environ))
        except OSError as error:
            os.write(order.status_fd, f"{order.command[0]} cannot be started: {error.strerror}".encode())
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
