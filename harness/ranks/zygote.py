"""A process that ranks are forked from. It imports torch once, so that a rank starts in milliseconds.

The parent runs it as `python -m harness.ranks.zygote FD FOLDER`, where FD is a SOCK_SEQPACKET socket. A RankOrder with
its file descriptors starts a rank; an Exited message reports its end. The zygote has touched no device and no process
group, so a fork inherits only code. Trusted ranks have a zygote of their own.

A cell also freezes its group while another one is timed: see process.freezer.

The zygote also cleans up. As a child subreaper it inherits the processes that a rank leaves behind. When the parent
closes the socket, or dies, the zygote kills every descendant, removes FOLDER, and ends. A rank dies with the zygote
(PDEATHSIG).

The ranks of a group come from a cell: a fork of the zygote that is confined (process.sandbox) and then does the
zygote's job for that group alone. Its ranks can do with each other what two processes of one user can do, and nothing
of the kind with other processes. Judges are confined like candidates, since they read what candidates made. A cell is
usually the first process of a PID namespace. Its ranks then have other numbers inside than outside; the parent hears of
the outer ones only.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.core import decode
from harness.core.files import remove
from harness.core.processes import PR_SET_PDEATHSIG, descendants
from harness.process import cgroup
from harness.process.freezer import Freezer
from harness.process.sandbox import MAX_FDS, PR_SET_CHILD_SUBREAPER, Sandbox, die_first, hide, prctl
from harness.ranks import wire, zygote_messages
from harness.ranks.roles import run_rank
from harness.ranks.wire import GroupName, RankOrder
from harness.ranks.zygote_messages import FDS, MAX_MESSAGE_BYTES, Confined, GroupFrozen, RankExited, Started

SWEEP_S = 3.0  # how long a fork bomb may outrun the undertaker
CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
DESCRIPTOR = struct.Struct("i")
GONE = (BrokenPipeError, ConnectionResetError)  # the process at the other end of a socket is gone


def sweep() -> None:
    deadline = time.monotonic() + SWEEP_S
    while (below := descendants(os.getpid())) and time.monotonic() < deadline:
        for pid in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.002)


@dataclass
class Cell:
    """The zygote's end of a cell. `pids` has the number of each running rank out here, by its number in there."""

    control: socket.socket
    pids: dict[int, int] = field(default_factory=dict)


class Zygote:
    """Forks ranks: with `is_cell` itself, confined, those of all its orders; otherwise by a cell for each group."""

    def __init__(self, control: socket.socket, is_cell: bool = False) -> None:
        self.control, self.is_cell = control, is_cell
        self.cells: dict[GroupName, Cell] = {}
        self.ranks: set[int] = set()
        self.freezer = Freezer()

    def run(self) -> None:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        wake_r, wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_w)
        try:
            while True:
                sources: list[Any] = [self.control, wake_r, *(cell.control for cell in self.cells.values())]
                readable, _, _ = select.select(sources, [], [])
                for name, cell in list(self.cells.items()):
                    if cell.control in readable and not self.hear(cell):
                        del self.cells[name]
                if wake_r in readable:
                    os.read(wake_r, 4096)
                    self.reap()
                if self.control in readable:
                    message, fds, _, _ = socket.recv_fds(self.control, MAX_MESSAGE_BYTES, len(FDS))
                    if not message:
                        break
                    self.obey(zygote_messages.order_of(message), message, fds)
                    for fd in fds:
                        os.close(fd)
        except GONE:
            pass  # the parent is gone
        finally:
            sweep()

    def obey(self, order: zygote_messages.ZygoteOrder, message: bytes, fds: Sequence[int]) -> None:
        if not self.is_cell:
            if isinstance(order, RankOrder) and order.group not in self.cells:
                with contextlib.suppress(ImportError):  # of another version of torch: ranks then load what they need
                    for name in order.preload:
                        importlib.import_module(name)
                self.cells[order.group] = Cell(open_cell(order))
            if order.group in self.cells and not isinstance(order, RankOrder) and order.what == "over":
                with contextlib.suppress(OSError):  # it has gone meanwhile
                    self.cells[order.group].control.shutdown(socket.SHUT_WR)  # it ends, which `hear` will find
            elif order.group in self.cells:  # else it is gone, which was told
                with contextlib.suppress(*GONE):  # which `hear` will find
                    socket.send_fds(self.cells[order.group].control, [message], fds)
        elif isinstance(order, RankOrder):
            self.fork(order, dict(zip(FDS, fds, strict=False)))
        elif order.what == "freeze":
            running = self.freezer.freeze()
            self.tell(GroupFrozen(group=order.group, number=order.number, running=running, ran=self.freezer.ran))
        elif order.what == "show_stacks":
            for pid in self.ranks:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGUSR1)  # faulthandler writes its Python stack into its log
        else:
            self.freezer.thaw()

    def fork(self, order: RankOrder, fds: dict[str, int]) -> None:
        zygote = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                # Who sends it is told with the message, in the receiver's numbers.
                self.tell(Started(group=order.group, rank=order.rank, pid=os.getpid()))
                become_rank(order, fds, zygote)
                os._exit(0)
            except Exception:
                traceback.print_exc()  # into the rank's log
            finally:
                os._exit(1)
        self.ranks.add(pid)

    def hear(self, cell: Cell) -> bool:
        """Hands on what the cell and its ranks tell; False once the cell is gone, and all of its ranks with it."""
        data, sender, fds = receive(cell.control)
        if not data:
            for pid in cell.pids.values():
                self.tell(RankExited(pid=pid, code=-signal.SIGKILL))
            return False
        message = zygote_messages.message_of(data)
        if isinstance(message, Started):
            cell.pids[message.pid] = sender
            message = replace(message, pid=sender)
        elif isinstance(message, RankExited):
            message = replace(message, pid=cell.pids.pop(message.pid))
        self.tell(message, fds)
        return True

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
                self.tell(RankExited(pid=pid, code=os.waitstatus_to_exitcode(status)))

    def tell(self, message: Any, fds: Sequence[int] = ()) -> None:
        """Sends the message with these descriptors, which are closed here."""
        socket.send_fds(self.control, [json.dumps(decode.encode(message)).encode()], fds)
        for fd in fds:
            os.close(fd)


def receive(control: socket.socket) -> tuple[bytes, int, list[int]]:
    """The next message, its sender's pid, and the descriptor that came with it, if one did; b"" at the end."""
    room = socket.CMSG_SPACE(CREDENTIALS.size) + socket.CMSG_SPACE(DESCRIPTOR.size)
    try:
        data, ancillary, _, _ = control.recvmsg(MAX_MESSAGE_BYTES, room)
    except ConnectionResetError:  # the other end closed without reading all
        return b"", 0, []
    told = {kind: content for _, kind, content in ancillary}
    sender = CREDENTIALS.unpack(told[socket.SCM_CREDENTIALS])[0] if socket.SCM_CREDENTIALS in told else 0
    return data, sender, list(DESCRIPTOR.unpack(told[socket.SCM_RIGHTS])) if socket.SCM_RIGHTS in told else []


def open_cell(order: RankOrder) -> socket.socket:
    """Forks the cell of this order's group; returns the socket that it takes its orders from."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    zygote = os.getpid()
    if os.fork() == 0:
        try:
            become_cell(order, theirs, zygote)
        except Exception:
            traceback.print_exc()  # into the zygote's log, which a failed start shows
        finally:
            os._exit(0)
    theirs.close()
    return ours


def become_cell(order: RankOrder, control: socket.socket, zygote: int) -> None:
    """In the forked child: drops everything of the zygote but its log, confines itself, and does the zygote's job."""
    signal.set_wakeup_fd(-1)
    os.closerange(3, control.fileno())
    os.closerange(control.fileno() + 1, MAX_FDS)
    hide(False)  # its own files in /proc are not its own while it hides
    die_first()
    cgroup.join(order.groups)
    sandbox = Sandbox(
        folder=Path(order.workdir).parent,
        cache=Path(order.cache),
        device=order.device,
        hidden=tuple(map(Path, order.hidden)),
        shown=tuple(map(Path, order.shown)),
        link=order.network.own if order.network else "",
    )
    lacking = sandbox.enter(order.confined)
    hide(True)  # so that its ranks cannot read its memory and descriptors either
    die_with(zygote)
    cell = Zygote(control, is_cell=True)
    cell.tell(Confined(group=order.group, lacking=lacking), sandbox.link_fds)
    cell.run()


def die_with(parent: int) -> None:
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() not in (parent, 0):  # it died before the line above; 0: it is outside of this PID namespace
        os._exit(1)


def become_rank(order: RankOrder, fds: dict[str, int], zygote: int) -> None:
    """In the forked child: drops everything of the zygote, then runs the rank's program."""
    os.setsid()
    die_with(zygote)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    hide(False)
    die_first()
    hide(order.group == "trusted" and order.device != "rocm" and order.confined)  # not tried there, as the sandbox
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
    sys.dont_write_bytecode = True  # into a folder that goes with the rank
    run_rank(order, fds)


def prepare() -> None:
    """What every rank would do for itself: a fork has it."""
    decode.prepare(zygote_messages.ZygoteOrder, zygote_messages.ZygoteMessage, wire.Command, wire.Reply)


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    prepare()
    gc.freeze()  # keep the preloaded pages shared
    gc.enable()  # which was off while they were loaded
    hide(True)
    try:
        Zygote(control).run()
    finally:
        remove(Path(sys.argv[2]))  # the parent would, but nothing stops a kill of it


if __name__ == "__main__":
    main()
