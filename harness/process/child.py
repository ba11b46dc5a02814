"""Runs an untrusted child process with a deadline, reads its output meanwhile, and ends it with all its children."""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import HarnessError
from harness.core.processes import end_tree
from harness.core.words import SHOWN_CHARS, cut


def search_path() -> str:
    """PATH with this interpreter's programs first: ninja, which torch's extensions need, may be there only."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def end_text(code: int) -> str:
    """`exited with code 1`, `was killed by SIGTERM`; real-time signals have numbers only."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


DRAIN_S = 1.0  # for what is still in the pipes when the child has ended
POLL_S = 0.05
CHUNK_BYTES = 1 << 18
RESULT_BYTES = 16 << 20  # of result lines; far more than any evaluation has


@dataclass(frozen=True, kw_only=True)
class Ended:
    """One run of the child in `folder`. `code` is None where it timed out; `result` is what it wrote to POPCORN_FD."""

    folder: Path
    code: int | None
    result: bytes
    stdout: str
    stderr: str


# ---- the child ---------------------------------------------------------------------------------------------------
def run_child(command: Sequence[str], folder: Path, environ: Mapping[str, str], limit_s: float) -> Ended:
    """Runs a command in the folder with a pipe as POPCORN_FD, and reads its output as it comes. Kills whatever is left
    of its processes at the limit, and when it has ended. Raises HarnessError where it cannot be started."""
    told_fd, write_fd = os.pipe()
    try:
        child = subprocess.Popen(
            command,
            cwd=folder,
            env={**environ, "POPCORN_FD": str(write_fd)},
            pass_fds=[write_fd],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        os.close(told_fd)
        raise HarnessError(f"{command[0]} cannot be started: {error.strerror}") from None
    finally:
        os.close(write_fd)
    assert child.stdout is not None
    assert child.stderr is not None
    with os.fdopen(told_fd, "rb") as told, child.stdout as stdout, child.stderr as stderr:
        keeps = {told: _Kept(RESULT_BYTES), stdout: _Kept(8 * SHOWN_CHARS), stderr: _Kept(8 * SHOWN_CHARS)}
        with selectors.DefaultSelector() as selector:
            for pipe, kept in keeps.items():
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe.fileno(), selectors.EVENT_READ, kept.add)
            try:
                in_time = _read_until(selector, time.monotonic() + limit_s, child.pid)
            finally:
                end_tree(child.pid)
                code = child.wait()
            _read_until(selector, time.monotonic() + DRAIN_S, None)
    result, *printed = (kept.data for kept in keeps.values())
    out, err = (cut(data.decode(errors="replace")) for data in printed)
    return Ended(folder=folder, code=code if in_time else None, result=bytes(result), stdout=out, stderr=err)


class _Kept:
    """Keeps the first `most` bytes that come out of a pipe; the rest is read and dropped."""

    def __init__(self, most: int) -> None:
        self.data, self.most = bytearray(), most

    def add(self, data: bytes) -> None:
        self.data += data[: max(0, self.most - len(self.data))]


def read_pipes(selector: selectors.BaseSelector, wait_s: float) -> None:
    """Waits at most that long, and calls the selector's data of each pipe with what has come."""
    if not selector.get_map():
        time.sleep(max(0.0, wait_s))
    for key, _ in selector.select(max(0.0, wait_s)):
        data = os.read(key.fd, CHUNK_BYTES)
        if data:
            key.data(data)
        else:
            selector.unregister(key.fileobj)


def has_ended(pid: int) -> bool:
    """Whether the child has ended; it is not waited for, so that its number stays its own."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _read_until(selector: selectors.BaseSelector, deadline: float, pid: int | None) -> bool:
    """Reads until the process has ended, or without one until the pipes have; False where the deadline came first."""
    while pid is not None or selector.get_map():
        if pid is not None and has_ended(pid):
            return True
        if (left_s := deadline - time.monotonic()) <= 0:
            return False
        read_pipes(selector, min(POLL_S, left_s))
    return True
