"""Zygotes in milliseconds, for tests that start hundreds: forked from a process that has imported torch already.

The harness starts an interpreter for each evaluation, most of whose start goes into that import. From the zygote's
main() on all is the harness's own here too. Evaluations in the tests' own process are patched by conftest.py; a
command line is run with them by this file:

    python tests/prefork.py harness eval a2a

as `python -m harness eval a2a`. What is about that start (the README's commands, a killed parent) uses the latter.
"""

import ctypes
import gc
import importlib
import json
import os
import re
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOCKET = "TESTS_ZYGOTES"  # the variable that says where the server listens
MESSAGE_BYTES = 1 << 18
SCRIPT_S = 900
HUGE_PAGE_BYTES, MADV_COLLAPSE = 2 << 20, 25  # linux/mman.h; Linux 6.1
LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)  # those of who starts a zygote, which it would inherit
# What most ranks import late: torch's parts, and those of the harness that references and judges are made of.
IMPORTED_LATE = (
    "torch.fx.experimental.symbolic_shapes",
    "torch.utils._device",
    "harness.problems.routing",
    "harness.ranks.trusted",
)
MEMORY = re.compile(r"(\w+)-(\w+) rw-p 0+ 00:00 0 *(?:\[heap\])?\n")  # in /proc/self/maps: neither file nor stack


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


def popen(
    command: Sequence[str], *, env: Mapping[str, str], pass_fds: Sequence[int], stdout: int, **more: object
) -> Forked:
    """Stands in for subprocess.Popen where the harness starts a zygote."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(os.environ[SOCKET])
        order = {"environment": dict(env), "zygote": command[-1], "limits": list(map(resource.getrlimit, LIMITS))}
        socket.send_fds(server, [json.dumps(order).encode()], [*pass_fds, stdout])
        return Forked(int(server.recv(MESSAGE_BYTES)))


def script_ended(command: Sequence[str], env: Mapping[str, str]) -> tuple[int, str]:
    """Runs `python FILE ARGUMENT...` with these variables and torch imported; its exit code, minus SIGKILL where it did
    not come to its end, and what it printed."""
    code, theirs = os.pipe()
    with tempfile.TemporaryFile() as printed, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(os.environ[SOCKET])
        order = {"environment": dict(env), "script": command, "limits": list(map(resource.getrlimit, LIMITS))}
        socket.send_fds(server, [json.dumps(order).encode()], [theirs, printed.fileno()])
        os.close(theirs)
        pid = int(server.recv(MESSAGE_BYTES))
        with open(code, "rb") as told:
            if not select.select([told], [], [], SCRIPT_S)[0]:
                os.kill(pid, signal.SIGKILL)
            number = int(told.read() or -signal.SIGKILL)
        printed.seek(0)
        return number, printed.read().decode(errors="replace")


# what harness.ranks.zygotes finds in place of the module
SUBPROCESS: Any = SimpleNamespace(Popen=popen, DEVNULL=subprocess.DEVNULL)


class Server:
    """A process that others are forked from, zygotes by default. While it runs, os.environ says where it listens."""

    def __init__(self, environment: Mapping[str, str], program: str = __file__, variable: str = SOCKET) -> None:
        self._variable = variable
        self._folder = tempfile.TemporaryDirectory(prefix="zygotes-")
        path = f"{self._folder.name}/socket"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(path)
            listening.listen(16)
            self._process = subprocess.Popen(
                [sys.executable, program, str(listening.fileno())],
                cwd=ROOT,
                env={**environment, "PYTHONPATH": str(ROOT)},
                pass_fds=[listening.fileno()],
                stdin=subprocess.DEVNULL,
            )
        os.environ[variable] = path

    def close(self) -> None:
        del os.environ[self._variable]
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()


def serve(listening: socket.socket) -> None:
    gc.disable()  # of imports nothing is garbage; settle_memory() enables it
    from harness.ranks import zygote  # imports torch, which is what this process is for

    for name in IMPORTED_LATE:
        importlib.import_module(name)
    zygote.prepare()
    remember_namespaces()
    remember_bytecode()
    settle_memory()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        asking, _ = listening.accept()
        message, fds, _, _ = socket.recv_fds(asking, MESSAGE_BYTES, 2)
        if not message:
            asking.close()
            continue
        order = json.loads(message)
        pid = os.fork()
        if pid == 0:
            try:
                listening.close()
                asking.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.setsid()
                for limit, most in zip(LIMITS, order["limits"], strict=True):
                    resource.setrlimit(limit, most)
                for standard, fd in enumerate((os.open(os.devnull, os.O_RDONLY), fds[1], fds[1])):
                    os.dup2(fd, standard)
                os.close(fds[1])
                os.environ.clear()
                os.environ.update(order["environment"])
                if "script" in order:
                    play(order["script"], fds[0])
                else:
                    sys.argv[1:] = [str(fds[0]), order["zygote"]]
                    zygote.main()
            finally:
                os._exit(0)
        for fd in fds:
            os.close(fd)
        asking.send(str(pid).encode())
        asking.close()


def play(command: Sequence[str], told: int) -> None:
    """In the forked process: becomes what the interpreter would be that runs this, and tells the exit code."""
    from harness.process import sandbox

    sandbox.prctl(sandbox.PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    warnings.simplefilter("ignore")
    sys.argv[:] = command
    sys.path[:0] = [os.path.dirname(command[0]), str(ROOT / "tests")]
    code: object = 1
    try:
        runpy.run_path(command[0], run_name="__main__")
        code = 0
    except SystemExit as done:
        code = done.code or 0
    except BaseException:
        traceback.print_exc()
    if not isinstance(code, int):
        print(code)
        code = 1
    sys.stdout.flush()
    os.write(told, str(code).encode())


def remember_namespaces() -> None:
    """Tries once, here, whether namespaces may be created: half of those that an evaluation makes are for that."""
    from harness.process import sandbox

    permitted = {own_pids: sandbox.has_namespaces(own_pids=own_pids) for own_pids in (True, False)}
    sandbox.has_namespaces = lambda _=None, own_pids=False: permitted[own_pids]


def remember_bytecode() -> None:
    """Compiles the checkout's references and submissions once, here: every rank would, from its own folder's copy."""
    from importlib.machinery import SourceFileLoader

    known = {}
    for path in (path for part in ("reference", "submissions") for path in (ROOT / part).rglob("*.py")):
        source = path.read_bytes()
        known[source] = compile(source, str(path), "exec", dont_inherit=True)
    compiled = SourceFileLoader.source_to_code

    def source_to_code(self: Any, data: Any, path: Any, **more: Any) -> CodeType:
        code = known.get(data) if type(data) is bytes else None
        return compiled(self, data, path, **more) if code is None else code_of(code, str(path))

    SourceFileLoader.source_to_code = source_to_code  # type: ignore[method-assign, assignment]


def code_of(code: CodeType, path: str) -> CodeType:
    """That code, as the code of another file."""
    constants = (code_of(one, path) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=path, co_consts=tuple(constants))


def hasten(set_attribute: Callable[[Any, str, Any], None]) -> None:
    """Has this process's evaluations start and run in less time, by what sets attributes."""
    from harness.ranks import zygotes

    set_attribute(zygotes, "subprocess", SUBPROCESS)


def settle_memory() -> None:
    """Call it before forking often. Forks then neither collect, and so copy, what is there by now, nor do they copy a
    page table for every 2 MiB of it, which takes longer than anything else that a fork does. Without huge pages they
    are as slow as before."""
    gc.enable()
    gc.collect()
    gc.freeze()
    libc = ctypes.CDLL(None)
    with open("/proc/self/maps") as maps:
        regions = [(int(start, 16), int(end, 16)) for start, end in MEMORY.findall(maps.read())]
    for start, end in regions:
        start, end = start + -start % HUGE_PAGE_BYTES, end - end % HUGE_PAGE_BYTES
        if start < end:
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), MADV_COLLAPSE)


def run_module(name: str) -> None:
    """As `python -m NAME` with the arguments that are left. NAME may be a module of the tests too."""
    sys.path.insert(0, os.getcwd())
    hasten(setattr)
    runpy.run_module(name, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    if sys.argv[1].isdecimal():
        serve(socket.socket(fileno=int(sys.argv[1])))
    else:
        del sys.argv[0]
        run_module(sys.argv[0])
