"""The verb `compare`: files head to head, or recorded runs."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from harness.board import reports
from harness.cli import options
from harness.core.checkout import ROOT
from harness.core.records import Exit, Mode, Submission, UsageError
from harness.evaluation.compare import MARGIN, WORDS, Comparison, check, exit_code, live, recorded
from harness.kinds import settings
from harness.kinds.kind import Order, Plan
from harness.kinds.registry import kind_of
from harness.machine import host
from harness.problems.submission import read_submission
from harness.report.comparison import show, show_summary, to_json
from harness.report.progress import ProgressLine


# ---- the command line ------------------------------------------------------------------------------------------------
def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb `compare`."""
    options.add_setting(parser, cpu_suite="cpu")
    options.add_quiet(parser, "the summary, a line for each B")
    parser.add_argument("sides", nargs="+", metavar="FILE_OR_RUN", help="A, then B; more are each compared with A")
    parser.add_argument("--problem", metavar="P", help="compare files, of this problem; without it, recorded runs")
    parser.add_argument(
        "--fail-if",
        action="append",
        default=[],
        choices=[word.lower() for word in WORDS],
        help=f"exit with {Exit.FAIL_IF:d} when this is the summary's word for B; may be given several times",
    )
    parser.add_argument(
        "--margin", type=float, default=100 * MARGIN, metavar="PERCENT", help="what is still the same (default: 2)"
    )
    options.add_seconds(parser)


def run(asked: argparse.Namespace) -> int:
    """Each file or recorded run after the first against the first, by the rule."""
    margin = margin_of(asked.margin)
    check_sides(asked.sides, files=asked.problem is not None)
    options.check_json(asked)
    if asked.problem is None:
        if given := [name for name in ("ranks", "suite", "device", "timeout", "seconds") if getattr(asked, name)]:
            raise UsageError(f"--{given[0]}: recorded runs are timed already; it is for files (--problem)")
        first, *others = (reports.find(side, ROOT) for side in asked.sides)
        found = [recorded(first, other, margin) for other in others]
    else:
        found = _compare_files(asked, margin)
    code = exit_code(found, asked.fail_if)
    console = Console()
    for index, one in enumerate(found if asked.json != options.STDOUT else ()):
        if asked.quiet:
            show_summary(one, console)
            continue
        if index:
            console.print()
        show(one, console)
    if asked.json:
        options.write_json(asked.json, to_json(found, code))
    return code


def _compare_files(asked: argparse.Namespace, margin: float) -> list[Comparison]:
    setting = settings.setting(asked)
    first, *others = (read_submission(Path(side), ROOT) for side in asked.sides)

    def planned(submission: Submission, mode: Mode, opponent: Submission | None = None) -> Plan:
        order = Order(setting=setting, submission=submission, mode=mode, author=host.login(), opponent=opponent)
        return kind_of(setting).plan(order)

    with ProgressLine(Console(stderr=True), silent=asked.quiet) as progress:
        progress.note(f"A, {first.name}: tests")
        check(planned(first, "test"), progress)
        found = []
        for other in others:
            progress.note(f"B, {other.name}: tests, then timed against A")
            found.append(live(planned(other, "leaderboard", first), margin, progress))
        return found


def margin_of(percent: float) -> float:
    """The margin as a fraction. Raises UsageError where it is none."""
    if not 0 <= percent < 100:
        raise UsageError(f"--margin {percent}: a percentage from 0 to below 100 is needed")
    return percent / 100


def check_sides(sides: Sequence[str], files: bool) -> None:
    """Raises UsageError unless there are two sides or more that are not the same, and of the kind that was meant."""
    if len(sides) < 2:
        raise UsageError(
            "compare takes two, A, then B: files (`compare A.py B.py --problem P`) or run ids (`history` lists them)"
        )
    if not files and (named := [side for side in sides if side.endswith(".py")]):
        raise UsageError(
            f"{named[0]} is a file: say of which problem (--problem P; without it, recorded runs are meant)"
        )
    for side in sides[1:]:
        if files and Path(side).resolve() == Path(sides[0]).resolve():
            raise UsageError(f"A and B are the same file, {side}; to see what chance does, compare it with a copy")
