"""Runs a whole command as a job of another engine, and shows what it prints as if it ran here.

The job runs `python -m harness` with the same arguments in the same folder, which the other machine sees too. It
records what it finds itself, so that the board has the machine class and the load of the machine that measured.
"""

import codecs
import os
import secrets
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from harness.core.checkout import Checkout
from harness.core.errors import Exit, HarnessError
from harness.engine import base, registry
from harness.engine.base import Engine, EngineError, Job, JobDone, Lost, Ticket

LOOK_S = 0.2
USE = "commands"  # the folder of these jobs


class JobTimedOut(EngineError):
    """The job took longer than the cluster's file allows."""

    exit_code = Exit.TIMED_OUT


def run(engine_name: str, arguments: Sequence[str], checkout: Checkout) -> int:
    """The command's exit code. A job that is lost runs once more, unless it may have recorded something. Raises
    EngineError where the engine cannot run it."""
    limit_s = registry.limit_s(checkout.root)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    engine = registry.make(engine_name, checkout.cache / "jobs" / USE, Path.cwd(), environ, checkout.root, USE)
    command = (sys.executable, "-m", "harness", *arguments)
    before, advice = _stamp(checkout.leaderboard), ""
    state = _followed(engine, command, limit_s)
    if isinstance(state, Lost):
        if _stamp(checkout.leaderboard) == before:
            print(f"the job was lost, and runs once more: {state.why}", file=sys.stderr)
            state = _followed(engine, command, limit_s)
        else:
            advice = "; the leaderboard has changed since, so it is not run again by itself"
    if isinstance(state, Lost):
        raise EngineError(f"the job was lost: {state.why}{advice}. See `sinfo` for the nodes, and run it again")
    return _code(state, limit_s)


def _followed(engine: Engine, command: tuple[str, ...], limit_s: float) -> JobDone | Lost:
    """How a new job ended; what it printed is printed by then, and the engine keeps nothing of it."""
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
    ticket = engine.submit(Job(id=name, command=command, deadline_s=limit_s))
    printed = (_Printed(base.ERR, sys.stderr), _Printed(base.OUT, sys.stdout))
    is_told = False
    try:
        while True:
            state = engine.poll(ticket)
            if not isinstance(state, base.Waiting):
                for each in printed:
                    each.show(engine, ticket, is_last=isinstance(state, JobDone | Lost))
            elif not is_told:
                print("waiting in the cluster's queue", file=sys.stderr)
                is_told = True
            if isinstance(state, JobDone | Lost):
                return state
            time.sleep(LOOK_S)
    finally:  # after Ctrl-C too
        engine.discard(ticket)


class _Printed:
    """What the job prints in one of its files, shown as it comes; a character of which a part has come is not yet."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self.name, self.stream, self.nbytes = name, stream, 0
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def show(self, engine: Engine, ticket: Ticket, is_last: bool) -> None:
        new = engine.printed(ticket, self.name, self.nbytes)
        self.nbytes += len(new)
        self.stream.write(self.decoder.decode(new, is_last))
        self.stream.flush()


def _code(state: JobDone, limit_s: float) -> int:
    match state.end:
        case base.Exited(code=code) if code >= 0:
            return code
        case base.Exited(code=code):
            raise EngineError(f"the job was ended from outside, by signal {-code}; `scontrol show job` may say by whom")
        case base.Overdue():
            raise JobTimedOut(
                f"the job took longer than {limit_s / 60:.0f} min and was ended; engine.yaml's time_limit_min sets the "
                "limit"
            )
        case base.Cancelled():
            return Exit.INTERRUPTED
    raise HarnessError("the job ended and left no exit code; run it again")


def _stamp(board: Path) -> tuple[int, int] | None:
    """What changes whenever the file is written."""
    try:
        found = board.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns
