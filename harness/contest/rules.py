"""The rules of a KernelBot competition: which problems it has, and until when.

Reads a competition's file (`name`, `deadline`, `description`, `problems` with `directory`, `name`, `deadline`, `gpus`).
A problem whose name this checkout has is evaluated as the checkout's, by its strict checker; any other is the folder
that the file names. With --folders all problems are such folders.

Deadlines are read as KernelBot reads them: a date alone means its first second. The file does not name a time zone;
they are taken as UTC. A deadline refuses nothing here: a later evaluation is marked late.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from harness.board.places import Place
from harness.core.checkout import Checkout
from harness.core.decode import DecodeError
from harness.core.errors import Exit, HarnessError, UsageError
from harness.core.records import EvalReport
from harness.core.yaml_file import read_yaml
from harness.judging import verdict
from harness.kinds.registry import find
from harness.problems.problem import Problem

FORMATS = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S")


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A problem of a competition. `directory` is relative to the competition's file, `name` the leaderboard's."""

    directory: str
    name: str
    deadline: str = ""
    gpus: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        closing(self.deadline)


@dataclass(frozen=True, kw_only=True)
class Competition:
    """A competition's file. A problem may close before the whole does, which ends with `deadline`; an empty text is no
    deadline."""

    name: str
    problems: tuple[Listed, ...]
    deadline: str = ""
    description: str = ""

    def __post_init__(self) -> None:
        closing(self.deadline)
        names = [listed.name for listed in self.problems]
        if not names:
            raise DecodeError(".problems", "the list is empty; name at least one problem")
        if repeated := [name for index, name in enumerate(names) if name in names[:index]]:
            raise DecodeError(".problems", f"'{repeated[0]}' appears twice; give every problem a name of its own")

    def closes(self, listed: Listed) -> datetime | None:
        """When the problem closes: at its own deadline, or else at the competition's."""
        return closing(listed.deadline) or closing(self.deadline)


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """The evaluation of one problem. `error` says why there is no report."""

    listed: Listed
    closes: datetime | None
    submission: str
    report: EvalReport | None = None
    place: Place | None = None
    error: HarnessError | None = None

    @property
    def late(self) -> bool:
        """Whether the evaluation began after the deadline."""
        return self.report is not None and is_late(self.report.started_at, self.closes)

    @property
    def exit_code(self) -> Exit:
        """The exit code that `eval` of this problem alone would have."""
        if self.error is not None:
            return self.error.exit_code
        assert self.report is not None
        return verdict.exit_code(self.report)


def read(path: Path) -> Competition:
    """The competition file; BadFileError with the place where it does not fit."""
    return read_yaml(Competition, path, path.resolve().parent, prepare=_with_texts)


def closing(deadline: str) -> datetime | None:
    """The moment that a deadline's text means, in UTC; None for an empty one. DecodeError for any other text."""
    if not deadline.strip():
        return None
    for form in FORMATS:
        try:
            return datetime.strptime(deadline.strip(), form).replace(tzinfo=UTC)
        except ValueError:
            continue
    raise DecodeError(".deadline", f"expected YYYY-MM-DD or YYYY-MM-DD HH:MM, found {deadline!r}")


def is_late(moment: str, closes: datetime | None) -> bool:
    """Whether an ISO 8601 moment lies behind the deadline."""
    return closes is not None and datetime.fromisoformat(moment) > closes


def problem_of(listed: Listed, file: Path, folders: bool, checkout: Checkout) -> Problem:
    """The checkout's problem of that name, or else the folder that the file names. Raises UsageError or BadFileError
    where there is neither, or it is broken."""
    folder = file.resolve().parent / listed.directory
    if not folders:
        try:
            return find(listed.name, checkout)
        except UsageError:  # no problem of this checkout has that name
            if not folder.is_dir():
                raise
    return find(str(folder), checkout)


def _with_texts(value: object) -> object:
    """The value with dates as texts: YAML takes a deadline without quotes for a date."""
    if isinstance(value, datetime):
        return value.strftime(FORMATS[-1])
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        return {key: _with_texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_texts(item) for item in value]
    return value
