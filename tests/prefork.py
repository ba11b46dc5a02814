"""Zygotes in milliseconds, for tests that start a hundred: forked from a process that has imported torch already.

The harness starts an interpreter for each evaluation, half of whose time goes into that import; so it is in every test
that runs the command line, and in `make eval`. From the zygote's main() on all is the harness's own here too.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MESSAGE_BYTES = 1 << 18


class Forked:
    """What the harness needs of a subprocess.Popen, of a process that is somebody else's child."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._fd = -1

    def poll(self) -> int | None:
        return 0 if self._fd < 0 or select.select([self._fd], [], [], 0)[0] else None

    def kill(self) -> None:
        if self._fd >= 0:
            signal.pidfd_send_signal(self._fd, signal.SIGKILL)

    def wait(self) -> int:
        if self._fd >= 0:
            select.select([self._fd], [], [])
            os.close(self._fd)
            self._fd = -1
        return 0


class Server:
    """The process that zygotes are forked from; `popen` stands in for subprocess.Popen in harness.ranks.launch."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            cwd=ROOT,
            env={**environment, "PYTHONPATH": str(ROOT)},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()

    def popen(
        self, command: Sequence[str], *, env: Mapping[str, str], pass_fds: Sequence[int], stdout: int, **more: object
    ) -> Forked:
        order = {"environment": dict(env), "folder": command[-1]}
        socket.send_fds(self._control, [json.dumps(order).encode()], [*pass_fds, stdout])
        return Forked(int(self._control.recv(MESSAGE_BYTES)))

    def close(self) -> None:
        self._control.close()
        self._process.wait(10)


def serve(control: socket.socket) -> None:
    from harness.ranks import zygote  # imports torch, which is what this process is for

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        message, fds, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 2)
        if not message:
            return
        order = json.loads(message)
        pid = os.fork()
        if pid == 0:
            try:
                control.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.setsid()
                for standard, fd in enumerate((os.open(os.devnull, os.O_RDONLY), fds[1], fds[1])):
                    os.dup2(fd, standard)
                os.close(fds[1])
                os.environ.clear()
                os.environ.update(order["environment"])
                sys.argv[1:] = [str(fds[0]), order["folder"]]
                zygote.main()
            finally:
                os._exit(0)
        for fd in fds:
            os.close(fd)
        control.send(str(pid).encode())


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
