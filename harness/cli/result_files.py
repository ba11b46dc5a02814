"""Files that a verb writes its result to: --json, --result, --markdown, --csv, --html and --junit, the same for all.

Each file gets the whole result, or the error that ended the verb. `-` is standard output; nothing else is then printed
there.
"""

import argparse
import contextlib
import errno
import functools
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.agents.made import refused
from harness.agents.result import Conditions
from harness.board import report_json
from harness.cli.declare import option
from harness.core.decode import encode
from harness.core.errors import BadSubmissionError, Exit, HarnessError, UsageError, os_error_as
from harness.core.files import replace_file
from harness.report.console import new_console
from harness.report.document import Document
from harness.report.evaluation import error_document
from harness.report.render import FORMATS, terminal

STDOUT = "-"  # as a file's name
KEPT = (".py", ".yaml", ".yml")  # names of sources, shapes, contests, the leaderboard: of no result


class ResultFile:
    """One such file; `what` is its option's name, and that of its format."""

    def __init__(self, what: str, name: str) -> None:
        self.what, self.name, self.option, self.is_stdout = what, name, f"--{what}", name == STDOUT
        self.is_written = False  # or an attempt was made, or none may be

    def check(self) -> None:
        """Raises UsageError where it cannot be written, to be called before an evaluation and not after it. The error
        itself is then not written to it either."""
        if self.is_stdout:
            return
        is_written, self.is_written = self.is_written, True
        with os_error_as(UsageError, f"{self.option} {self.name}: cannot be written", "name another file"):
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

    def write(self, content: object) -> None:
        """Writes a whole text, or a value as JSON: a file in one step, so that a disk that is full leaves what was
        there. Raises UsageError where that fails."""
        self.is_written = True
        text = content if isinstance(content, str) else json.dumps(content, indent=2) + "\n"
        if self.is_stdout:
            print(text, end="", flush=True)
            return
        try:
            if not self._replaced(text.encode()):
                with open(self.name, "w", encoding="utf-8", opener=_opened) as out:
                    out.write(text)
        except OSError as error:
            raise self._unwritable(error) from None

    def _replaced(self, data: bytes) -> bool:
        """Whether a file with this content has taken the place of the one of that name: not of a pipe or a device, nor
        where only the file may be written and not its folder, or it is mounted by itself."""
        path = Path(self.name)
        if path.exists() and (not path.is_file() or path.is_relative_to("/dev") or path.is_relative_to("/proc")):
            return False
        try:
            replace_file(path, data)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY):
                raise
            return False
        return True

    def _unwritable(self, error: OSError) -> UsageError:
        why = "nobody reads from this pipe" if error.errno == errno.ENXIO else f"cannot be written: {error.strerror}"
        return UsageError(f"{self.option} {self.name}: {why}; name another file")


def _refused(message: str, code: Exit) -> object:
    kind = BadSubmissionError if code == Exit.INVALID else HarnessError
    return encode(refused(kind(message), Conditions(problem="")))


ERRORS: dict[str, Callable[[str, Exit], object]] = {  # what a file of values gets in place of a result
    "json": report_json.error_json,
    "result": _refused,
}


@dataclass(frozen=True, kw_only=True)
class ResultFiles:
    all: tuple[ResultFile, ...]

    @property
    def take_stdout(self) -> bool:
        """Whether one of them is standard output, so that nothing else belongs there."""
        return any(file.is_stdout for file in self.all)

    def check(self) -> None:
        """Raises UsageError where one cannot be written, or where two are the same."""
        streams = [file for file in self.all if file.is_stdout]
        if len(streams) > 1:
            for file in streams:  # standard output gets no error in two formats either
                file.is_written = True
            options = " and ".join(f"{file.option} -" for file in streams)
            raise UsageError(f"{options}: only one of them can be standard output; name a file")
        of_path: dict[Path, ResultFile] = {}
        for file in self.all:
            file.check()
            path = Path(file.name)
            is_device = file.is_stdout or (path.exists() and not path.is_file())  # which takes several
            if not is_device and (other := of_path.setdefault(path.resolve(), file)) is not file:
                file.is_written = True  # the error goes to it once
                raise UsageError(f"{other.option} {other.name} and {file.option} {file.name} are one file; name two")

    @contextlib.contextmanager
    def told_of_errors(self) -> Iterator[None]:
        """Writes the error that ends the block to the files without a result of it, and raises it."""
        for file in self.all:
            file.is_written = False
        try:
            yield
        except HarnessError as error:
            for file in self.all:
                if not file.is_written:
                    told = str(error), error.exit_code
                    of_values = ERRORS.get(file.what)
                    with contextlib.suppress(UsageError, OSError, RuntimeError):  # the file may be what it is about
                        file.write(of_values(*told) if of_values else FORMATS[file.what](error_document(*told)))
            raise


class _OldFormat(argparse.Action):
    """Takes `--format json` for `--json -`."""

    def __call__(self, parser: object, namespace: argparse.Namespace, values: Any, option: object = None) -> None:
        if values != "table":
            setattr(namespace, values, ResultFile(values, STDOUT))


def old_format(*forms: str) -> Any:
    """--format, as some verbs had it before all had --json FILE. It is not in their help."""
    return option(None, argparse.SUPPRESS, "--format", action=_OldFormat, choices=["table", *forms])


def result_file(what: str, text: str, **words: Any) -> Any:
    return option(None, text, type=functools.partial(ResultFile, what), **words)


@dataclass(frozen=True, kw_only=True)
class WithJson:
    json: ResultFile | None = result_file(
        "json",
        "write the full result to FILE as one JSON value; - writes it to standard output, with nothing else there",
    )


@dataclass(frozen=True, kw_only=True)
class WithFiles(WithJson):
    markdown: ResultFile | None = result_file("markdown", "the same as Markdown, for a pull request or a job's page")
    csv: ResultFile | None = result_file("csv", "its tables as CSV")
    html: ResultFile | None = result_file("html", "the same as an HTML page, which loads nothing")


@dataclass(frozen=True, kw_only=True)
class ForCi(WithFiles):
    junit: ResultFile | None = result_file("junit", "the same as JUnit XML, for CI systems")


def of(order: object) -> ResultFiles:
    """The files that an order names, or a command line's values."""
    return ResultFiles(all=tuple(value for value in vars(order).values() if isinstance(value, ResultFile)))


def tell(order: object, document: Document, code: Exit = Exit.OK, **contents: Callable[[], object]) -> Exit:
    """Shows on the terminal what a verb has found, its summary alone where the order is quiet, and nothing where a file
    that was asked for is standard output. Writes those files: the document in their formats, or, as for --json and
    --result, what `contents` says. Returns the verb's exit code, `code`."""
    files = of(order)
    if not files.take_stdout and getattr(order, "page", None) != Path(STDOUT):
        terminal.show(document, new_console(), getattr(order, "quiet", False))
    for file in files.all:
        file.write(contents[file.what]() if file.what in contents else FORMATS[file.what](document))
    return code


def check_replaceable(option: str, path: Path) -> None:
    """Raises UsageError for a Python or YAML file that is there: nobody means to write a result over it."""
    if path.suffix.lower() in KEPT and path.is_file():
        raise UsageError(f"{option} {path}: this {path.suffix} file is there, and is no result; name another")


def check_lines(out: Path, what: str) -> None:
    """Raises UsageError where --out is no name for lines of JSON. `-` is none: a command goes on with its file."""
    if out.suffix in KEPT or out.is_dir() or out.name == STDOUT:
        raise UsageError(f"--out {out}: {what} are lines of JSON, gone on with after a kill; name a .jsonl file")


def _opened(path: str | Path, flags: int = os.O_WRONLY) -> int:
    """The file, open for writing; does not wait where it is a pipe that nobody reads."""
    fd = os.open(path, flags | os.O_NONBLOCK, 0o666)
    os.set_blocking(fd, True)
    return fd
