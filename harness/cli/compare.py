"""The verb `compare`: files head to head, or recorded runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.board import leaderboard, reports
from harness.cli import options, result_files
from harness.cli.declare import argument, given, option
from harness.core.accounts import login
from harness.core.checkout import Checkout, shown
from harness.core.errors import Exit, UsageError
from harness.core.metrics import UNITS
from harness.core.records import Submission
from harness.evaluation.compare import FAIL_IF, MARGIN, Comparison, exit_code, live, rule
from harness.evaluation.compare_runs import recorded
from harness.evaluation.leader import LEADER, leading, leading_source
from harness.kinds import settings
from harness.kinds.kind import Order, Plan
from harness.kinds.registry import plan_of, read_submission
from harness.kinds.settings import Asked
from harness.problems.shape_file import problem_names
from harness.report.comparison import document_of, to_json
from harness.report.console import new_console
from harness.report.progress import ProgressLine

DESCRIPTION = f"""Compare files, or recorded runs, head to head. Two files are checked, and measured in turn on the same
inputs. Of two recorded runs, the recorded measurements are compared. Nothing is recorded.

{rule(MARGIN, UNITS["us"])} Of solvers, costs are compared: B is CHEAPER or DEARER."""
OF_A_RUN = ("ranks", "suite", "device", "timeout_s", "seconds", "confined")


@dataclass(frozen=True, kw_only=True)
class CompareOrder(options.ByEngine, result_files.ForCi, options.Sandboxed, options.Timed, options.OnSetting):
    """What is compared: files of `problem`, which may also be the first of `sides`, or recorded runs. `margin` is in
    percent. A is the board's leader where `against` says so."""

    sides: tuple[str, ...] = argument(
        "the files' problem, then A, then B; further files or runs are each compared with A",
        metavar="[PROBLEM] FILE_OR_RUN",
    )
    problem: str | None = option(None, "the same, as an option; recorded runs need none", metavar="PROBLEM")
    against: str | None = option(
        None,
        "A is the source that leads the board of this problem, suite, machine class and rank count; every file is a B",
        choices=[LEADER],
    )
    fail_if: tuple[str, ...] = option(
        (),
        f"exit with {Exit.FAIL_IF:d} if the summary's word for B is this one (solvers' costs: cheaper, dearer); "
        "may be repeated",
        choices=[*FAIL_IF],
    )
    margin: float = option(100 * MARGIN, "largest difference that counts as the same (default: 2)", metavar="PERCENT")
    quiet: bool = options.quiet("the summary, a line for each B")


def run(order: CompareOrder, checkout: Checkout) -> int:
    """`compare`: each file or recorded run after the first against the first. Exits as --fail-if says."""
    problem, sides = options.problem_and_files(order.problem, order.sides)
    if order.against and problem is None:
        problem = sides[0]  # which names its problem itself
    margin = margin_of(order.margin)
    _check_kinds(sides, problem is not None, checkout)
    check_sides(sides, files=problem is not None, against=order.against)
    if problem is not None:
        found = _of_files(order, options.asked(order, problem=problem, evaluator="ours"), sides, margin, checkout)
    elif of_a_run := given(order, *OF_A_RUN):
        raise UsageError(f"{of_a_run[0]}: recorded runs are timed already; this option is for files (--problem)")
    else:
        first, *others = (reports.find(side, checkout.root) for side in sides)
        board = leaderboard.load(checkout.leaderboard)
        found = [recorded(first, other, margin, board) for other in others]
    code = exit_code(found, order.fail_if)
    result_files.tell(order, document_of(found, order.fail_if), json=lambda: to_json(found, code))
    return code


def _check_kinds(sides: Sequence[str], is_of_files: bool, checkout: Checkout) -> None:
    """Raises UsageError where a problem stands before runs, or a run beside files."""
    if not is_of_files and sides[0] in problem_names(checkout):
        raise UsageError(f"{sides[0]} is a problem: recorded runs name theirs, so leave it out; or name files (.py)")
    runs = [side for side in sides if is_of_files and not Path(side).exists() and (checkout.runs / side).is_dir()]
    if runs:
        source = shown(checkout.runs / runs[0] / "submission.py")
        raise UsageError(f"{runs[0]} is a recorded run: name two runs without a problem, or its source: {source}")


def _of_files(
    order: CompareOrder, asked: Asked, sides: Sequence[str], margin: float, checkout: Checkout
) -> list[Comparison]:
    """Each file after the first against the first, or every file against the leader."""
    setting = settings.setting(asked, checkout)
    leader = leading(leaderboard.load(checkout.leaderboard), setting) if order.against else None
    sources = [leading_source(leader, setting, checkout)] if leader else []
    first, *others = sources + [read_submission(setting.problem, Path(side), checkout) for side in sides]

    def planned(submission: Submission) -> Plan:
        wanted = Order(setting=setting, submission=submission, mode="leaderboard", author=login(), opponent=first)
        return plan_of(wanted)

    with ProgressLine(new_console(stderr=True), silent=order.quiet) as progress:
        found = []
        for other in others:
            progress.note(f"B, {other.name}, against A, {first.name}: tests, then timed in turn")
            found.append(live(planned(other), margin, progress))
    return [replace(one, a=replace(one.a, run_id=leader.run_id)) for one in found] if leader else found


def margin_of(percent: float) -> float:
    """The margin as a fraction. Raises UsageError for one outside 0 to 100 %."""
    if not 0 <= percent < 100:
        raise UsageError(f"--margin {percent}: a percentage from 0 to below 100 is needed")
    return percent / 100


def check_sides(sides: Sequence[str], files: bool, against: str | None = None) -> None:
    """UsageError unless all sides differ from A, files where `files`; `against` takes A's place."""
    if against:
        return
    if len(sides) < 2:
        raise UsageError(
            "compare takes two or more, A, then B: files (`compare P A.py B.py`, or `compare P B.py --against leader`) "
            "or run ids (`history` lists them)"
        )
    if not files and (named := [side for side in sides if side.endswith(".py") or options.may_be_submission(side)]):
        raise UsageError(
            f"{named[0]} is a file: say of which problem (--problem P; without it, recorded runs are meant)"
        )
    for side in sides[1:]:
        if files and Path(side).resolve() == Path(sides[0]).resolve():
            raise UsageError(f"A and B are the same file, {side}; to see what chance does, compare it with a copy")
