"""The command line: reads what was asked, calls the rest, turns errors into messages and exit codes."""

import argparse
import contextlib
import io
import os
import shlex
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from harness import serve
from harness.board import leaderboard, report_json, runs
from harness.cli import (
    compare,
    competition,
    doctor,
    eval,
    export,
    history,
    options,
    page,
    plot,
    rejudge,
    roofline,
    verify,
)
from harness.core.checkout import ROOT
from harness.core.records import Exit, HarnessError, UsageError
from harness.evaluation import recorded
from harness.evaluation.compare import MARGIN, rule
from harness.kinds import settings
from harness.kinds.registry import find_name
from harness.machine import host
from harness.problems.bundle import addressed, bundle
from harness.problems.shape_file import find, problem_names
from harness.problems.submission import read_submission, shown_path
from harness.report import board_view, terminal

EPILOG = """\
exit codes:
  0 passed   112 the submission is wrong, raised, crashed or was held
  113 a problem, shape or leaderboard file is bad   114 timed out   2 asked for something that cannot be done
  130 interrupted   1 the harness or the machine failed, or `verify` could decide nothing
  3 what `compare --fail-if` names
"""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs a command and exits with its code."""
    _open_streams()
    asked = parser().parse_args(argv)
    host.interrupt_on_signals()
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name that the terminal's encoding lacks must not end a run
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = asked.verb(asked)
        sys.stdout.flush()
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        code = error.exit_code
        if getattr(asked, "json", None):
            with contextlib.suppress(UsageError):  # the file may be what the error is about
                options.write_json(asked.json, report_json.error_json(str(error), code))
    except KeyboardInterrupt:
        print("\ninterrupted: every rank is ended, nothing more is recorded", file=sys.stderr)
        code = Exit.INTERRUPTED
    except BrokenPipeError:  # whoever read our output is gone
        code = Exit.ERROR
    except (OSError, MemoryError) as error:  # nobody's mistake: the machine has no more to give
        print(f"error: {host.refusal(error)}", file=sys.stderr)
        code = Exit.ERROR
    try:
        sys.stdout.flush()
    except OSError:  # or Python would say so, and exit with a code of its own
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(int(code))


def _open_streams() -> None:
    """A standard stream that is closed leads nowhere: else the next file or socket would get its number."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            setattr(sys, name, open(fd, "r" if fd == 0 else "w", closefd=False))  # noqa: SIM115


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

    def command(name: str, verb: object, text: str, details: str = "") -> argparse.ArgumentParser:
        made = commands.add_parser(
            name,
            help=text,
            description=f"{text}{'' if text.endswith('?') else '.'} {details}",
            epilog=EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        made.set_defaults(verb=verb)
        return made

    eval.add_arguments(
        command(
            "eval",
            eval.run,
            "evaluate a submission",
            "Tests it on every test\nshape, times it on every benchmark shape in turn with the reference, and records "
            "the result.\nStops at the first phase that fails; a failure is never recorded.",
        )
    )
    eval.add_check_arguments(
        command("check", eval.run_check, "is it right?", "Runs the tests only; nothing is timed or recorded.")
    )
    compare.add_arguments(
        command(
            "compare",
            compare.run,
            "compare files, or recorded runs, head to head",
            "Two files are\nchecked, and timed in turn on the same inputs. Of two recorded runs what they measured is "
            "compared.\nNothing is recorded.\n\n" + textwrap.fill(rule(MARGIN), 100),
        )
    )
    competition.add_arguments(
        command(
            "competition",
            competition.run_verb,
            "evaluate all problems of a KernelBot competition file",
            "One after the other,\nwith a summary over all of them. --list shows them, their deadlines and who leads "
            "here.",
        )
    )
    bundling = command(
        "bundle",
        run_bundle,
        "write a submission and its local modules as one file",
        "The file is what GPU MODE\ntakes, and what runs without this checkout.",
    )
    options.add_file(bundling)
    bundling.add_argument(
        "-o", "--out", type=Path, metavar="OUT", help="where to (default: build/<GPU MODE's name>-<file>)"
    )

    boards = command("board", run_board, "show the local leaderboard")
    boards.add_argument("--problem", metavar="P", help="only this problem's boards")
    boards.add_argument("--format", default="table", choices=["table", "markdown", "csv", "json"])

    verify.add_arguments(
        command(
            "verify",
            verify.run_verb,
            "run an entry's source again: does it reproduce what it claims",
            "Runs its stored source in\nindependent launches, each a whole evaluation; the fastest and the slowest are "
            "dropped. What does not\nreproduce is held (exit 112); where launches differ too much, nothing is decided "
            "(exit 1).",
        )
    )
    rejudge.add_arguments(
        command(
            "rejudge",
            rejudge.run_verb,
            "judge entries again after a change of a problem, shape or check",
            "Shows what would\nchange. Only --apply changes the leaderboard, and keeps the old judgements.",
        )
    )
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
    serve.add_arguments(
        command(
            "serve",
            serve.run,
            "answer popcorn-cli, and show the boards live",
            "A server on this\nmachine that queues submissions and evaluates them one by one; the page is at its "
            "address.\nNeeds the extra `serve`.",
        )
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


def run_bundle(asked: argparse.Namespace) -> Exit:
    """`bundle`: one file out of a submission and its local modules."""
    problem, file, _ = settings.named(asked)
    submission = read_submission(file or problem.submissions_folder / "submission.py", ROOT)
    source = addressed(bundle(submission), problem.leaderboard, submission.name)
    out = asked.out or ROOT / "build" / f"{problem.leaderboard}-{Path(submission.path).name}"
    if out.resolve() in (Path(submission.path).resolve(), *(ROOT / module.file for module in submission.modules)):
        raise UsageError(f"--out {out}: the bundle is made of this file; name another")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(source.encode())
    except OSError as error:
        raise UsageError(f"--out {out}: cannot be written: {error.strerror}; name another file") from None
    modules = ", ".join(module.name for module in submission.modules)
    shown = shlex.quote(shown_path(out, ROOT))
    print(f"{shown}: {submission.name}" + (f" with {modules}" if modules else ""))
    print(f"evaluate it here   make eval PROBLEM={problem.name} SUBMISSION={shown}")
    print(f"hand it in         popcorn-cli submit {shown}")
    return Exit.OK


def run_board(asked: argparse.Namespace) -> Exit:
    """`board`: leaderboard.yaml as a table."""
    found = leaderboard.load(recorded.LEADERBOARD)
    problem = find_name(asked.problem, {entry.problem for entry in found.entries}) if asked.problem else None
    board_view.show_board(found, Console(), problem, asked.format, runs.standings(found, ROOT))
    return Exit.OK


def run_problems(asked: argparse.Namespace) -> Exit:
    """`problems`: what there is."""
    found = [find(name) for name in problem_names()]
    rows = [(problem.name, problem.leaderboard, problem.description, list(problem.suites)) for problem in found]
    Console().print(terminal.problems_table(rows))
    return Exit.OK
