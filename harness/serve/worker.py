"""Runs what the queue holds, one evaluation at a time: each is a process of its own, which imports what it evaluates.

Knows how an evaluation is started, watched and ended; nothing of HTTP, and of its result only the file that it writes.
The evaluations of one machine share its devices, so there is one worker. An evaluation that the server did not live to
see the end of is taken up again: its result is used where it was written, else it is run once more (store.recover).
"""

import contextlib
import json
import os
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.core.files import LockedError, locked, read_text
from harness.core.words import clean, clean_line
from harness.machine.processes import end_group, end_tree
from harness.serve.guard import TOKEN_VARIABLE
from harness.serve.results import ended
from harness.serve.store import Ended, Row, Store

CHILD = Path(__file__).with_name("child.py")
LOCK = "devices.lock"
IDLE_S = 5.0  # looks at the queue at least that often
POLL_S = 0.05
END_S = 10.0  # from asking an evaluation to end until it is killed
TAIL_CHARS = 2000
LINE = re.compile(r"\[ *[\d.]+ s\] +(?P<text>.*)")  # ProgressLine, where there is no terminal
PLACE = re.compile(r"(?P<index>\d+)/(?P<count>\d+)\b")
FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")
Command = Callable[[Row, Path, Path], Sequence[str]]  # the submission, its file, the file for its JSON


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far the running evaluation is: its phase and case as `eval` tells them, and when it began (monotonic)."""

    id: int
    phase: str = "start"
    case: str = ""
    began_s: float = 0.0

    def told(self, line: str) -> "Progress":
        """The progress after one more line of what `eval` prints while it runs."""
        found = LINE.match(line)
        if found is None:
            return self
        text = " ".join(clean_line(found["text"]).split())
        if PLACE.match(text):
            return replace(self, case=text)
        return replace(self, phase=text.partition(",")[0], case="")  # behind the comma is about how long it will take

    @property
    def text(self) -> str:
        """Both in a line."""
        return f"{self.phase} {self.case}".strip()


class Worker(threading.Thread):
    """`folder` is the queue's, for files of evaluations; `deadline_s` says how long one may take in all; they run
    in the checkout at `root`."""

    def __init__(
        self, store: Store, folder: Path, command: Command, deadline_s: Callable[[Row], float], root: Path
    ) -> None:
        super().__init__(name="evaluations", daemon=True)
        self._store, self._folder = store, folder
        self._command, self._deadline_s, self._root = command, deadline_s, root
        self._wake, self._ending = threading.Event(), threading.Event()
        self.progress: Progress | None = None
        (folder / "work").mkdir(parents=True, exist_ok=True)
        (folder / LOCK).touch(0o600)

    def wake(self) -> None:
        """There may be something to do."""
        self._wake.set()

    def stop(self) -> None:
        """Ends a running evaluation, which keeps its place in the queue, and the thread."""
        self._ending.set()
        self._wake.set()
        if self.is_alive():
            self.join(3 * END_S)

    def run(self) -> None:
        """The thread."""
        recovered = False
        while not self._ending.is_set():
            try:
                if not recovered:
                    self._recover()
                    recovered = True
                self._wake.clear()
                if not self._next():
                    self._wake.wait(IDLE_S)
            except Exception as error:  # a full disk, for one, must not end the queue
                recovered = False  # one may still stand there as running
                print(f"the queue stands still: {type(error).__name__}: {error}", file=sys.stderr)
                self._ending.wait(IDLE_S)

    def _next(self) -> bool:
        """Evaluates the next submission; False where none waits."""
        row = self._store.claim()
        if row is None:
            return False
        try:
            self._evaluate(row)
        except sqlite3.Error:
            raise
        except Exception as error:  # a full disk; a result that is none
            told = f"the server could not run it: {type(error).__name__}: {error}"
            self._store.finish(row.id, row.attempt, Ended(state="failed", error=told))
            print(f"submission {row.id}: {told}", file=sys.stderr)
        finally:
            self.progress = None
        return True

    # ---- one evaluation

    def _evaluate(self, row: Row) -> None:
        began_s = time.monotonic()
        self.progress = Progress(id=row.id, began_s=began_s)
        source = self.source(row)
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(self._store.code(row.id), encoding="utf-8", newline="")
        report, printed = self._file(row, "json"), self._file(row, "out")
        command = self._command(row, source, report)
        guarded = [
            sys.executable,
            "-I",
            "-S",
            str(CHILD),
            str(self._folder / LOCK),
            str(os.getpid()),
            *command,
        ]
        environment = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
        environment |= {"NO_COLOR": "1", "COLUMNS": "100"}
        with printed.open("wb") as out:
            process = subprocess.Popen(
                guarded,
                cwd=self._root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        told: list[str] = []
        reader = threading.Thread(target=self._read, args=(process, told), daemon=True)
        reader.start()
        why = self._watch(row, process, began_s)
        end_group(process.pid)  # what it may have left
        reader.join(END_S)
        if why in ("stopped", "late") and _json(report) is not None:
            why = ""  # it had come to its end, and was recorded, before it was ended
        if why == "stopped":
            self._store.release(row.id, row.attempt)
        elif why == "late":
            error = f"not done after {self._deadline_s(row):.0f} s, at {self.progress.text}: it was ended"
            self._store.finish(row.id, row.attempt, Ended(state="timed_out", error=error))
        elif why == "":
            tail = clean("".join(told))[-TAIL_CHARS:]
            self._store.finish(row.id, row.attempt, self._ended(row, process.returncode, tail))
        for file in (report, printed, source):
            file.unlink(missing_ok=True)

    def _watch(self, row: Row, process: "subprocess.Popen[bytes]", began_s: float) -> str:
        """Waits for the end, and says who brought it about: "" the evaluation itself."""
        deadline_s, looked_s = began_s + self._deadline_s(row), began_s
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)
                return ""
            now_s, why = time.monotonic(), ""
            if self._ending.is_set():
                why = "stopped"
            elif now_s > deadline_s:
                why = "late"
            elif now_s - looked_s > 0.25:
                looked_s = now_s
                why = "" if self._store.runs_on(row.id, row.attempt) else "deleted"
            if why:
                _end(process)
                return why

    def _read(self, process: "subprocess.Popen[bytes]", told: list[str]) -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            for data in lines:
                line = data.decode(errors="replace")
                told.append(line)
                del told[:-100]
                if self.progress is not None:
                    self.progress = self.progress.told(line)

    def _ended(self, row: Row, code: int, tail: str) -> Ended:
        found = _json(self._file(row, "json"))
        if found is None:
            last = tail.strip().splitlines()[-1:] or ["it said nothing"]
            return Ended(state="failed", error=f"the evaluation ended with {code} and without a result: {last[0]}")
        out = self._file(row, "out")
        printed = out.read_text(encoding="utf-8", errors="replace") if out.exists() else ""
        return ended(row, found, printed, f"python -m harness eval {row.problem} --mode {row.mode}")

    # ---- after a server that died

    def _recover(self) -> None:
        rows = self._store.running()
        while rows and not self._ending.is_set():
            with contextlib.suppress(LockedError):  # the evaluation has been told to end and is ending
                with locked(self._folder / LOCK, wait_s=POLL_S):
                    for row in rows:
                        self._take_up(row)
                return

    def _take_up(self, row: Row) -> None:
        try:
            ended = self._ended(row, 0, "") if _json(self._file(row, "json")) is not None else None
        except Exception:  # not a result
            ended = None
        if ended is not None:
            self._store.finish(row.id, row.attempt, ended)
        else:
            self._store.recover(row.id, row.attempt)
        for suffix in ("json", "out"):
            self._file(row, suffix).unlink(missing_ok=True)

    def source(self, row: Row) -> Path:
        """Where the submission lies while it is evaluated: an entry of the leaderboard goes by author and file, so the
        same user's same file is the same place."""
        name = FILE_NAME.sub("_", row.file_name).lstrip(".")[-64:]
        name = name if name.endswith(".py") and len(name) > 3 else "submission.py"
        return self._folder / "sources" / row.user / name

    def _file(self, row: Row, suffix: str) -> Path:
        return self._folder / "work" / f"{row.id}-{row.attempt}.{suffix}"


def _json(path: Path) -> dict[str, Any] | None:
    """The object in the file; None where there is none, or not all of it."""
    try:
        found = json.loads(read_text(path))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Asks it to end, which ends its ranks in order; kills it and whatever it has started where it does not."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
        return
    end_tree(process.pid)
    process.wait()
