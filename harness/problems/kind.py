"""What the parts of an evaluation know of each other."""

from typing import Protocol

from harness.core.records import Crashed, HarnessError, Raised, TimedOut


class Progress(Protocol):
    """Who is told how far it is; harness.report.progress has it for terminals and pipes."""

    def phase(self, name: str) -> None: ...
    def case(self, label: str, index: int, count: int) -> None: ...


class OpponentFailed(HarnessError):
    """What the submission was to be timed against (plan.opponent) failed itself, at a case."""

    def __init__(self, case: str, outcome: Raised | Crashed | TimedOut) -> None:
        super().__init__(outcome.message)
        self.case, self.outcome = case, outcome
