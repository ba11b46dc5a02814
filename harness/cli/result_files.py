"""The files that a verb writes its result to: --json, --result, --markdown, --junit and --csv, the same for all verbs.

Each file gets the whole result, or the error that ended the verb. `-` is standard output; nothing else is then printed
there.
"""

import argparse
import contextlib
import errno
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.agents import reward
from harness.agents.made import refused
from harness.board import report_json
from harness.core.decode import encode
from harness.core.errors import BadSubmissionError, Exit, HarnessError, UsageError
from harness.report.evaluation import error_document
from harness.report.render import FORMATS

STDOUT = "-"  # as a file's name
KEPT = (".py", ".yaml", ".yml")  # names of sources, shapes, contests, the leaderboard: of no result


class ResultFile:
    """One such file."""

    what = ""  # it is in

    def __init__(self, name: str) -> None:
        self.name, self.option, self.is_stdout = name, f"--{self.what}", name == STDOUT
        self.is_written = False  # or an attempt was made, or none may be

    def check(self) -> None:
        """Raises UsageError where it cannot be written, to be called before an evaluation and not after it. The error
        itself is then not written to it either."""
        if self.is_stdout:
            return
        is_written, self.is_written = self.is_written, True
        self._check()
        self.is_written = is_written

    def _check(self) -> None:
        path = Path(self.name)
        check_replaceable(self.option, path)
        if path.is_dir():
            raise UsageError(f"{self.option} {path}: it is a folder; name a file in it")
        if path.is_fifo():
            try:
                os.close(_opened(path))
            except OSError as error:
                raise self._unwritable(error) from None
        elif not os.access(path if path.exists() else path.resolve().parent, os.W_OK):
            what = "the file" if path.exists() else "its folder does not exist or"
            raise UsageError(f"{self.option} {path}: {what} cannot be written to; make it, or name another")

    def write_text(self, text: str) -> None:
        """Writes all of it. Raises UsageError where that fails."""
        self.is_written = True
        if self.is_stdout:
            print(text, end="", flush=True)
            return
        try:
            with open(self.name, "w", encoding="utf-8", opener=_opened) as out:
                out.write(text)
        except OSError as error:
            raise self._unwritable(error) from None

    def write_error(self, message: str, code: Exit) -> None:
        """What is written in place of a result. Raises UsageError where that fails."""

    def _unwritable(self, error: OSError) -> UsageError:
        why = "nobody reads from this pipe" if error.errno == errno.ENXIO else f"cannot be written: {error.strerror}"
        return UsageError(f"{self.option} {self.name}: {why}; name another file")


class JsonFile(ResultFile):
    """The file of --json."""

    what = "json"

    def write(self, content: object) -> None:
        """Writes one JSON value. Raises UsageError where that fails."""
        self.write_text(json.dumps(content, indent=2) + "\n")

    def write_error(self, message: str, code: Exit) -> None:
        """The error as a report."""
        self.write(report_json.error_json(message, code))


class AgentFile(JsonFile):
    """The file of --result."""

    what = "result"

    def write_error(self, message: str, code: Exit) -> None:
        """The error as a result."""
        kind = BadSubmissionError if code == Exit.INVALID else HarnessError
        self.write(encode(refused(kind(message), "")))


class MarkdownFile(ResultFile):
    """The file of --markdown."""

    what = "markdown"

    def write_error(self, message: str, code: Exit) -> None:
        """The error as a paragraph."""
        self.write_text(FORMATS["markdown"](error_document(message, code)))


class JunitFile(ResultFile):
    """The file of --junit."""

    what = "junit"

    def write_error(self, message: str, code: Exit) -> None:
        """The error as a test case."""
        self.write_text(FORMATS["junit"](error_document(message, code)))


class CsvFile(ResultFile):
    """The file of --csv."""

    what = "csv"


@dataclass(frozen=True, kw_only=True)
class ResultFiles:
    """Those of a verb that has more than one; None for what was not asked for."""

    json: JsonFile | None = None
    result: AgentFile | None = None
    markdown: MarkdownFile | None = None
    junit: JunitFile | None = None
    csv: CsvFile | None = None

    @property
    def all(self) -> list[ResultFile]:
        """The files that were asked for."""
        return [file for file in (self.json, self.result, self.markdown, self.junit, self.csv) if file is not None]

    @property
    def take_stdout(self) -> bool:
        """Whether one of them is standard output, so that nothing else belongs there."""
        return any(file.is_stdout for file in self.all)

    def check(self) -> None:
        """Raises UsageError where one cannot be written, or where two are the same."""
        if len(streams := [f"{file.option} -" for file in self.all if file.is_stdout]) > 1:
            raise UsageError(f"{' and '.join(streams)}: only one of them can be standard output; name a file")
        of_path: dict[Path, ResultFile] = {}
        for file in self.all:
            file.check()
            path = Path(file.name)
            is_device = file.is_stdout or (path.exists() and not path.is_file())  # which takes several
            if not is_device and (other := of_path.setdefault(path.resolve(), file)) is not file:
                raise UsageError(f"{other.option} {other.name} and {file.option} {file.name} are one file; name two")

    @contextlib.contextmanager
    def told_of_errors(self) -> Iterator[None]:
        """Writes the error that ends the block, in place of what would have been the result; a file that has a result
        of the block keeps it. Raises the error."""
        for file in self.all:
            file.is_written = False
        try:
            yield
        except HarnessError as error:
            for file in self.all:
                if not file.is_written:
                    with contextlib.suppress(UsageError):  # the file may be what the error is about
                        file.write_error(str(error), error.exit_code)
            raise


def add_json(parser: argparse.ArgumentParser) -> None:
    """Where the result goes as JSON."""
    parser.add_argument(
        "--json",
        type=JsonFile,
        metavar="FILE",
        help="write the full result to FILE as one JSON value; - writes it to standard output, with nothing else there",
    )


def add_result(parser: argparse.ArgumentParser) -> None:
    """Where the result goes for a program that learns from it, and by which reward."""
    parser.add_argument(
        "--result",
        type=AgentFile,
        metavar="FILE",
        help="write stages, verdict, figures, a hint and a reward to FILE as JSON (docs/agents.md)",
    )
    add_reward(parser)


def add_reward(parser: argparse.ArgumentParser) -> None:
    """By which function a ranked result is rewarded."""
    parser.add_argument(
        "--reward", choices=reward.NAMES, default=reward.NAMES[0], help="the reward's function (default: %(default)s)"
    )
    parser.add_argument(
        "--lower", action="store_true", help="reward the lower end of the speedup's interval in place of its value"
    )


def add_markdown(parser: argparse.ArgumentParser) -> None:
    """Where the result goes as Markdown."""
    parser.add_argument(
        "--markdown", type=MarkdownFile, metavar="FILE", help="the same as Markdown, for a pull request or a job's page"
    )


def add_for_ci(parser: argparse.ArgumentParser) -> None:
    """Where the result goes for a CI system."""
    add_markdown(parser)
    add_junit(parser)


def add_junit(parser: argparse.ArgumentParser) -> None:
    """Where the result goes as JUnit XML."""
    parser.add_argument("--junit", type=JunitFile, metavar="FILE", help="the same as JUnit XML, for CI systems")


class _OldFormat(argparse.Action):
    """Takes `--format json` for `--json -`."""

    def __call__(self, parser: object, namespace: argparse.Namespace, values: Any, option: object = None) -> None:
        for kind in (JsonFile, MarkdownFile, CsvFile):
            if kind.what == values:
                setattr(namespace, kind.what, kind(STDOUT))


def add_old_format(parser: argparse.ArgumentParser, *forms: str) -> None:
    """--format, as some verbs had it before all had --json FILE. It is not in their help."""
    parser.add_argument("--format", action=_OldFormat, choices=["table", *forms], help=argparse.SUPPRESS)


def of(namespace: argparse.Namespace) -> ResultFiles:
    """The files that a command line names."""
    names = ("json", "result", "markdown", "junit", "csv")
    found: dict[str, Any] = {name: getattr(namespace, name, None) for name in names}
    return ResultFiles(**found)


def check_replaceable(option: str, path: Path) -> None:
    """Raises UsageError for a Python or YAML file that is there: nobody means to write a result over it."""
    if path.suffix.lower() in KEPT and path.is_file():
        raise UsageError(f"{option} {path}: this {path.suffix} file is there, and is no result; name another")


def _opened(path: str | Path, flags: int = os.O_WRONLY) -> int:
    """The file, open for writing; does not wait where it is a pipe that nobody reads."""
    fd = os.open(path, flags | os.O_NONBLOCK, 0o666)
    os.set_blocking(fd, True)
    return fd
