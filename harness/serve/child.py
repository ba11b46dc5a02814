"""Between the server and an evaluation: run as a file, `child.py LOCK PARENT COMMAND ...`; becomes COMMAND.

It makes the evaluation end when the server dies, however it dies, and lets one evaluation at a time have the devices:
the lock is held by the evaluation itself, so that whoever comes next waits until it is really gone.
"""

import ctypes
import fcntl
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h; outlasts execve


def main(lock: str, parent: str, *command: str) -> None:
    """Does not return."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit("the server is gone")
    fd = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.set_inheritable(fd, True)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
