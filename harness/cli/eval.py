"""The verb `eval`: one evaluation, recorded and shown."""

import argparse
import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

from harness.agents.made import result_of
from harness.agents.reward import Function
from harness.board import report_json
from harness.board.places import place_of
from harness.cli import options, result_files
from harness.cli.result_files import ResultFiles
from harness.core.checkout import Checkout
from harness.core.decode import encode
from harness.core.errors import Exit, HarnessError, UsageError
from harness.core.records import Mode, Submission
from harness.core.words import clean_line
from harness.evaluation import beside
from harness.evaluation.recorded import Ran, evaluated
from harness.judging import verdict
from harness.kinds import settings
from harness.kinds.kind import TORCH, Progress, Setting
from harness.kinds.registry import read_submission
from harness.kinds.settings import Asked
from harness.machine import host, peaks_cache
from harness.process.profilers import TOOLS
from harness.report.console import new_console
from harness.report.evaluation import document_of
from harness.report.progress import Both, EventLog, ProgressLine
from harness.report.render import FORMATS, terminal

DESCRIPTION = """Evaluate a submission. Tests it on every test shape, times it on every benchmark shape in turn with
the reference, and records the result. Stops at the first phase that fails; a failure is never recorded."""
LINES = "the last three lines: verdict, speedup, place"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `eval` and `check` were asked to do. `trace` is the folder for traces; `files` get the report too."""

    asked: Asked
    mode: Mode
    author: str | None = None  # None: the login
    record: bool = False
    quiet: bool = False
    verbose: bool = False
    files: ResultFiles = field(default_factory=ResultFiles)
    reward: Function = "log2_speedup"
    lower: bool = False  # end of the interval, which is rewarded
    trace: str | None = None
    events: str | None = None  # the file that progress events are written to
    leader: bool = False  # whether it meets the best other entry of its board
    until: float | None = None  # which difference to that one is to be told, as a part


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `eval`."""
    options.add_file(parser)
    options.add_setting(parser, cpu_suite="cpu")
    options.add_data(parser)
    result_files.add_for_ci(parser)
    result_files.add_result(parser)
    options.add_evaluator(parser)
    options.add_nodes(parser)
    options.add_unconfined(parser)
    options.add_quiet(parser, LINES)
    options.add_verbose(parser)
    parser.add_argument(
        "--mode",
        default="leaderboard",
        choices=get_args(Mode),
        help="test: tests only; benchmark: benchmarks only; leaderboard: tests, then benchmarks (the default); "
        "profile: one call of each benchmark under a profiler",
    )
    parser.add_argument(
        "--tool",
        default=TORCH,
        choices=(TORCH, *TOOLS),
        help="mode profile's profiler: torch.profiler (the default), NVIDIA's ncu or AMD's rocprofv3",
    )
    parser.add_argument(
        "--benchmark",
        type=int,
        metavar="N",
        help="mode profile: this benchmark alone, counted from 0 (default: all)",
    )
    parser.add_argument(
        "--launch-count",
        type=int,
        metavar="N",
        help=f"--tool ncu: profile the first N kernel launches of a call (default: {TOOLS['ncu'].launch_count})",
    )
    parser.add_argument("--trace", metavar="DIR", help="where mode profile writes its traces (default: runs/<run id>/)")
    parser.add_argument(
        "--events",
        metavar="FILE",
        help="write a line of JSON to FILE when a phase or a case begins, for programs that follow the evaluation",
    )
    parser.add_argument(
        "--remeasure",
        action="store_true",
        help="measure this machine's peak rates again, which the limit comes from; the best ever seen count",
    )
    options.add_seconds(parser)
    options.add_launches(parser)
    parser.add_argument(
        "--no-leader",
        dest="leader",
        action="store_false",
        help="do not time it head to head with the best other entry of its board, which follows several launches",
    )
    parser.add_argument(
        "--until",
        type=float,
        metavar="PERCENT",
        help="go on head to head, at most ten minutes, until the two are in order or differ by less",
    )
    options.add_recording(parser)
    options.add_engine(parser)


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`eval`: the whole evaluation, recorded when it passed in leaderboard mode."""
    if namespace.tool != TORCH and namespace.mode != "profile":
        raise UsageError(f"--tool {namespace.tool}: only --mode profile takes a profiler; add it, or leave --tool out")
    if namespace.benchmark is not None and namespace.mode != "profile":
        raise UsageError(f"--benchmark {namespace.benchmark}: only --mode profile takes it; add it, or leave it out")
    if namespace.launch_count is not None and namespace.tool == TORCH:
        count = f"--launch-count {namespace.launch_count}"
        raise UsageError(f"{count}: only --tool ncu takes it; add --mode profile --tool ncu, or leave it out")
    if namespace.until is not None and not 0 < namespace.until < 100:
        raise UsageError(f"--until {namespace.until:g}: a percentage above 0 and below 100 is needed")
    if namespace.remeasure:
        peaks_cache.ask_again(checkout.root)
    return evaluate(
        Options(
            asked=options.asked(namespace),
            mode=namespace.mode,
            author=namespace.author,
            record=not namespace.no_record,
            quiet=namespace.quiet,
            verbose=namespace.verbose,
            files=result_files.of(namespace),
            reward=namespace.reward,
            lower=namespace.lower,
            trace=namespace.trace,
            events=namespace.events,
            leader=namespace.leader or namespace.until is not None,
            until=None if namespace.until is None else namespace.until / 100,
        ),
        checkout,
    )


def evaluate(order: Options, checkout: Checkout) -> Exit:
    """Evaluates, shows the report, and writes it as JSON where that was asked for."""
    setting = settings.setting(order.asked, checkout)
    traces = _trace_folder(order)
    problem = setting.problem
    submission = read_submission(problem, setting.file, checkout)
    author = order.author or host.login()
    with _progress(order.quiet, order.events) as progress:
        ran = evaluated(
            setting, submission, order.mode, author, checkout, record=order.record, progress=progress, traces=traces
        )
    ran, met = _beside(order, ran, setting, submission, checkout)
    if not order.files.take_stdout:
        document = document_of(ran.report, ran.standing, ran.place, order.verbose, met=met)
        terminal.show(document, new_console(), order.quiet)
    _write(order, ran)
    if ran.unrecorded is not None:
        raise ran.unrecorded
    return verdict.exit_code(ran.report)


def _beside(order: Options, ran: Ran, setting: Setting, submission: Submission, checkout: Checkout) -> tuple[Ran, str]:
    """What was recorded, beside the best other entry of its board, in a line; "" where they do not meet."""
    entry = ran.entry
    if not order.leader or entry is None or ran.standing is None or (setting.launches < 2 and order.until is None):
        return ran, ""
    meeting = beside.opposite(ran.standing, entry, setting, submission, checkout)
    if meeting is None:
        return ran, ""

    @contextlib.contextmanager
    def shown(number: int, one: int, other: int) -> Iterator[Progress]:
        with _progress(order.quiet, None) as progress:
            progress.note(clean_line(f"from launch {number} on beside {meeting.sources[0].name}"))
            yield progress

    try:
        found = beside.met(meeting, ran.standing, shown, checkout, order.until)
    except HarnessError as error:
        return ran, f"did not meet {meeting.sources[0].name}: {error}"
    return replace(ran, standing=found.board, place=place_of(found.board, entry)), found.text


def _write(order: Options, ran: Ran) -> None:
    """The report in every form that was asked for."""
    files = order.files
    if files.result:
        files.result.write(encode(result_of(ran.report, order.reward, order.lower, board=ran.standing)))
    if files.json:
        error = {"error": str(ran.unrecorded)} if ran.unrecorded else {}
        files.json.write(report_json.to_json(ran.report, ran.place) | error)
    for file in (files.markdown, files.junit):
        if file:
            file.write_text(FORMATS[file.what](document_of(ran.report, ran.standing, ran.place)))


@contextlib.contextmanager
def _progress(quiet: bool, events: str | None) -> Iterator[Progress]:
    """The progress on the terminal, and in the file `events` if there is one. Raises UsageError if the file cannot be
    written."""
    with contextlib.ExitStack() as stack:
        line = stack.enter_context(ProgressLine(new_console(stderr=True), silent=quiet))
        if events is None:
            yield line
            return
        result_files.check_replaceable("--events", Path(events))
        try:
            out = stack.enter_context(open(events, "wb", buffering=0, opener=_without_waiting))
        except OSError as error:
            raise UsageError(f"--events {events}: cannot be written: {error.strerror}; name another file") from None
        yield Both(line, EventLog(out))


def _without_waiting(path: str, flags: int) -> int:
    """Opens a pipe without waiting for its reader; a reader that does not keep up misses events."""
    return os.open(path, flags | os.O_NONBLOCK, 0o666)


def _trace_folder(order: Options) -> Path | None:
    """The folder that --trace names, made now rather than found to be impossible when there is something to write."""
    if order.trace is None:
        return None
    if order.mode != "profile":
        raise UsageError(f"--trace {order.trace}: only --mode profile writes traces; add it, or leave --trace out")
    folder = Path(order.trace)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--trace {order.trace}: cannot be made: {error.strerror}; name another folder") from None
    if not os.access(folder, os.W_OK):
        raise UsageError(f"--trace {order.trace}: cannot be written to; name another folder")
    return folder
