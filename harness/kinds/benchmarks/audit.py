"""Audits problems of other benchmarks: which generic cheats pass a problem's own tolerance, and what our verdict says.

A process of its own tries them (rank_audit); nothing is timed. WORDS says what is weak where a cheat passes.
"""

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.checkout import ROOT
from harness.core.errors import HarnessError
from harness.core.files import scratch, write_files
from harness.core.json_file import add_line, locked_lines, open_lines
from harness.core.records import Params, param_text
from harness.core.words import cut_line
from harness.kinds.benchmarks.problem import SMALL, BenchmarkProblem, batch_of
from harness.problems.problem import OFFICIAL, Problem
from harness.process.child import end_text, run_child, search_path

PROGRAM = "harness.kinds.benchmarks.rank_audit"
WHY_CHARS = 160
ERROR = re.compile(r"(\[rank\d+\]: )?[\w.]*(Error|Exception|Exit|Interrupt)\b")
CALLS = 60.0  # of the reference that a problem's limit is to be enough for
# What is weak about a problem whose own tolerance takes that cheat's result; the first that applies is named.
WORDS = {
    "zeros": "zeros pass",
    "stale": "the result is the same for every input",
    "constant": "a constant passes",
    "input": "an input passes as the result",
}


@dataclass(frozen=True, kw_only=True)
class CheatTried:
    """What became of one cheat: whether it passes the benchmark's own tolerance, and our strict verdict."""

    own: bool
    strict: bool


@dataclass(frozen=True, kw_only=True)
class Audit:
    """One problem. `smaller`: constants that were made smaller, as text; `skipped`: why nothing was tried; `refused`:
    an evaluation refuses the problem. `cheats` has None for one that has no result here."""

    problem: str
    cheats: dict[str, CheatTried | None]
    smaller: str = ""
    skipped: str = ""
    refused: bool = False
    seconds: float = 0.0

    @property
    def own(self) -> tuple[str, ...]:
        """The cheats that pass the benchmark's own tolerance."""
        return tuple(name for name, one in self.cheats.items() if one and one.own)

    @property
    def strict(self) -> tuple[str, ...]:
        """Those that pass our verdict."""
        return tuple(name for name, one in self.cheats.items() if one and one.strict)

    @property
    def weakness(self) -> str:
        """What is weak about the problem, in words; "" where nothing is known to be."""
        return next((words for name, words in WORDS.items() if name in self.own), "")


def audited(problem: Problem, limit_s: float, most_bytes: int) -> Audit:
    """Tries the cheats for at most `limit_s` seconds, on a batch whose inputs and results take at most `most_bytes`."""
    began = time.monotonic()
    try:
        problem.check_runnable()
        found = _tried(problem, limit_s, most_bytes)
    except HarnessError as error:
        return Audit(problem=problem.name, cheats={}, skipped=str(error))
    if isinstance(found, str):
        return Audit(problem=problem.name, cheats={}, skipped=found, seconds=time.monotonic() - began)
    params = problem.suite(OFFICIAL).benchmarks[0].params
    return Audit(
        problem=problem.name,
        cheats={name: CheatTried(**one) if one else None for name, one in found["cheats"].items()},
        smaller=_smaller(params, found["params"]),
        refused=bool(found["refused"]),
        seconds=time.monotonic() - began,
    )


def audits(problems: Sequence[Problem], limit_s: float, most_bytes: int, out: Path | None) -> Iterator[Audit]:
    """One after the other. What is in `out` is not tried again; what is tried is written there at once, a line of JSON
    each. Raises BadFileError for lines that are no audits, UsageError where `out` cannot be written or is being."""
    with contextlib.ExitStack() as stack:
        fd, known = stack.enter_context(_kept(out)) if out else (None, {})
        for problem in problems:
            found = known.get(problem.name)
            if found is None and isinstance(problem, BenchmarkProblem):
                found = audited(problem, limit_s, most_bytes)
                if out and fd is not None:
                    add_line(fd, out, found)
            yield found or Audit(problem=problem.name, cheats={}, skipped="it is no problem of another benchmark")


@contextlib.contextmanager
def _kept(out: Path) -> Iterator[tuple[int, dict[str, Audit]]]:
    """The file, open and locked, and what is in it."""
    with locked_lines(out):
        fd, found = open_lines(Audit, out, "no audit")
        try:
            yield fd, {one.problem: one for one in found}
        finally:
            os.close(fd)


def _tried(problem: Problem, limit_s: float, most_bytes: int) -> dict[str, Any] | str:
    """What the process found, or why it found nothing."""
    case = problem.suite(OFFICIAL).benchmarks[0]
    order = {
        "world_size": case.world_size,
        "grouped": problem.multi_gpu,
        "cuda_is_cpu": isinstance(problem, BenchmarkProblem) and problem.has_cuda,
        "params": case.params,
        "seed": case.seed,
        "batch": batch_of(case.params) if SMALL in problem.suites else "",
        "most_bytes": most_bytes,
        "most_seconds": limit_s / CALLS,
    }
    environ = {**os.environ, "PATH": search_path(), "PYTHONPATH": str(ROOT)}
    with scratch("kernel-eval-") as folder:
        write_files(folder, problem.staged())
        environ["TMPDIR"] = str(folder)  # where torch and the problem's file leave what they like
        ended = run_child([sys.executable, "-m", PROGRAM, json.dumps(order)], folder, environ, limit_s)
    if ended.code is None:
        return f"takes more than {limit_s:g} s here"
    if ended.code < 0:
        return f"{end_text(ended.code)}, as the kernel does where memory runs out"
    try:
        found: dict[str, Any] = json.loads(ended.result)
    except ValueError:
        lines = [line for line in ended.stderr.splitlines() if ERROR.match(line)] or [f"it exited with {ended.code}"]
        return cut_line(lines[-1].strip(), WHY_CHARS)
    return found


def _smaller(params: Params, used: Mapping[str, Any]) -> str:
    changed = [name for name, value in params.items() if not isinstance(value, tuple) and used[name] != value]
    return ", ".join(f"{name} {param_text(params[name])} -> {used[name]}" for name in changed)
