"""The results of a population on disk: a line of JSON for each, written as it comes, so that a kill loses none.

Beside RESULTS, while it is not complete, lie RESULTS.test and RESULTS.screen: what candidates that wait for the others
came to in these stages, which they passed. Every line is on the disk before anything else happens. A line that a kill
cut off is removed.
"""

import contextlib
import itertools
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from harness.agents.judge import QUICK
from harness.agents.result import Conditions, Result
from harness.core.errors import HarnessError, UsageError, os_error_as
from harness.core.json_file import add_line, lines_of, locked_lines, open_lines, text_of, uncut
from harness.core.words import count_text

WHAT = "no result of this harness"  # what another line is


class Lines(dict[str, Result]):
    """Results by id, each a line of a file too, unless it has no path."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._fd: int | None = None

    def open(self) -> None:
        """Reads what is there. Raises as open_lines does."""
        assert self._path is not None
        self._fd, found = open_lines(Result, self._path, WHAT)
        self.update((one.id, one) for one in found)

    def add(self, result: Result) -> None:
        """The line is on the disk when this returns, or nothing of it when it raises HarnessError."""
        if self._fd is not None:
            assert self._path is not None
            add_line(self._fd, self._path, result)
        self[result.id] = result

    def close(self, remove: bool = False) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        if remove and self._path is not None:
            self._path.unlink(missing_ok=True)


class Journal:
    """The lines of one population, a context; without a path, in memory alone. `results` are final; `tested` and
    `screened` are of candidates that passed these stages."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.results, self.tested, self.screened = self._all = tuple(
            Lines(path and path.with_name(path.name + end)) for end in ("", ".test", ".screen")
        )
        self._lock = contextlib.ExitStack()

    def __enter__(self) -> "Journal":
        """Raises UsageError for files that cannot be written or locked, BadFileError for bad lines."""
        if self.path is None:
            return self
        try:
            self._lock.enter_context(locked_lines(self.path))
            for lines in self._all:
                lines.open()
        except HarnessError:
            self._close()
            raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close(is_complete=error is None)

    def check(self, sha256s: dict[str, str], meant: Conditions) -> None:
        """Raises UsageError where the lines are another population's: of other files under the same ids, judged on
        another suite or machine, or rewarded by another function."""
        for one in itertools.chain.from_iterable(lines.values() for lines in self._all):
            if sha256s.get(one.id, one.sha256) != one.sha256:
                raise UsageError(f"{self.path}: '{one.id}' is there with another text; name another --out")
            if (one.reward.function, one.reward.lower) != (meant.function, meant.lower):
                raise UsageError(f"{self.path}: its rewards are of other --reward or --lower; name another --out")
            has_failed_before = one.device == "cpu" != meant.device and one.verdict != "pass"  # and got to no GPU
            if not one.device or has_failed_before:
                continue
            if (one.problem, one.device, one.ranks) != (meant.problem, meant.device, meant.ranks):
                where = f"{one.problem} on {count_text(one.ranks, 'rank')} of {one.device}"
                raise UsageError(f"{self.path}: it has results of {where}; name another --out")
            if one.verdict == "pass" and one.suite != meant.suite and (one.ranked or one.suite != QUICK):
                raise UsageError(f"{self.path}: it has results of suite {one.suite}; name another --out")

    def _close(self, is_complete: bool = False) -> None:
        for lines in self._all:
            lines.close(remove=is_complete and lines is not self.results)
        self._lock.close()


def read_results(paths: Iterable[Path]) -> list[Result]:
    """All results in these files; a file that is named twice counts once, and a last line that is not whole, as of a
    population that is being judged, not at all. Raises UsageError where one cannot be read, BadFileError for a line
    that is no result."""
    found: list[Result] = []
    for path in dict.fromkeys(map(Path.resolve, paths)):
        with os_error_as(UsageError, f"{path}: cannot be read", "name a file of `eval-many`"):
            data = path.read_bytes()
        found += _results(uncut(Result, data) or data, path)
    return found


def results_so_far(path: Path) -> list[Result]:
    """The results of a population that is to be gone on with; none where it has not begun. Raises BadFileError."""
    return _results(uncut(Result, path.read_bytes()), path) if path.is_file() else []


def _results(data: bytes, path: Path) -> list[Result]:
    return lines_of(Result, text_of(data), str(path), WHAT)
