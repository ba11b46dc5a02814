"""One run of a folder's evaluator: what it told, and what that says of each case.

Knows the evaluator's side of the format (after gpu-mode/kernelbot src/libkernelbot/run_eval.py, read 2026-11): result
lines and exit codes. Differs from KernelBot's runner in one thing: what passes has passed in every case, not only by
`check: pass`.
"""

import functools
from dataclasses import dataclass
from typing import Literal

from harness.core.errors import BadFileError, UsageError
from harness.core.metrics import THEIRS
from harness.core.records import Crashed, Measured, NotRun, Outcome, Passed, Series, TimedOut, Wrong
from harness.core.summary import Summary
from harness.core.words import TAIL_CHARS, cut_line
from harness.gpumode.result_lines import key_of, number, profile_text
from harness.process.child import end_text

EvalMode = Literal["test", "benchmark", "leaderboard", "profile"]  # what eval.py is run in
Failed = Wrong | Crashed | TimedOut
REASON_CHARS = 300
UNDER_NCU = "its eval.py profiles only under ncu: --tool ncu"  # where its profile has no text
EXITS = {110: "a CUDA call failed", 111: "it was given no POPCORN_FD", 112: "it says that the submission is wrong"}


@dataclass(frozen=True, kw_only=True)
class EvaluatorRun:
    """A run of the program `name` on `count` cases. `code` is its exit code, None if it had not ended after `limit_s`;
    `told` has the last line of each key."""

    mode: EvalMode
    count: int
    limit_s: float
    code: int | None
    told: dict[str, str]
    stdout: str
    stderr: str
    name: str = "eval.py"

    @functools.cached_property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The outcome of each case. If the run did not pass, at least one of them has failed."""
        found = [self._outcome(f"{key_of(self.mode)}.{at}") for at in range(self.count)]
        unfinished = [at for at, outcome in enumerate(found) if isinstance(outcome, NotRun)]
        done = self.code == 0 and self.told.get("check") == "pass" and not unfinished
        if not done and not any(isinstance(outcome, Failed) for outcome in found):
            found[unfinished[0] if unfinished else -1] = self._ended()
        return tuple(found)

    @property
    def failure(self) -> Failed | None:
        """That of the first case that failed."""
        return next((outcome for outcome in self.outcomes if isinstance(outcome, Failed)), None)

    @property
    def last_line(self) -> str:
        """The last line of its errors: of a traceback, the exception."""
        return self.stderr.strip().rpartition("\n")[2]

    @property
    def profile(self) -> str:
        """The text of the profile of its only case."""
        return profile_text(self.told.get("benchmark.0.report", "")) or UNDER_NCU

    def ended_as(self, other: "EvaluatorRun") -> bool:
        """Whether the exit code, the result lines and the last line of the errors are the other run's."""
        return (self.code, self.told, self.last_line) == (other.code, other.told, other.last_line)

    def check_asked(self, problem: str) -> None:
        """Raises BadFileError or UsageError where eval.py says by its exit code that it was not asked as it wants."""
        said = self.stderr.strip()[-TAIL_CHARS:]
        if self.code == 113:
            raise BadFileError(f"{problem}: its eval.py does not take its cases (exit 113): {said}")
        if self.code == 2 and not self.told:
            raise UsageError(f"{problem}: its eval.py does not know the mode {self.mode} (exit 2): {said}")

    def _outcome(self, key: str) -> Outcome:
        """What the lines under that key say of a case."""
        status = self.told.get(f"{key}.status")
        if status == "fail":
            return Wrong(message=self.told.get(f"{key}.error") or "eval.py says that it fails, and not why")
        if self.mode == "test":
            return Passed() if status == "pass" else NotRun()
        if self.mode == "profile":  # some evaluators say nothing of a case that is right
            return Passed()
        mean, std, err, best, worst = (
            (number(self.told.get(f"{key}.{name}")) or 0.0) / 1000 for name in ("mean", "std", "err", "best", "worst")
        )
        if not mean:
            return NotRun()
        runs = int(number(self.told.get(f"{key}.runs")) or 1)
        summary = Summary(runs=runs, mean=mean, std=std, err=err, best=best or mean, worst=worst or mean)
        return Measured(series=(Series(metric=THEIRS, own=(), summary=summary),))

    def _ended(self) -> Failed:
        """How a run ended that neither passed nor says which case failed."""
        name, code, error = self.name, self.code, self.told.get("error", "")
        if code is None:
            return TimedOut(message=f"{name} {self.mode} had not finished after {self.limit_s:g} s", stacks=())
        if code in (0, 112) and error:
            return Wrong(message=f"{name}: {error}")
        if code == 0 and self.told.get("check") == "fail":
            return Wrong(message=f"{name} ended with the line `check: fail`, and does not say why")
        if code == 0:
            return Wrong(message=f"{name} ended without the line `check: pass`, or without a result of every case")
        if code == 112:
            return Wrong(message=f"{name} exited with 112: {EXITS[112]}")
        raised = cut_line(self.last_line, REASON_CHARS) if "Traceback (most" in self.stderr else ""
        why = error or EXITS.get(code, raised)
        return Crashed(
            rank=0, message=f"{name} {end_text(code)}{why and f': {why}'}", log_tail=self.stderr[-TAIL_CHARS:]
        )
