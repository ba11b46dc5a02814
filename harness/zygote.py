"""The process that ranks are forked from: torch is imported once, a rank then starts in milliseconds.

Run by the parent as `python -m harness.zygote FD`, FD being a SOCK_SEQPACKET socket: a RankOrder with its file
descriptors starts a rank, an Exited message tells of its end. The zygote has touched no device and no process
group, so that what it hands on by fork is only code.

It is also the undertaker. As a child subreaper it inherits whatever processes a rank leaves behind, and when the
parent closes the socket, or dies, it kills every descendant and goes. A rank dies with the zygote (PDEATHSIG).
"""

import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from harness.decode import decode, encode
from harness.machine import descendants
from harness.rank import run_rank  # imports torch, which is what this process is for
from harness.wire import FDS, MAX_MESSAGE_BYTES, Exited, RankOrder, Started

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
SWEEP_S = 3.0  # how long a fork bomb may outrun the undertaker
MAX_FDS = 1 << 16


def prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def sweep() -> None:
    """Kill and reap every descendant of this process."""
    deadline = time.monotonic() + SWEEP_S
    while (below := descendants(os.getpid())) and time.monotonic() < deadline:
        for pid in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.002)


class Zygote:
    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.ranks: set[int] = set()

    def run(self) -> None:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        wake_r, wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_w)
        try:
            while True:
                readable, _, _ = select.select([self.control.fileno(), wake_r], [], [])
                if wake_r in readable:
                    os.read(wake_r, 4096)
                    self.reap()
                if self.control.fileno() in readable:
                    message, fds, _, _ = socket.recv_fds(self.control, MAX_MESSAGE_BYTES, len(FDS))
                    if not message:
                        break
                    self.fork(decode(RankOrder, json.loads(message)), dict(zip(FDS, fds, strict=True)))
        except (BrokenPipeError, ConnectionResetError):
            pass  # the parent is gone
        finally:
            sweep()

    def fork(self, order: RankOrder, fds: dict[str, int]) -> None:
        zygote = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                become_rank(order, fds, zygote)
                os._exit(0)
            finally:
                os._exit(1)
        for fd in fds.values():
            os.close(fd)
        self.ranks.add(pid)
        self.tell(Started(role=order.role, rank=order.rank, pid=pid))

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.ranks:  # else an orphan that a rank left behind
                self.ranks.remove(pid)
                self.tell(Exited(pid=pid, code=os.waitstatus_to_exitcode(status)))

    def tell(self, message: Any) -> None:
        self.control.send(json.dumps(encode(message)).encode())


def become_rank(order: RankOrder, fds: dict[str, int], zygote: int) -> None:
    """In the forked child: leave everything of the zygote behind, then run the rank's program."""
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != zygote:  # it died before the line above could make this process die with it
        os._exit(1)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with contextlib.suppress(OSError):
        # Where memory runs out the kernel shall take the rank that asked for it, not the parent.
        Path("/proc/self/oom_score_adj").write_text("1000")
    os.dup2(fds["log"], 1)
    os.dup2(fds["log"], 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    keep = sorted(fd for name, fd in fds.items() if name != "log")
    low = 3
    for fd in keep:
        os.closerange(low, fd)
        os.set_inheritable(fd, False)  # a program that the submission starts gets none of them
        low = fd + 1
    os.closerange(low, MAX_FDS)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.chdir(order.workdir)
    run_rank(order, fds)


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    gc.collect()
    gc.freeze()  # keep the preloaded pages shared
    Zygote(control).run()


if __name__ == "__main__":
    main()
