"""What kinds and sessions answer where there is nothing of their own to say. A wing's classes begin with these."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from harness.core.checkout import Checkout
from harness.core.records import Bound, Case, Failure, Measured, Passed, Profile, Submission
from harness.kinds import staging
from harness.kinds.kind import Account, Phase, Plan, Progress
from harness.problems import shape_file
from harness.problems.problem import Problem
from harness.problems.submission import read_submission


class PlainKind:
    """A kind whose problems are those of shape files that name it."""

    checkers: tuple[str, ...] = ()
    takes_tools = False
    is_pooled = False

    def claims(self, place: Path) -> bool:
        """None by itself: kind `op` reads folders of a checkout, and the shape file names the kind."""
        return False

    def read(self, place: Path, checkout: Checkout) -> Problem:
        """The problem of that name."""
        return shape_file.find(place.name, checkout)

    def submission(self, path: Path | None, problem: Problem, checkout: Checkout) -> Submission:
        """A file, with its local modules."""
        return read_submission(path or problem.default_submission(), checkout.root, problem.lang)


class PlainSession:
    """A session that prepares and keeps nothing. `deadline` is of time.monotonic(), of the phase that is open."""

    def __init__(self, plan: Plan, progress: Progress) -> None:
        self.plan, self.progress = plan, progress
        self.phases_s: dict[str, float] = {}
        self.logs: dict[str, str] = {}
        self.deadline = 0.0

    def prepare(self) -> Passed | Failure:
        """There is nothing to prepare."""
        return Passed()

    @contextlib.contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Sets the deadline, and counts the seconds."""
        self.progress.phase(phase.name)
        began = time.monotonic()
        self.deadline = began + phase.limit_s
        try:
            yield
        finally:
            self.phases_s[phase.name] = time.monotonic() - began

    def measure(self, case: Case) -> Measured | Failure:
        """Never called: the kind's plans measure nothing."""
        raise AssertionError("no phase of the plan measures")

    def profile(self, case: Case) -> Profile | Failure:
        """Never called: the kind's plans refuse mode profile."""
        raise AssertionError("no phase of the plan profiles")

    def close(self) -> Passed | Failure:
        """Nothing runs between two cases."""
        return Passed()

    def bound(self, case: Case) -> Bound | None:
        return None

    def logs_of(self, case: Case) -> tuple[str, ...]:
        """No logs."""
        return ()

    def account(self) -> Account:
        """Seconds of phases, this machine, logs."""
        return staging.account(self.plan, self.phases_s, self.logs)
