"""The processes that ranks are forked from, as the process that starts them has them.

Trusted ranks have one, and all others another. Each has its own address layout, so that nothing in a candidate's memory
tells where a judge's code and data lie. Never imports torch.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

from harness.core.checkout import ROOT
from harness.core.decode import encode
from harness.core.processes import state
from harness.process import sandbox
from harness.process.child import search_path
from harness.ranks import wire
from harness.ranks.logs import LogPipe
from harness.ranks.zygote_messages import GroupOrder, ZygoteOrder

ROLES: tuple[wire.Role, ...] = get_args(wire.Role)
OTHERS: tuple[wire.Role, ...] = ("baseline", "candidate")
GROUPS: tuple[wire.GroupName, ...] = get_args(wire.GroupName)
# `python -m MODULE`, without a collection of garbage while it imports torch, which takes a tenth of that time.
START = "import gc, runpy; gc.disable(); runpy.run_module('{}', run_name='__main__', alter_sys=True)"
# Above the level at which torch's profiler prints `USDT:...` lines at its start and end in every rank's output.
PROFILER_LOG = {"KINETO_LOG_LEVEL": "6"}
# glibc moves these with what a process happened to free, so that one group of ranks would get its buffers out of the
# heap and the other by page faults; fixed at the largest value it takes, all of them reuse memory.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
GOODBYE_S = 6.0  # for the zygotes to kill everything and go


class Zygotes:
    """`controls` has the socket that each group's orders go to, `processes` those zygotes that have been started; what
    these print is in `log`, unless they were started with another one."""

    def __init__(self) -> None:
        self.controls: dict[wire.GroupName, socket.socket] = {}
        self.processes: list[subprocess.Popen[bytes]] = []
        self.log = LogPipe()

    def stop(self) -> None:
        """Ends them and closes what is theirs, where nobody reads from their ranks meanwhile."""
        self.end(lambda: True, lambda: time.sleep(0.01))
        self.close()

    def start(self, folder: Path, threads: int, nodes: Sequence[socket.socket] = (), log: int | None = None) -> None:
        """Starts them; they remove `folder` at their end. Where ranks run on nodes, the hub takes their place."""
        log = self.log.write_fd if log is None else log
        for groups in (GROUPS,) if nodes else (GROUPS[1:], GROUPS[:1]):
            control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.controls |= dict.fromkeys(groups, control)
            with theirs:
                self.processes.append(_started(theirs, folder, threads, log, nodes))

    @property
    def is_open(self) -> bool:
        """Whether they were started and not ended."""
        return bool(self.controls)

    def each_control(self) -> list[socket.socket]:
        """Their sockets, one a process."""
        return list(dict.fromkeys(self.controls.values()))

    def tell(self, order: ZygoteOrder, fds: Sequence[int] = ()) -> None:
        """Sends the order, with these descriptors. A zygote that is gone misses it; who reads its socket will tell."""
        with contextlib.suppress(ConnectionError):
            socket.send_fds(self.controls[order.group], [json.dumps(encode(order)).encode()], fds)

    def is_stopped(self) -> bool:
        """Whether one of them was stopped from outside."""
        return any(state(process.pid) == "T" for process in self.processes)

    def end_groups(self, are_gone: Callable[[], bool], meanwhile: Callable[[], None]) -> bool:
        """Has them end all groups; whether `are_gone` within GOODBYE_S. `meanwhile` is called until then."""
        for group in GROUPS:
            self.tell(GroupOrder(group=group, what="over"))
        deadline = time.monotonic() + GOODBYE_S
        while not are_gone() and time.monotonic() < deadline:
            meanwhile()
        return are_gone()

    def end(self, can_go: Callable[[], bool], meanwhile: Callable[[], None]) -> None:
        """Has them kill every process below them and go, or kills them: once GOODBYE_S have passed, or when `can_go`
        is false. `meanwhile` is called until then, again and again."""
        for control in self.each_control():
            with contextlib.suppress(OSError):
                control.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + GOODBYE_S
        while any(process.poll() is None for process in self.processes) and can_go() and time.monotonic() < deadline:
            meanwhile()
        for process in self.processes:
            if process.poll() is None:
                process.kill()  # its ranks die with it
            process.wait()

    def close(self) -> None:
        for control in self.each_control():
            control.close()
        self.controls = {}
        self.log.close()


def _started(
    control: socket.socket, folder: Path, threads: int, log: int, nodes: Sequence[socket.socket]
) -> subprocess.Popen[bytes]:
    """A zygote that takes its orders from `control`, or the nodes' hub."""
    program = START.format("harness.nodes.hub" if nodes else "harness.ranks.zygote")
    sockets = [node.fileno() for node in nodes]
    return subprocess.Popen(
        [sys.executable, "-c", program, str(control.fileno()), str(folder), *map(str, sockets)],
        cwd=ROOT,
        env={
            **sandbox.environment(os.environ),
            **MALLOC,
            **PROFILER_LOG,
            "PATH": search_path(),
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
        },
        pass_fds=[control.fileno(), *sockets],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,  # Ctrl-C goes to the parent alone, which then ends the ranks in order
    )
