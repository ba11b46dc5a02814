"""The verbs `eval` and `check`: one evaluation as it was asked for, recorded and shown."""

import argparse
import os
from pathlib import Path
from typing import get_args

from rich.console import Console

from harness import archive, board, machine, options, render, verdict
from harness.evaluate import evaluate
from harness.plan import make_plan
from harness.problem import ROOT
from harness.records import Exit, HarnessError, Mode, UsageError
from harness.submission import read_submission

LEADERBOARD = ROOT / "leaderboard.yaml"


def add_check_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `check`."""
    options.add_file(parser)
    options.add_setting(parser, cpu_suite="quick")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `eval`."""
    options.add_file(parser)
    options.add_setting(parser, cpu_suite="cpu")
    parser.add_argument(
        "--mode",
        default="leaderboard",
        choices=get_args(Mode),
        help="test: tests only; benchmark: benchmarks only; leaderboard: tests, then benchmarks (the default); "
        "profile: one call of each benchmark under torch.profiler",
    )
    parser.add_argument("--trace", metavar="DIR", help="where mode profile writes its traces (default: runs/<run id>/)")
    parser.add_argument(
        "--seconds", type=float, help="about how long each benchmark is measured (default: its suite's)"
    )
    parser.add_argument("--no-record", action="store_true", help="leave leaderboard.yaml and runs/ as they are")
    parser.add_argument("--author", metavar="NAME", help="whom to record it under (default: your login)")


def run(asked: argparse.Namespace) -> Exit:
    """`eval`: the whole evaluation, recorded when it passed in leaderboard mode."""
    return _evaluate(asked, asked.mode, asked.author, record=not asked.no_record)


def run_check(asked: argparse.Namespace) -> Exit:
    """`check`: the tests of a suite."""
    return _evaluate(asked, "test", author=None, record=False)


def _evaluate(asked: argparse.Namespace, mode: Mode, author: str | None, record: bool) -> Exit:
    setting = options.setting(asked)
    traces = _trace_folder(asked, mode)
    options.check_json(asked)
    submission = read_submission(asked.file or setting.problem.submissions_folder / "submission.py", ROOT)
    earlier = board.load(LEADERBOARD) if record else None
    if record:
        board.check_writable(LEADERBOARD)
    plan = make_plan(
        setting.problem,
        setting.suite,
        submission,
        mode,
        setting.device,
        setting.world_size,
        author or machine.login(),
    )
    with render.Progress(Console(stderr=True)) as progress:
        report = evaluate(plan, progress)
    place, unrecorded = None, None
    if mode == "profile":
        try:
            report = archive.store_traces(report, traces or ROOT / archive.FOLDER / report.run_id)
        except HarnessError as error:
            unrecorded = error
    if record and unrecorded is None:
        try:
            archive.store(report, ROOT)
            if mode == "leaderboard" and (entry := board.entry_of(report)) is not None:
                earlier = board.record(LEADERBOARD, entry)
                place = board.place_of(earlier, entry)
        except HarnessError as error:
            unrecorded = error  # what was measured is shown all the same
    if asked.json:
        options.write_json(asked.json, render.to_json(report, place))
    render.show(report, earlier, place, Console())
    if unrecorded is not None:
        raise unrecorded
    return verdict.exit_code(report)


def _trace_folder(asked: argparse.Namespace, mode: Mode) -> Path | None:
    """The folder that --trace names, made now rather than found to be impossible when there is something to write."""
    if getattr(asked, "trace", None) is None:
        return None
    if mode != "profile":
        raise UsageError(f"--trace {asked.trace}: only --mode profile writes traces")
    folder = Path(asked.trace)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--trace {asked.trace}: cannot be made: {error.strerror}") from None
    if not os.access(folder, os.W_OK):
        raise UsageError(f"--trace {asked.trace}: cannot be written to")
    return folder
