"""What engines share that keep a folder for each job, named after it, where this machine can read it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.core import files
from harness.core.json_file import file_if_any
from harness.engine.base import EVENTS, NAME, RESULT, EngineError, Job, JobDone, State, Ticket

EVENT_CHARS = 1 << 20  # of a job's events that are read


class JobFolders:
    """The half of an Engine that is files; what starts, watches and ends jobs is a subclass's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def poll(self, ticket: Ticket) -> State:
        """See Engine."""
        raise NotImplementedError

    def fetch(self, ticket: Ticket, into: Path) -> Path:
        """See Engine; the job's own folder."""
        folder = self._of(ticket)
        if not isinstance(self.poll(ticket), JobDone):
            raise EngineError(f"{folder}: this job is not done, there is nothing to fetch")
        return folder

    def printed(self, ticket: Ticket, name: str, start: int) -> bytes:
        return files.tail_from(self._of(ticket) / name, start)

    def tickets(self) -> Sequence[Ticket]:
        folders = [one.name for one in self._folder.iterdir() if one.is_dir() and NAME.fullmatch(one.name)]
        return [Ticket(id=name) for name in sorted(folders)]

    def _of(self, ticket: Ticket) -> Path:
        return self._folder / ticket.id

    def _made(self, job: Job) -> Path:
        """A new folder for the job. Raises ValueError for a name that cannot be one, EngineError for a taken one."""
        folder = self._of(job.ticket)
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            raise EngineError(f"{folder}: there is a job of this name already; discard it first") from None
        return folder

    def _events(self, ticket: Ticket) -> tuple[str, ...]:
        """The lines of its events that are complete."""
        try:
            with files.open_ordinary(self._of(ticket) / EVENTS) as file:
                text = file.read(EVENT_CHARS).decode(errors="replace")
        except OSError:
            return ()
        return tuple(text.split("\n")[:-1])

    def _has_result(self, ticket: Ticket) -> bool:
        """Whether it left a JSON object: a result of which only a part was written does not count."""
        return file_if_any(dict[str, Any], self._of(ticket) / RESULT) is not None
