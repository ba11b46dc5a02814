"""Stands between the engine and a job: run as a file, `child.py LOCK PARENT COMMAND ...`, it becomes COMMAND.

It makes the job end when the engine's process dies, however that dies, and gives the job a lock that it holds as long
as it lives: a later engine recognises by it that the job still runs, and reads in it which process that is.
"""

import ctypes
import fcntl
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h; outlasts execve


def main(lock: str, parent: str, *command: str) -> None:
    """Takes the lock and becomes the command. Does not return."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit("the engine's process is gone")
    fd = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    os.write(fd, str(os.getpid()).encode())  # first: whoever finds the lock held reads a whole number
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.set_inheritable(fd, True)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
