"""The verb `compare`: files head to head, or recorded runs."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.board import leaderboard, reports
from harness.cli import options, result_files
from harness.cli.result_files import ResultFiles
from harness.core.checkout import Checkout, shown
from harness.core.errors import Exit, UsageError
from harness.core.metrics import UNITS
from harness.core.records import Submission
from harness.evaluation.compare import FAIL_IF, MARGIN, Comparison, exit_code, live, rule
from harness.evaluation.compare_runs import recorded
from harness.evaluation.leader import LEADER, leading, leading_source
from harness.kinds import settings
from harness.kinds.kind import Order, Plan, Setting
from harness.kinds.registry import plan_of, read_submission
from harness.kinds.settings import Asked
from harness.machine import host
from harness.problems.shape_file import problem_names
from harness.report.comparison import document_of, to_json
from harness.report.console import new_console
from harness.report.progress import ProgressLine
from harness.report.render import FORMATS, terminal

DESCRIPTION = f"""Compare files, or recorded runs, head to head. Two files are checked, and measured in turn on the same
inputs. Of two recorded runs, the recorded measurements are compared. Nothing is recorded.

{rule(MARGIN, UNITS["us"])} Of solvers, costs are compared: B is CHEAPER or DEARER."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is compared: files where `asked` says of which problem, else recorded runs. `margin` is a fraction. A is the
    board's leader where `against` says so."""

    sides: tuple[str, ...]
    asked: Asked | None
    margin: float
    fail_if: tuple[str, ...]
    quiet: bool
    files: ResultFiles
    against: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb `compare`."""
    options.add_setting(parser, cpu_suite="cpu")
    options.add_unconfined(parser)
    options.add_quiet(parser, "the summary, a line for each B")
    result_files.add_for_ci(parser)
    parser.add_argument(
        "sides",
        nargs="+",
        metavar="[PROBLEM] FILE_OR_RUN",
        help="the files' problem, then A, then B; further files or runs are each compared with A",
    )
    parser.add_argument("--problem", metavar="PROBLEM", help="the same, as an option; recorded runs need none")
    parser.add_argument(
        "--against",
        choices=[LEADER],
        help="A is the source that leads the board of this problem, suite, machine class and rank count; every file is "
        "a B",
    )
    parser.add_argument(
        "--fail-if",
        action="append",
        default=[],
        choices=[*FAIL_IF],
        help=f"exit with {Exit.FAIL_IF:d} if the summary's word for B is this one (solvers' costs: cheaper, dearer); "
        "may be repeated",
    )
    parser.add_argument(
        "--margin",
        type=float,
        default=100 * MARGIN,
        metavar="PERCENT",
        help="largest difference that counts as the same (default: 2)",
    )
    options.add_seconds(parser)
    options.add_engine(parser)


def run(namespace: argparse.Namespace, checkout: Checkout) -> int:
    """`compare`: each file or recorded run after the first against the first."""
    problem, sides = options.problem_and_files(namespace.problem, namespace.sides)
    if namespace.against and problem is None:
        problem = sides[0]  # which names its problem itself
    is_of_files = problem is not None
    order = Options(
        sides=sides,
        asked=options.asked(namespace, problem=problem, evaluator="ours") if is_of_files else None,
        margin=margin_of(namespace.margin),
        fail_if=tuple(namespace.fail_if),
        quiet=namespace.quiet,
        files=result_files.of(namespace),
        against=namespace.against,
    )
    _check_kinds(order.sides, is_of_files, checkout)
    check_sides(order.sides, files=is_of_files, against=order.against)
    if not is_of_files and (given := _given(namespace)):
        raise UsageError(f"--{given[0]}: recorded runs are timed already; this option is for files (--problem)")
    return compare(order, checkout)


def _check_kinds(sides: Sequence[str], is_of_files: bool, checkout: Checkout) -> None:
    """Raises UsageError where a problem stands before runs, or a run beside files."""
    if not is_of_files and sides[0] in problem_names(checkout):
        raise UsageError(f"{sides[0]} is a problem: recorded runs name theirs, so leave it out; or name files (.py)")
    runs = [side for side in sides if is_of_files and not Path(side).exists() and (checkout.runs / side).is_dir()]
    if runs:
        source = shown(checkout.runs / runs[0] / "submission.py")
        raise UsageError(f"{runs[0]} is a recorded run: name two runs without a problem, or its source: {source}")


def _given(namespace: argparse.Namespace) -> list[str]:
    """The options that were given and that only an evaluation can follow."""
    values = {
        "ranks": namespace.ranks,
        "suite": namespace.suite,
        "device": namespace.device,
        "timeout": namespace.timeout_s,
        "seconds": namespace.seconds,
        "unconfined": not namespace.confined,
    }
    return [name for name, value in values.items() if value]


def compare(order: Options, checkout: Checkout) -> int:
    """Compares, shows, and exits as --fail-if says."""
    if order.asked is None:
        first, *others = (reports.find(side, checkout.root) for side in order.sides)
        board = leaderboard.load(checkout.leaderboard)
        found = [recorded(first, other, order.margin, board) for other in others]
    else:
        setting = settings.setting(order.asked, checkout)
        if order.against is None:
            found = _compare_files(order, setting, None, checkout)
        else:
            entry = leading(leaderboard.load(checkout.leaderboard), setting)
            found = _compare_files(order, setting, leading_source(entry, setting, checkout), checkout)
            found = [replace(one, a=replace(one.a, run_id=entry.run_id)) for one in found]
    code = exit_code(found, order.fail_if)
    document = document_of(found, order.fail_if)
    if not order.files.take_stdout:
        terminal.show(document, new_console(), order.quiet)
    if order.files.json:
        order.files.json.write(to_json(found, code))
    if order.files.markdown:
        order.files.markdown.write_text(FORMATS["markdown"](document))
    if order.files.junit:
        order.files.junit.write_text(FORMATS["junit"](document))
    return code


def _compare_files(order: Options, setting: Setting, leader: Submission | None, checkout: Checkout) -> list[Comparison]:
    files = [read_submission(setting.problem, Path(side), checkout) for side in order.sides]
    first, *others = [leader, *files] if leader else files

    def planned(submission: Submission) -> Plan:
        wanted = Order(setting=setting, submission=submission, mode="leaderboard", author=host.login(), opponent=first)
        return plan_of(wanted)

    with ProgressLine(new_console(stderr=True), silent=order.quiet) as progress:
        found = []
        for other in others:
            progress.note(f"B, {other.name}, against A, {first.name}: tests, then timed in turn")
            found.append(live(planned(other), order.margin, progress))
        return found


def margin_of(percent: float) -> float:
    """The margin as a fraction. Raises UsageError for one outside 0 to 100 %."""
    if not 0 <= percent < 100:
        raise UsageError(f"--margin {percent}: a percentage from 0 to below 100 is needed")
    return percent / 100


def check_sides(sides: Sequence[str], files: bool, against: str | None = None) -> None:
    """Raises UsageError unless there are at least two sides, all different from A, and files exactly where `files`.
    `against` takes A's place."""
    if against:
        return
    if len(sides) < 2:
        raise UsageError(
            "compare takes two or more, A, then B: files (`compare P A.py B.py`, or `compare P B.py --against leader`) "
            "or run ids (`history` lists them)"
        )
    if not files and (named := [side for side in sides if side.endswith(".py")]):
        raise UsageError(
            f"{named[0]} is a file: say of which problem (--problem P; without it, recorded runs are meant)"
        )
    for side in sides[1:]:
        if files and Path(side).resolve() == Path(sides[0]).resolve():
            raise UsageError(f"A and B are the same file, {side}; to see what chance does, compare it with a copy")
