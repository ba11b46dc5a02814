"""The verbs `eval` and `check`: one evaluation as it was asked for, recorded and shown."""

import argparse
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from rich.console import Console

from harness.board import report_json
from harness.cli import options
from harness.core.checkout import ROOT
from harness.core.records import Exit, Mode, UsageError
from harness.evaluation.recorded import evaluated
from harness.judging import verdict
from harness.kinds import settings
from harness.kinds.kind import Progress
from harness.machine import host
from harness.problems.submission import read_submission
from harness.report import terminal
from harness.report.progress import Both, EventLog, ProgressLine

LINES = "the last three lines: verdict, speedup, place"


def add_check_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `check`."""
    options.add_file(parser)
    options.add_setting(parser, cpu_suite="quick")
    options.add_evaluator(parser)
    options.add_unconfined(parser)
    options.add_quiet(parser, LINES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `eval`."""
    options.add_file(parser)
    options.add_setting(parser, cpu_suite="cpu")
    options.add_evaluator(parser)
    options.add_unconfined(parser)
    options.add_quiet(parser, LINES)
    parser.add_argument(
        "--mode",
        default="leaderboard",
        choices=get_args(Mode),
        help="test: tests only; benchmark: benchmarks only; leaderboard: tests, then benchmarks (the default); "
        "profile: one call of each benchmark under torch.profiler",
    )
    parser.add_argument("--trace", metavar="DIR", help="where mode profile writes its traces (default: runs/<run id>/)")
    parser.add_argument(
        "--events",
        metavar="FILE",
        help="write a line of JSON to FILE when a phase or a case begins, for programs that follow the evaluation",
    )
    options.add_seconds(parser)
    options.add_recording(parser)


def run(asked: argparse.Namespace) -> Exit:
    """`eval`: the whole evaluation, recorded when it passed in leaderboard mode."""
    return _evaluate(asked, asked.mode, asked.author, record=not asked.no_record)


def run_check(asked: argparse.Namespace) -> Exit:
    """`check`: the tests of a suite."""
    return _evaluate(asked, "test", author=None, record=False)


def _evaluate(asked: argparse.Namespace, mode: Mode, author: str | None, record: bool) -> Exit:
    setting = settings.setting(asked)
    traces = _trace_folder(asked, mode)
    options.check_json(asked)
    submission = read_submission(setting.file or setting.problem.default_submission(), ROOT)
    author = author or host.login()
    with _progress(asked.quiet, getattr(asked, "events", None)) as progress:
        ran = evaluated(setting, submission, mode, author, record=record, progress=progress, traces=traces)
    out, asked.json = asked.json, None  # it gets the whole result now, which an error must not replace
    if out != options.STDOUT:
        show = terminal.show_summary if asked.quiet else terminal.show
        show(ran.report, ran.standing, ran.place, Console())
    if out:
        error = {"error": str(ran.unrecorded)} if ran.unrecorded else {}
        options.write_json(out, report_json.to_json(ran.report, ran.place) | error)
    if ran.unrecorded is not None:
        raise ran.unrecorded
    return verdict.exit_code(ran.report)


@contextlib.contextmanager
def _progress(quiet: bool, events: str | None) -> Iterator[Progress]:
    """The progress on the terminal, and in the file `events` if there is one. Raises UsageError if the file cannot be
    written."""
    with contextlib.ExitStack() as stack:
        line = stack.enter_context(ProgressLine(Console(stderr=True), silent=quiet))
        if events is None:
            yield line
            return
        try:
            out = stack.enter_context(open(events, "wb", buffering=0, opener=_without_waiting))
        except OSError as error:
            raise UsageError(f"--events {events}: cannot be written: {error.strerror}; name another file") from None
        yield Both(line, EventLog(out))


def _without_waiting(path: str, flags: int) -> int:
    """Opens a pipe without waiting for its reader; a reader that does not keep up misses events."""
    return os.open(path, flags | os.O_NONBLOCK, 0o666)


def _trace_folder(asked: argparse.Namespace, mode: Mode) -> Path | None:
    """The folder that --trace names, made now rather than found to be impossible when there is something to write."""
    if getattr(asked, "trace", None) is None:
        return None
    if mode != "profile":
        raise UsageError(f"--trace {asked.trace}: only --mode profile writes traces; add it, or leave --trace out")
    folder = Path(asked.trace)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--trace {asked.trace}: cannot be made: {error.strerror}; name another folder") from None
    if not os.access(folder, os.W_OK):
        raise UsageError(f"--trace {asked.trace}: cannot be written to; name another folder")
    return folder
