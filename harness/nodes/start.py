"""The agents of one evaluation: who starts them. In a Slurm job srun does, on every node of the job; elsewhere this
machine is node 0 and has its own, and the user starts the others.
"""

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import IO

from harness.core.checkout import ROOT
from harness.core.errors import HarnessError, UsageError
from harness.core.processes import end_tree
from harness.nodes.meeting import TOKEN, WAIT_S, gathered

SOMEWHERE = ("192.0.2.1", 9)  # an address that nobody has; RFC 5737
GOODBYE_S = 10.0  # for an agent to end, once its connection has
SAID_CHARS = 2000  # of what agents print, where they end early
# An agent a node, beside the job's own script, with all that the job has there and this process's variables.
SRUN = ("--ntasks-per-node=1", "--overlap", "--cpu-bind=none", "--export=ALL", "--kill-on-bad-exit=1", "--quiet")
AGENT = (sys.executable, "-m", "harness", "agent")


@contextlib.contextmanager
def joined(
    count: int,
    confined: bool,
    note: Callable[[str], None],
    environ: Mapping[str, str] = os.environ,
    wait_s: float = WAIT_S,
) -> Iterator[tuple[socket.socket, ...]]:
    """Connections to the agents of `count` nodes, by node; none where all runs here, on one. `note` is told what the
    user is to do. Raises UsageError where the nodes cannot take part, HarnessError where they do not come."""
    if count == 1:
        yield ()
        return
    token = environ.get(TOKEN) or secrets.token_hex(16)
    with _listener(environ) as listener, tempfile.TemporaryFile() as said:
        address, port = environ.get("MASTER_ADDR") or own_address(), listener.getsockname()[1]
        given = {"MASTER_ADDR": address, "MASTER_PORT": str(port), TOKEN: token}
        process = _started(count, environ, given, said)
        try:
            if "SLURM_JOB_ID" not in environ:
                others = "node 1" if count == 2 else f"nodes 1 to {count - 1}"
                note(
                    f"waits {wait_s:.0f} s for {others}; there, in this checkout: {TOKEN}={token} "
                    f"python -m harness agent --node-rank 1 --master-addr {address} --master-port {port}"
                )
            sockets = gathered(listener, count, token, confined, lambda: _look(process, said), wait_s)
            try:
                yield sockets
            finally:
                for sock in sockets:
                    sock.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(GOODBYE_S)
        finally:
            _end(process)


def own_address() -> str:
    """The address by which other machines are likely to reach this one: that of its way out, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(SOMEWHERE)  # which sends nothing
        except OSError:
            return "127.0.0.1"
        return str(sock.getsockname()[0])


def _listener(environ: Mapping[str, str]) -> socket.socket:
    port = environ.get("MASTER_PORT", "0")
    try:
        return socket.create_server(("", int(port)))
    except (OSError, ValueError, OverflowError) as error:
        raise UsageError(f"MASTER_PORT={port}: {error}; name a free port, or none") from None


def _started(
    count: int, environ: Mapping[str, str], given: Mapping[str, str], said: IO[bytes]
) -> "subprocess.Popen[bytes]":
    """All agents that are ours to start, as one process."""
    command = [*AGENT, "--node-rank", "0"]
    if "SLURM_JOB_ID" in environ:
        nodes = environ.get("SLURM_JOB_NUM_NODES", "1")
        if nodes != str(count):
            raise UsageError(f"--nodes {count}: this Slurm job has {nodes} nodes; `nodes` in engine.yaml asks for more")
        command = ["srun", f"--nodes={count}", f"--ntasks={count}", *SRUN, *AGENT]
    try:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env={**environ, **given},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,  # Ctrl-C goes to the parent alone, which then ends the ranks in order
        )
    except FileNotFoundError:
        raise HarnessError(f"{command[0]}: not installed here; Slurm's slurm-client has it") from None


def _look(process: "subprocess.Popen[bytes]", said: IO[bytes]) -> None:
    if process.poll() is not None:
        said.seek(0)
        text = said.read().decode(errors="replace").strip()[-SAID_CHARS:]
        raise HarnessError(f"an agent ended before all nodes had come (exit code {process.returncode}): {text}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        end_tree(process.pid, GOODBYE_S)
        process.wait()
