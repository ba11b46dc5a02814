"""The verbs `eval` and `check`: one evaluation as it was asked for, recorded and shown."""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from rich.console import Console

from harness import archive, board, machine, options, render, report_json, theirs, verdict
from harness.board import Board, Place
from harness.evaluate import evaluate
from harness.options import Setting
from harness.plan import make_plan
from harness.problem import ROOT
from harness.progress import ProgressLine
from harness.records import EvalReport, Exit, HarnessError, Mode, Submission, UsageError
from harness.submission import read_submission
from harness.taskfolder import TaskProblem

LEADERBOARD = ROOT / board.FILE
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
    options.add_seconds(parser)
    options.add_recording(parser)


def run(asked: argparse.Namespace) -> Exit:
    """`eval`: the whole evaluation, recorded when it passed in leaderboard mode."""
    return _evaluate(asked, asked.mode, asked.author, record=not asked.no_record)


def run_check(asked: argparse.Namespace) -> Exit:
    """`check`: the tests of a suite."""
    return _evaluate(asked, "test", author=None, record=False)


@dataclass(frozen=True, kw_only=True)
class Ran:
    """An evaluation and what became of it: its place where it was recorded as an entry, on which board, and why it
    could not be recorded where that is so."""

    report: EvalReport
    standing: Board | None
    place: Place | None
    unrecorded: HarnessError | None


def evaluated(
    setting: Setting,
    submission: Submission,
    mode: Mode,
    author: str,
    *,
    record: bool,
    traces: Path | None = None,
    quiet: bool = False,
) -> Ran:
    """Evaluates and, if asked to, records. Whether it could be recorded is known before anything runs; what goes wrong
    with it afterwards does not take away what was measured. Raises HarnessError where nothing could be measured."""
    earlier = board.load(LEADERBOARD) if record else None
    version = board.problem_version(setting.problem, setting.suite) if record else None
    if record:
        board.check_writable(LEADERBOARD)
    with ProgressLine(Console(stderr=True), silent=quiet) as progress:
        report = _report(setting, submission, mode, author, progress)
    place = None
    try:
        if mode == "profile":
            report = archive.store_traces(report, traces or ROOT / archive.FOLDER / report.run_id)
        if record:
            archive.store(report, ROOT)
            if mode == "leaderboard" and (judged := board.judged(report, version)) is not None:
                earlier = board.record(LEADERBOARD, judged)
                place = board.place_of(earlier, judged) if isinstance(judged, board.Entry) else None
    except HarnessError as error:
        return Ran(report=report, standing=earlier, place=None, unrecorded=error)
    return Ran(report=report, standing=earlier, place=place, unrecorded=None)


def _report(setting: Setting, submission: Submission, mode: Mode, author: str, progress: ProgressLine) -> EvalReport:
    problem = setting.problem
    cuda_is_cpu, notes = options.conditions(setting, submission)
    if setting.evaluator == "theirs":
        if not isinstance(problem, TaskProblem):
            raise UsageError(f"--eval theirs: {problem.name} is no problem folder with an eval.py; leave it out")
        order = theirs.Order(
            problem=problem,
            suite=setting.suite,
            submission=submission,
            mode=mode,
            device=setting.device,
            world_size=setting.world_size,
            author=author,
            seed=setting.seed,
            cuda_is_cpu=cuda_is_cpu,
            notes=notes,
        )
        return theirs.evaluate(order, progress)
    plan = make_plan(
        problem,
        setting.suite,
        submission,
        mode,
        setting.device,
        setting.world_size,
        author,
        cuda_is_cpu=cuda_is_cpu,
        confined=setting.confined,
        notes=notes,
    )
    progress.expect(plan)
    return evaluate(plan, progress)


def _evaluate(asked: argparse.Namespace, mode: Mode, author: str | None, record: bool) -> Exit:
    setting = options.setting(asked)
    traces = _trace_folder(asked, mode)
    options.check_json(asked)
    submission = read_submission(setting.file or setting.problem.default_submission(), ROOT)
    ran = evaluated(
        setting, submission, mode, author or machine.login(), record=record, traces=traces, quiet=asked.quiet
    )
    out, asked.json = asked.json, None  # it gets the whole result now, which an error must not replace
    if out != options.STDOUT:
        show = render.show_summary if asked.quiet else render.show
        show(ran.report, ran.standing, ran.place, Console())
    if out:
        error = {"error": str(ran.unrecorded)} if ran.unrecorded else {}
        options.write_json(out, report_json.to_json(ran.report, ran.place) | error)
    if ran.unrecorded is not None:
        raise ran.unrecorded
    return verdict.exit_code(ran.report)


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
