"""An engine that starts nothing: each job does what a script says. For tests of what works over an engine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.core import files
from harness.engine.base import Cancelled, Done, EngineError, Job, Lost, State, Ticket


@dataclass(frozen=True, kw_only=True)
class Play:
    """What a job does: each poll finds it in the next of `states`, and the last of them stays. `written` are the files
    that it leaves, by name."""

    states: tuple[State, ...]
    written: dict[str, str] = field(default_factory=dict)


class FakeEngine:
    """An Engine whose jobs are played as `script` says. `submitted` and `cancelled` are what it was asked to do."""

    def __init__(self, folder: Path, script: Callable[[Job], Play]) -> None:
        self._folder, self._script = folder, script
        self._left: dict[str, list[State]] = {}
        self.submitted: list[Job] = []
        self.cancelled: list[Ticket] = []
        folder.mkdir(parents=True, exist_ok=True)

    def submit(self, job: Job) -> Ticket:
        """See Engine."""
        if job.id in self._left:
            raise EngineError(f"{job.id}: there is a job of this name already; discard it first")
        ticket, play = job.ticket, self._script(job)
        self.submitted.append(job)
        self._left[job.id] = list(play.states)
        folder = self._folder / job.id
        folder.mkdir()
        for name, text in play.written.items():
            (folder / name).write_text(text, encoding="utf-8")
        return ticket

    def poll(self, ticket: Ticket) -> State:
        """See Engine."""
        left = self._left.get(ticket.id)
        if left is None:
            return Lost(why="there is no such job")
        return left.pop(0) if len(left) > 1 else left[0]

    def cancel(self, ticket: Ticket) -> None:
        """See Engine."""
        left = self._left.get(ticket.id)
        if left is not None and not isinstance(left[0], Done | Lost):
            self.cancelled.append(ticket)
            left[:] = [Done(end=Cancelled(), has_result=False)]

    def fetch(self, ticket: Ticket, into: Path) -> Path:
        """See Engine."""
        if not isinstance(self.poll(ticket), Done):
            raise EngineError(f"{ticket.id}: this job is not done, there is nothing to fetch")
        return self._folder / ticket.id

    def printed(self, ticket: Ticket, name: str, start: int) -> bytes:
        """See Engine."""
        return files.tail_from(self._folder / ticket.id / name, start)

    def discard(self, ticket: Ticket) -> None:
        """See Engine."""
        self.cancel(ticket)
        self._left.pop(ticket.id, None)
        files.remove(self._folder / ticket.id)

    def tickets(self) -> Sequence[Ticket]:
        """See Engine."""
        return [Ticket(id=name) for name in self._left]
