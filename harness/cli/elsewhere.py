"""Runs a whole command as a job of another engine, and shows what it prints as if it ran here.

The job runs `python -m harness` with the same arguments in the same folder, which the other machine sees too. It
records what it finds itself, so that the board has the machine class and the load of the machine that measured.
"""

import os
import secrets
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from harness.core.checkout import Checkout
from harness.core.errors import Exit, HarnessError
from harness.engine import registry
from harness.engine.base import (
    ERR,
    OUT,
    Cancelled,
    Done,
    Engine,
    EngineError,
    Exited,
    Job,
    Lost,
    Overdue,
    State,
    Ticket,
    Waiting,
)

LOOK_S = 0.2
USE = "commands"  # the folder of these jobs


def run(engine_name: str, arguments: Sequence[str], checkout: Checkout) -> int:
    """The command's exit code. A job that is lost runs once more, unless it may have recorded something. Raises
    EngineError where the engine cannot run it."""
    limit_s = registry.slurm_settings(checkout.root).time_limit_min * 60.0
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    engine = registry.make(
        engine_name, checkout.root / ".cache" / "jobs" / USE, Path.cwd(), environ, checkout.root, USE
    )
    command = (sys.executable, "-m", "harness", *arguments)
    board = checkout.root / "leaderboard.yaml"
    for is_last in (False, True):
        before = _stamp(board)
        job = Job(id=f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}", command=command, deadline_s=limit_s)
        state = _followed(engine, job)
        if not isinstance(state, Lost):
            return _code(state, limit_s)
        if is_last or _stamp(board) != before:
            changed = "" if is_last else "; the leaderboard has changed since, so it is not run again by itself"
            raise EngineError(f"the job was lost: {state.why}{changed}. See `sinfo` for the nodes, and run it again")
        print(f"the job was lost, and runs once more: {state.why}", file=sys.stderr)
    raise AssertionError("unreachable")


def _followed(engine: Engine, job: Job) -> Done | Lost:
    """How the job ended; what it printed is printed by then, and the engine keeps nothing of it."""
    ticket = engine.submit(job)
    shown = {OUT: 0, ERR: 0}
    told: State | None = None
    try:
        while True:
            state = engine.poll(ticket)
            if isinstance(state, Waiting) and told is None:
                print("waiting in the cluster's queue", file=sys.stderr)
                told = state
            if not isinstance(state, Waiting):
                _show(engine, ticket, shown)
            if isinstance(state, Done | Lost):
                return state
            time.sleep(LOOK_S)
    finally:  # after Ctrl-C too
        engine.discard(ticket)


def _show(engine: Engine, ticket: Ticket, shown: dict[str, int]) -> None:
    """Prints what is new."""
    for name, stream in ((ERR, sys.stderr), (OUT, sys.stdout)):
        new = engine.printed(ticket, name, shown[name])
        shown[name] += len(new)
        stream.write(new.decode(errors="replace"))
        stream.flush()


def _code(state: Done, limit_s: float) -> int:
    match state.end:
        case Exited(code=code) if code >= 0:
            return code
        case Exited(code=code):
            raise EngineError(f"the job was ended from outside, by signal {-code}; `scontrol show job` may say by whom")
        case Overdue():
            print(
                f"error: the job took longer than {limit_s / 60:.0f} min and was ended; engine.yaml's time_limit_min "
                "sets the limit",
                file=sys.stderr,
            )
            return Exit.TIMED_OUT
        case Cancelled():
            return Exit.INTERRUPTED
    raise HarnessError("the job ended unseen; run it again")


def _stamp(board: Path) -> tuple[int, int] | None:
    """What changes whenever the file is written."""
    try:
        found = board.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns
