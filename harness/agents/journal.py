"""The results of a population on disk: a line of JSON for each, written as it comes, so that a kill loses none.

Beside RESULTS, while it is not complete, lie RESULTS.test and RESULTS.screen: what candidates that wait for the others
came to in these stages, which they passed. Every line is on the disk before anything else happens. A line that a kill
cut off is removed.
"""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from harness.agents.judge import QUICK
from harness.agents.result import Conditions, Result
from harness.core.errors import BadFileError, HarnessError, UsageError, os_error_as
from harness.core.files import append, locked_alone
from harness.core.json_file import line_of, lines_of


class Journal:
    """The lines of one population, a context. `results` is what is there, by id; `tested` and `screened` what passed
    these stages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results: dict[str, Result] = {}
        self.tested: dict[str, Result] = {}
        self.screened: dict[str, Result] = {}
        self._beside = [path.with_name(f"{path.name}.{stage}") for stage in ("test", "screen")]
        self._files: list[int] = []
        self._lock = contextlib.ExitStack()

    def __enter__(self) -> "Journal":
        """Raises UsageError for files that cannot be written or locked, BadFileError for bad lines."""
        try:
            self.path.touch()  # with the user's rights, which a lock file has not
            self._lock.enter_context(locked_alone(self.path))
            every = (self.results, self.tested, self.screened)
            for place, lines in zip((self.path, *self._beside), every, strict=True):
                self._files.append(os.open(place, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666))
                lines.update((one.id, one) for one in _read(self._files[-1], place))
        except BlockingIOError:
            raise UsageError(f"--out {self.path}: another process writes it; wait for it, or name another") from None
        except OSError as error:
            self._close()
            raise UsageError(f"--out {self.path}: cannot be written: {error.strerror}; name another file") from None
        except BadFileError:
            self._close()
            raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()
        if error is None:
            for place in self._beside:  # complete
                place.unlink(missing_ok=True)

    def add(self, result: Result) -> None:
        """Adds a result, which is final. Raises HarnessError where the disk is full."""
        _append(self._files[0], self.path, result)
        self.results[result.id] = result

    def add_tested(self, result: Result) -> None:
        _append(self._files[1], self._beside[0], result)
        self.tested[result.id] = result

    def add_screened(self, result: Result) -> None:
        _append(self._files[2], self._beside[1], result)
        self.screened[result.id] = result

    def check(self, sha256s: dict[str, str], meant: Conditions) -> None:
        """Raises UsageError where the lines are another population's: of other files under the same ids, judged on
        another suite or machine, or rewarded by another function."""
        for one in (*self.results.values(), *self.tested.values(), *self.screened.values()):
            if sha256s.get(one.id, one.sha256) != one.sha256:
                raise UsageError(f"{self.path}: '{one.id}' is there with another text; name another --out")
            if (one.reward.function, one.reward.lower) != (meant.function, meant.lower):
                raise UsageError(f"{self.path}: its rewards are of other --reward or --lower; name another --out")
            passed = one.verdict == "pass"  # what fails does so on CPU ranks before any GPU, say
            is_elsewhere = passed and (one.device, one.ranks) != (meant.device, meant.ranks)
            if one.problem != meant.problem or is_elsewhere:
                where = f"{one.problem} on {one.ranks} ranks of {one.device}"
                raise UsageError(f"{self.path}: it has results of {where}; name another --out")
            if passed and one.suite != meant.suite and (one.ranked or one.suite != QUICK):
                raise UsageError(f"{self.path}: it has results of suite {one.suite}; name another --out")

    def _close(self) -> None:
        for fd in self._files:
            os.close(fd)
        self._files.clear()
        self._lock.close()


class Nowhere(Journal):
    """Keeps what a journal does, in memory alone."""

    def __init__(self) -> None:
        self.results, self.tested, self.screened = {}, {}, {}

    def add(self, result: Result) -> None:
        self.results[result.id] = result

    def add_tested(self, result: Result) -> None:
        self.tested[result.id] = result

    def add_screened(self, result: Result) -> None:
        self.screened[result.id] = result


def read_results(paths: Iterable[Path]) -> list[Result]:
    """All results in these files; a file that is named twice counts once, and a last line that is not whole, as of a
    population that is being judged, not at all. Raises UsageError where one cannot be read, BadFileError for a line
    that is no result."""
    found: list[Result] = []
    for path in dict.fromkeys(map(Path.resolve, paths)):
        with os_error_as(UsageError, f"{path}: cannot be read", "name a file of `eval-many`"):
            data = path.read_bytes()
        found += _results(data[: data.rfind(b"\n") + 1] or data, path)
    return found


def _append(fd: int, path: Path, result: Result) -> None:
    """The line is on the disk when this returns, or nothing of it when it raises HarnessError."""
    with os_error_as(HarnessError, f"{path}: cannot be written", "make room, and the same command goes on"):
        append(fd, line_of(result).encode())


def _read(fd: int, path: Path) -> list[Result]:
    data = b""
    while more := os.read(fd, 1 << 20):
        data += more
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        os.ftruncate(fd, len(whole))
    return _results(whole, path)


def _results(data: bytes, path: Path) -> list[Result]:
    return lines_of(Result, data.decode("utf-8-sig", errors="replace"), str(path), "no result of this harness")
