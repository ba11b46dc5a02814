"""What an evaluation came to, of the files that its job left: a result, or the reason that there is none."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from harness.core import files
from harness.core.words import clean
from harness.engine.base import ERR, OUT, RESULT, Exited, JobDone, Overdue
from harness.serve.results import ended
from harness.serve.store import AttemptEnded, Row

TAIL_CHARS = 2000


def of_job(
    row: Row, state: JobDone, fetched: Callable[[], Path], limit_s: Callable[[Row], float], stage: str
) -> AttemptEnded:
    """What the end of the evaluation's job comes to, where that was not cancelled; `stage` is how far it was. Raises
    whatever a result of another form causes, and what `fetched`, for the folder with its files, raises."""
    if state.has_result:
        return _of_result(row, fetched())
    if isinstance(state.end, Overdue):
        return AttemptEnded(state="timed_out", error=f"timed out after {limit_s(row):.0f} s, at {stage}")
    return _without_result(state, fetched())


def not_run(row: Row, error: Exception) -> AttemptEnded:
    """The end of a submission of which the server cannot say more; told on standard error too."""
    why = f"the server could not run it: {type(error).__name__}: {error}"
    print(f"submission {row.id}: {why}", file=sys.stderr)
    return AttemptEnded(state="failed", error=why)


def _of_result(row: Row, folder: Path) -> AttemptEnded:
    out = folder / OUT
    printed = files.read_bytes(out).decode(errors="replace") if out.exists() else ""
    command = f"python -m harness eval {row.problem} --mode {row.mode}"
    return ended(row, json.loads(files.read_text(folder / RESULT)), printed, command)


def _without_result(state: JobDone, folder: Path) -> AttemptEnded:
    """With the last line that it printed."""
    code = f"with exit code {state.end.code} " if isinstance(state.end, Exited) else ""
    tail = clean(files.read_bytes(folder / ERR).decode(errors="replace"))[-TAIL_CHARS:]
    last = tail.strip().splitlines()[-1:] or ["it printed no error"]
    return AttemptEnded(state="failed", error=f"the evaluation ended {code}and without a result: {last[0]}")
