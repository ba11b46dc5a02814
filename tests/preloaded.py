"""Command lines in milliseconds, for tests that start hundreds: forked from a process that has imported the harness.

    python -I -S tests/preloaded.py harness eval a2a      as `python -m harness eval a2a`
    python -I -S tests/preloaded.py harness.popcorn ...    as `python -m harness.popcorn ...`

This program hands its arguments, environment, folder and files over to the server that the tests run, and ends as the
forked process does. Where that process cannot be like a new one (an environment that an interpreter reads when it
starts, say), or no server runs, it becomes the real thing by prefork.py. Tests that signal or trace what they start
use the real thing.
"""

import array
import contextlib
import fcntl
import json
import os
import signal
import socket
import sys
from types import ModuleType
from typing import Any

SOCKET = "TESTS_COMMANDS"  # the variable that says where the server listens
READ_AT_START = ("PYTHON", "LANG", "LC_", "LD_", "MALLOC", "TZ")  # variables
MESSAGE_BYTES = 1 << 18
HEEDED = (signal.SIGINT, signal.SIGHUP)  # unless whoever starts a command has them ignored, as nohup does
FIRST_FREE = 100  # number of a file; those of a command line are below
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


def read_at_start(environ: dict[str, str]) -> dict[str, str]:
    found = {name: value for name, value in environ.items() if name.startswith(READ_AT_START)}
    return {name: value for name, value in found.items() if (name, value) != ("PYTHONPATH", ROOT)}


# ---- the client ------------------------------------------------------------------------------------------------------


def main() -> None:
    path = os.environ.get(SOCKET)
    if path is None:
        real()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(path)
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]
        numbers = sorted(number for number in numbers if number != server.fileno() and is_open(number))
        ignored = [number for number in HEEDED if signal.getsignal(number) is signal.SIG_IGN]
        order = {"argv": sys.argv[1:], "cwd": os.getcwd(), "environ": dict(os.environ), "files": numbers}
        order["ignored"] = ignored
        files = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", numbers))]
        server.sendmsg([json.dumps(order).encode()], files)
        answer = server.recv(16).decode()
    if answer == "real":
        real()
    if not answer:
        os.kill(os.getpid(), signal.SIGKILL)  # as it was
    os._exit(int(answer))


def is_open(number: int) -> bool:
    with contextlib.suppress(OSError):
        return bool(fcntl.fcntl(number, fcntl.F_GETFD) + 1)
    return False


def real() -> None:
    os.execv(sys.executable, [sys.executable, os.path.join(HERE, "prefork.py"), *sys.argv[1:]])


def interpreter(path: str) -> str:
    """Writes there a program in Python's place: it forks `-m MODULE ...`, and leaves all else to the real one."""
    real = f"'{sys.executable}'"
    with open(path, "w") as file:
        file.write(f'#!/bin/sh\nif [ "$1" = -m ]; then shift; exec {real} -I -S \'{__file__}\' "$@"; fi\n')
        file.write(f'exec {real} "$@"\n')
    os.chmod(path, 0o755)
    return path


# ---- the server ------------------------------------------------------------------------------------------------------


def serve(listening: socket.socket) -> None:
    """Forks a process for each command line, until it is killed."""
    import gc
    import importlib
    import pkgutil

    gc.disable()  # of imports nothing is garbage; settle_memory() enables it
    sys.path.insert(0, ROOT)
    sys.path.insert(0, HERE)
    import prefork

    import harness.cli
    from harness.core.checkout import Checkout
    from harness.problems.shape_file import find, problem_names

    for module in pkgutil.iter_modules(harness.cli.__path__):
        importlib.import_module(f"harness.cli.{module.name}")
    for name in ("scipy.stats", "harness.serve.api", "httpx", "matplotlib.figure"):  # what some commands import late
        with contextlib.suppress(ImportError):  # of an extra
            importlib.import_module(name)
    for name in problem_names(Checkout.here()):
        find(name, Checkout.here())  # which remembers what it has read
    prefork.hasten(setattr)
    known = read_at_start(dict(os.environ))
    prefork.settle_memory()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        asking, _ = listening.accept()
        message, files, _, _ = socket.recv_fds(asking, MESSAGE_BYTES, 64)
        order = json.loads(message)
        if read_at_start(order["environ"]) != known:
            asking.send(b"real")
        elif os.fork() == 0:
            listening.close()
            os._exit(played(order, files, asking))
        for fd in files:
            os.close(fd)
        asking.close()


def played(order: dict[str, object], files: list[int], asking: socket.socket) -> int:
    """In the forked process: becomes what the client would be, and tells it the exit code at the end."""
    import runpy
    import tempfile
    import traceback

    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, FIRST_FREE) for fd in (asking.detach(), *files)]
    os.closerange(0, FIRST_FREE)
    for fd, number in zip(moved[1:], order["files"], strict=True):
        os.dup2(fd, number)
        os.close(fd)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, handler in zip(HEEDED, (signal.default_int_handler, signal.SIG_DFL), strict=True):
        signal.signal(number, signal.SIG_IGN if number in order["ignored"] else handler)
    os.environ.clear()
    os.environ.update(order["environ"])
    os.chdir(order["cwd"])
    tempfile.tempdir = None
    sys.stdin, sys.stdout, sys.stderr = opened(0, "r"), opened(1, "w"), opened(2, "w")
    move_root(os.environ.get("PYTHONPATH") or order["cwd"])
    name, *arguments = order["argv"]
    sys.argv[:] = [name, *arguments]
    code: object = 0
    try:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    except SystemExit as done:
        code = done.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    exit_code = int(code or 0) & 0xFF
    os.write(moved[0], str(exit_code).encode())
    return exit_code


def opened(fd: int, mode: str) -> Any:
    """The standard stream as an interpreter opens it."""
    if not is_open(fd):
        return None
    errors = "backslashreplace" if fd == 2 else "strict"
    buffering = 1 if fd == 2 or os.isatty(fd) else -1
    return open(fd, mode, buffering, encoding="utf-8", errors=errors, closefd=False)


def move_root(folder: str) -> None:
    """A command in a copy of the checkout is that copy's harness: what was imported here takes itself for it."""
    from pathlib import Path

    if not os.path.isdir(os.path.join(folder, "harness")):
        return
    before, after = Path(ROOT), Path(folder)
    for module in [one for name, one in sys.modules.items() if name.partition(".")[0] == "harness"]:
        assert isinstance(module, ModuleType)
        for name, value in vars(module).items():
            if isinstance(value, Path) and (value == before or before in value.parents):
                setattr(module, name, after / value.relative_to(before))


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].isdecimal():
        serve(socket.socket(fileno=int(sys.argv[1])))
    else:
        main()
