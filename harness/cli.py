"""The command line: reads what was asked, calls the rest, turns errors into messages and exit codes."""

import argparse
import contextlib
import json
import os
import shlex
import signal
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, get_args

from rich.console import Console

from harness import (
    archive,
    board,
    compare,
    doctor,
    export,
    history,
    machine,
    page,
    plot,
    render,
    reports,
    roofline,
    verdict,
)
from harness.bundle import addressed, bundle
from harness.evaluate import evaluate
from harness.plan import Plan, make_plan
from harness.problem import OFFICIAL, ROOT, Problem, Suite, find, problem_names
from harness.records import Exit, HarnessError, Mode, Submission, UsageError
from harness.submission import read_submission, shown_path

LEADERBOARD = ROOT / "leaderboard.yaml"
MAX_RANKS = 1024
DEVICES = ("cpu", "cuda", "rocm")

EPILOG = """\
exit codes:
  0 passed   112 the submission is wrong, raised or crashed   113 a problem, shape or leaderboard file is bad
  114 timed out   2 asked for something that cannot be done   130 interrupted   1 the harness or the machine failed
  3 what `compare --fail-if` names
"""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs a command and exits with its code."""
    options = parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    try:
        code = options.run(options)
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        code = error.exit_code
        if getattr(options, "json", None):
            with contextlib.suppress(UsageError):  # the file may be what the error is about
                _write_json(options.json, render.error_json(str(error), code))
    except KeyboardInterrupt:
        print("\ninterrupted: every rank is ended, nothing was recorded", file=sys.stderr)
        code = Exit.INTERRUPTED
    except BrokenPipeError:  # whoever read our output is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = Exit.ERROR
    sys.exit(int(code))


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(
        prog="python -m harness",
        description="Evaluate multi-GPU kernels at home: right or wrong, how fast on every shape, how many times the "
        "reference, how close to the roofline, and the place on the local leaderboard.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, run: object, text: str, details: str = "") -> argparse.ArgumentParser:
        made = commands.add_parser(
            name,
            help=text,
            description=f"{text}. {details}",
            epilog=EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        made.set_defaults(run=run)
        return made

    evaluation = command(
        "eval",
        run_eval,
        "evaluate a submission",
        "Tests it on every test\nshape, times it on every benchmark shape in turn with the reference, and records the "
        "result.\nStops at the first phase that fails; a failure is never recorded.",
    )
    checking = command(
        "check",
        run_check,
        "is it right?",
        "Runs the tests only; nothing is timed or recorded.",
    )
    comparing = command(
        "compare",
        run_compare,
        "compare files, or recorded runs, head to head",
        "Two files are\nchecked, and timed in turn on the same inputs. Of two recorded runs what they measured is "
        "compared.\nNothing is recorded.\n\n" + textwrap.fill(compare.rule(compare.MARGIN), 100),
    )
    for made in (evaluation, checking):
        made.add_argument("problem", help="its name (see `problems`), or GPU MODE's name for it")
        made.add_argument("file", nargs="?", type=Path, help="default: submissions/<problem>/submission.py")
    compare.add_arguments(comparing)
    for made, suite in ((evaluation, "cpu"), (checking, "quick"), (comparing, "cpu")):
        made.add_argument(
            "--ranks",
            type=int,
            metavar="N",
            help="how many ranks (default: a rank a GPU; on CPU cores as the shapes say, 8)",
        )
        made.add_argument(
            "--suite", metavar="S", help=f"which shapes (default: official on GPUs, {suite} on CPU cores)"
        )
        made.set_defaults(cpu_suite=suite)
        made.add_argument("--device", choices=DEVICES, help="what ranks run on (default: GPUs where there are any)")
        made.add_argument(
            "--timeout", type=float, metavar="SECONDS", help="for each phase (default: as the shapes say)"
        )
        made.add_argument("--json", metavar="FILE", help="write the full result there as one JSON object")
    evaluation.add_argument(
        "--mode",
        default="leaderboard",
        choices=get_args(Mode),
        help="test: tests only; benchmark: benchmarks only; leaderboard: tests, then benchmarks (the default); "
        "profile: one call of each benchmark under torch.profiler",
    )
    evaluation.add_argument(
        "--trace", metavar="DIR", help="where mode profile writes its traces (default: runs/<run id>/)"
    )
    evaluation.add_argument(
        "--seconds", type=float, help="about how long each benchmark is measured (default: its suite's)"
    )
    evaluation.add_argument("--no-record", action="store_true", help="leave leaderboard.yaml and runs/ as they are")
    evaluation.add_argument("--author", metavar="NAME", help="whom to record it under (default: your login)")

    bundling = command(
        "bundle",
        run_bundle,
        "write a submission and its local modules as one file",
        "The file is what GPU MODE\ntakes, and what runs without this checkout.",
    )
    bundling.add_argument("problem", help="its name (see `problems`), or GPU MODE's name for it")
    bundling.add_argument("file", nargs="?", type=Path, help="default: submissions/<problem>/submission.py")
    bundling.add_argument(
        "-o", "--out", type=Path, metavar="OUT", help="where to (default: build/<GPU MODE's name>-<file>)"
    )

    boards = command("board", run_board, "show the local leaderboard")
    boards.add_argument("--problem", metavar="P", help="only this problem's boards")
    boards.add_argument("--format", default="table", choices=["table", "markdown", "csv", "json"])

    history.add_arguments(
        command(
            "history", history.run, "show how each file's score moved over its runs", "Of runs/ and the leaderboard."
        )
    )
    page.add_arguments(
        command("page", page.run, "write the leaderboard as one HTML file", "With charts; it needs no network.")
    )
    export.add_arguments(
        command(
            "export",
            export.run,
            "write runs and leaderboard as CSV, JSON lines or parquet",
            "A row a run and\ncase, under the names of GPU MODE's public dataset. Parquet needs the extra `parquet`.",
        )
    )
    plot.add_arguments(
        command("plot", plot.run, "draw a recorded run as SVG or PNG", "For slides; needs the extra `plot`.")
    )
    command("problems", run_problems, "list the problems and their suites")
    doctor.add_arguments(
        command(
            "doctor", doctor.run, "say what on this machine changes results", "Reads only, never changes a setting."
        )
    )
    roofline.add_arguments(
        command("roofline", roofline.run, "print the bound of every benchmark shape", "Computed; nothing is run.")
    )
    return top


def run_eval(options: argparse.Namespace) -> Exit:
    """`eval`: the whole evaluation, recorded when it passed in leaderboard mode."""
    return _evaluate(options, options.mode, options.author, record=not options.no_record)


def run_check(options: argparse.Namespace) -> Exit:
    """`check`: the tests of a suite."""
    return _evaluate(options, "test", author=None, record=False)


def run_compare(options: argparse.Namespace) -> int:
    """`compare`: each file or recorded run after the first against the first, by compare's rule."""
    margin = compare.margin_of(options.margin)
    compare.check_sides(options.sides, files=options.problem is not None)
    _check_json(options)
    if options.problem is None:
        if given := [name for name in ("ranks", "suite", "device", "timeout", "seconds") if getattr(options, name)]:
            raise UsageError(f"--{given[0]}: recorded runs are timed already; it is for files (--problem)")
        first, *others = (reports.find(side, ROOT) for side in options.sides)
        found = [compare.recorded(first, other, margin) for other in others]
    else:
        found = _compare_files(options, margin)
    code = compare.exit_code(found, options.fail_if)
    if options.json:
        _write_json(options.json, compare.to_json(found, code))
    console = Console()
    for index, one in enumerate(found):
        if index:
            console.print()
        compare.show(one, console)
    return code


def _compare_files(options: argparse.Namespace, margin: float) -> list[compare.Comparison]:
    problem, suite, device, world_size = _setting(options)
    first, *others = (read_submission(Path(side), ROOT) for side in options.sides)

    def planned(submission: Submission, mode: Mode, opponent: Submission | None = None) -> Plan:
        return make_plan(problem, suite, submission, mode, device, world_size, machine.login(), opponent)

    with render.Progress(Console(stderr=True)) as progress:
        progress.note(f"A, {first.name}: tests")
        compare.check(planned(first, "test"), progress)
        found = []
        for other in others:
            progress.note(f"B, {other.name}: tests, then timed against A")
            found.append(compare.live(planned(other, "leaderboard", first), margin, progress))
        return found


def run_bundle(options: argparse.Namespace) -> Exit:
    """`bundle`: one file out of a submission and its local modules."""
    problem = find(options.problem)
    submission = read_submission(options.file or problem.submissions_folder / "submission.py", ROOT)
    source = addressed(bundle(submission), problem.leaderboard, submission.name)
    out = options.out or ROOT / "build" / f"{problem.leaderboard}-{Path(submission.path).name}"
    if out.resolve() in (Path(submission.path).resolve(), *(ROOT / module.file for module in submission.modules)):
        raise UsageError(f"--out {out}: the bundle is made of this file; name another")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(source.encode())
    except OSError as error:
        raise UsageError(f"--out {out}: cannot be written: {error.strerror}") from None
    modules = ", ".join(module.name for module in submission.modules)
    shown = shlex.quote(shown_path(out, ROOT))
    print(f"{shown}: {submission.name}" + (f" with {modules}" if modules else ""))
    print(f"evaluate it here   make eval PROBLEM={problem.name} SUBMISSION={shown}")
    print(f"hand it in         popcorn-cli submit {shown}")
    return Exit.OK


def run_board(options: argparse.Namespace) -> Exit:
    """`board`: leaderboard.yaml as a table."""
    problem = find(options.problem).name if options.problem else None
    render.show_board(board.load(LEADERBOARD), Console(), problem, options.format)
    return Exit.OK


def run_problems(options: argparse.Namespace) -> Exit:
    """`problems`: what there is."""
    found = [find(name) for name in problem_names()]
    rows = [(problem.name, problem.leaderboard, problem.description, list(problem.suites)) for problem in found]
    Console().print(render.problems_table(rows))
    return Exit.OK


def _setting(options: argparse.Namespace) -> tuple[Problem, Suite, str, int]:
    """What `options` ask for: the problem, the suite at the world size that will run, the device, the world size."""
    problem = find(options.problem)
    gpus = machine.gpus()
    device = options.device or gpus.device
    if device != "cpu" and device != gpus.device:
        raise UsageError(f"--device {device}: this machine has {gpus.told}; --device {gpus.device} runs here")
    suite = problem.suite(options.suite or (options.cpu_suite if device == "cpu" else OFFICIAL))
    if options.timeout is not None:
        if not options.timeout > 0:
            raise UsageError(f"--timeout {options.timeout}: seconds above 0 are needed")
        suite = replace(
            suite,
            test_timeout_s=options.timeout,
            benchmark_timeout_s=options.timeout,
            ranked_timeout_s=options.timeout,
        )
    if getattr(options, "seconds", None) is not None:
        if not options.seconds > 0:
            raise UsageError(f"--seconds {options.seconds}: seconds above 0 are needed")
        suite = replace(suite, benchmark_s=options.seconds)
    world_size = suite.benchmarks[0].world_size if device == "cpu" else min(gpus.count, suite.benchmarks[0].world_size)
    if options.ranks is not None:
        most = MAX_RANKS if device == "cpu" else gpus.count
        if not 1 <= options.ranks <= most:
            raise UsageError(f"--ranks {options.ranks}: 1 to {most} ranks can be asked for on {device}")
        world_size = options.ranks
    return problem, problem.with_world_size(suite, world_size), device, world_size


def _evaluate(options: argparse.Namespace, mode: Mode, author: str | None, record: bool) -> Exit:
    problem, suite, device, world_size = _setting(options)
    traces = _trace_folder(options, mode)
    _check_json(options)
    submission = read_submission(options.file or problem.submissions_folder / "submission.py", ROOT)
    earlier = board.load(LEADERBOARD) if record else None
    if record:
        board.check_writable(LEADERBOARD)
    plan = make_plan(problem, suite, submission, mode, device, world_size, author or machine.login())
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
    if options.json:
        _write_json(options.json, render.to_json(report, place))
    render.show(report, earlier, place, Console())
    if unrecorded is not None:
        raise unrecorded
    return verdict.exit_code(report)


def _trace_folder(options: argparse.Namespace, mode: Mode) -> Path | None:
    """The folder that --trace names, made now rather than found to be impossible when there is something to write."""
    if getattr(options, "trace", None) is None:
        return None
    if mode != "profile":
        raise UsageError(f"--trace {options.trace}: only --mode profile writes traces")
    folder = Path(options.trace)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--trace {options.trace}: cannot be made: {error.strerror}") from None
    if not os.access(folder, os.W_OK):
        raise UsageError(f"--trace {options.trace}: cannot be written to")
    return folder


def _check_json(options: argparse.Namespace) -> None:
    if options.json and not os.access(Path(options.json).resolve().parent, os.W_OK):
        raise UsageError(f"--json {options.json}: its folder is not there or cannot be written to")


def _write_json(file: str, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=2) + "\n"
    try:
        Path(file).write_text(text)
    except OSError as error:
        raise UsageError(f"--json {file}: cannot be written: {error.strerror}") from None


def _interrupt(signum: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt
