"""An engine that starts nothing: each job does what a script says. For tests of what works over an engine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.core import files
from harness.engine.base import Cancelled, Job, JobDone, Lost, State, Ticket
from harness.engine.folders import JobFolders


@dataclass(frozen=True, kw_only=True)
class Play:
    """The script of a fake job: each poll finds it in the next of `states`, and the last of them stays. `written` are
    the files that it leaves, by name."""

    states: tuple[State, ...]
    written: dict[str, str] = field(default_factory=dict)


class FakeEngine(JobFolders):
    """An Engine whose jobs are played as `script` says. `submitted` and `cancelled` are what it was asked to do."""

    def __init__(self, folder: Path, script: Callable[[Job], Play], at_once: int = 1, outlived: bool = False) -> None:
        super().__init__(folder)
        self.at_once, self.outlived = at_once, outlived
        self._script = script
        self._left: dict[str, list[State]] = {}
        self.submitted: list[Job] = []
        self.cancelled: list[Ticket] = []

    def submit(self, job: Job) -> Ticket:
        folder, play = self._made(job), self._script(job)
        self.submitted.append(job)
        self._left[job.id] = list(play.states)
        for name, text in play.written.items():
            (folder / name).write_text(text, encoding="utf-8")
        return job.ticket

    def poll(self, ticket: Ticket) -> State:
        left = self._left.get(ticket.id)
        if left is None:
            return Lost(why="there is no such job")
        return left.pop(0) if len(left) > 1 else left[0]

    def ends(self, ticket: Ticket, state: State) -> None:
        """From now on every poll finds the job in that state."""
        self._left[ticket.id] = [state]

    def cancel(self, ticket: Ticket) -> None:
        left = self._left.get(ticket.id)
        if left is not None and not isinstance(left[0], JobDone | Lost):
            self.cancelled.append(ticket)
            self.ends(ticket, JobDone(end=Cancelled(), has_result=False))

    def discard(self, ticket: Ticket) -> None:
        self.cancel(ticket)
        self._left.pop(ticket.id, None)
        files.remove(self._of(ticket))

    def tickets(self) -> Sequence[Ticket]:
        return [Ticket(id=name) for name in self._left]
