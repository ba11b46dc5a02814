"""Runs one job on a node of a cluster: run as a file, `node.py FOLDER`, with Python's standard library alone.

FOLDER has the job's order, as slurm.py writes it. The command runs once, however often a cluster starts this program:
the first to make STARTED is the one. How the command ended is written to END in one step, and then the job is done: a
cluster forgets its jobs after minutes, and its own word for an ended job says nothing of the command. Room for END is
taken before the command runs, which may fill the disk.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ORDER, STARTED, END = "order.json", "started.json", "end.json"
NO_ROOM = 75  # the exit code where FOLDER's disk is full before the command runs; sysexits.h: EX_TEMPFAIL
END_BYTES = 4096
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
GRACE_S = 10.0  # from asking the command to end until all of it is killed
POLL_S = 0.05
LOOK_S = 0.5  # between two looks whether the job is still wanted
OF_THE_NODE = ("SLURM", "CUDA_VISIBLE", "ROCR_VISIBLE", "HIP_VISIBLE", "GPU_DEVICE_ORDINAL")  # variables it sets


def main(folder: Path) -> None:
    asked: list[int] = []  # to end
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    order = json.loads((folder / ORDER).read_text())
    told = {"host": socket.gethostname(), "job": os.environ.get("SLURM_JOB_ID", "")}
    try:
        _write(_unfinished(folder), {})
    except OSError as error:
        print(f"{folder}: {error.strerror}", file=sys.stderr)
        sys.exit(NO_ROOM)
    try:
        with (folder / STARTED).open("x") as started:
            started.write(json.dumps(told))
    except FileExistsError:
        sys.exit(f"{folder}: this job was started before, and is never run twice")
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what the command leaves behind is ended here
    environ = order["environ"] | {name: value for name, value in os.environ.items() if name.startswith(OF_THE_NODE)}
    try:
        with (folder / order["out"]).open("wb") as out, (folder / order["err"]).open("wb") as err:
            process = subprocess.Popen(
                order["command"],
                cwd=order["cwd"],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0),
            )
        end = _waited(process, order["deadline_s"], lambda: bool(asked) or not (folder / STARTED).exists())
        _end(process)
    except OSError as error:
        end = {"type": "failed", "why": f"{error.filename or order['command'][0]}: {error.strerror}"}
    if folder.exists():
        _write(_unfinished(folder), end)
        _unfinished(folder).replace(folder / END)


def _waited(process: "subprocess.Popen[bytes]", deadline_s: float, is_given_up: Callable[[], bool]) -> dict[str, Any]:
    """How the command ended, or why it is given up: somebody asks for that, or its folder is gone. In that case the
    cluster lost the job, or seemed to, and whoever ordered it may have it run elsewhere."""
    until = time.monotonic() + deadline_s
    while (left := until - time.monotonic()) > 0:
        try:
            return {"type": "exited", "code": process.wait(min(LOOK_S, left))}
        except subprocess.TimeoutExpired:
            if is_given_up():
                return {"type": "exited", "code": -signal.SIGTERM}
    return {"type": "overdue"}


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ends the command if it still runs, and all that it left."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
    until = time.monotonic() + GRACE_S
    while (left := _children()) and time.monotonic() < until:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        time.sleep(POLL_S)


def _children() -> list[int]:
    """This process's; orphans below it become its own, one after the other."""
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def _unfinished(folder: Path) -> Path:
    """END before it is whole; of each process its own, as one may be started beside another."""
    return folder / f"{END}.{os.getpid()}"


def _write(path: Path, content: dict[str, Any]) -> None:
    """In the same bytes of the disk each time."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    with os.fdopen(fd, "wb") as file:
        file.write(json.dumps(content).encode().ljust(END_BYTES))
        file.flush()
        os.fsync(file.fileno())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
