"""Evaluate all problems of a KernelBot competition file, one after the other, with a summary over all of
them. --list shows the problems, their deadlines and who leads here."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.rule import Rule

from harness.board import leaderboard
from harness.cli import options, result_files
from harness.cli.declare import argument, option
from harness.contest.rules import RANKED_BY, Competition, Evaluated, Listed, problem_of, read
from harness.core import accounts
from harness.core.checkout import Checkout
from harness.core.decode import did_you_mean
from harness.core.errors import Exit, HarnessError, UsageError
from harness.core.records import Submission
from harness.core.words import clean, clean_line
from harness.evaluation import recorded
from harness.kinds import registry, settings
from harness.kinds.folder.known import remember
from harness.kinds.kind import Order
from harness.problems.submission import directives, read_submission
from harness.report import evaluation
from harness.report.console import new_console
from harness.report.contest import competition_json, document_of, list_document
from harness.report.progress import ProgressLine
from harness.report.render import terminal
from harness.report.summary import OnBoard

RULE_CHARS = 80  # of a line between problems


@dataclass(frozen=True, kw_only=True)
class CompetitionOrder(
    options.ByEngine, result_files.WithJson, options.Recorded, options.Sandboxed, options.Timed, options.OnSetting
):
    competition: Path = argument("a KernelBot competition file, such as amd_distributed.yaml", metavar="YAML")
    files: tuple[Path, ...] = argument(
        "submissions, each for the problem in its `#!POPCORN leaderboard` line (default: each problem's own)",
        metavar="SUBMISSION",
        default=(),
    )
    list: bool = option(False, "only show problems, deadlines and who leads here")
    only: tuple[str, ...] = option((), "only this problem; may be repeated", metavar="NAME")
    folders: bool = option(False, "evaluate the file's folders, also where this checkout has a problem of that name")


def run(order: CompetitionOrder, checkout: Checkout) -> Exit:
    competition = read(order.competition)
    remember({one.name: order.competition.resolve().parent / one.directory for one in competition.problems}, checkout)
    chosen = _chosen(competition, order.only)
    files = _assigned([read_submission(file, checkout.root) for file in order.files], chosen)
    console = new_console(stderr=order.json is not None and order.json.is_stdout)
    if order.list:
        terminal.show(list_document(competition, chosen, leaderboard.load(checkout.leaderboard), checkout), console)
        if order.json:
            order.json.write(competition_json(competition, []))
        return Exit.OK
    done = []
    for listed in chosen:  # one that fails does not keep the others from being evaluated
        console.print(Rule(clean_line(listed.name), align="left"), width=min(console.width, RULE_CHARS))
        one = _evaluated(order, competition, listed, files.get(listed.name), console, checkout)
        if one.error is not None:
            console.print(f"error: {clean(str(one.error))}", markup=False, highlight=False)
        console.print()
        done.append(one)
    terminal.show(document_of(competition, done), console)
    if order.json:
        order.json.write(competition_json(competition, done))
    return next((one.exit_code for one in done if one.exit_code != Exit.OK), Exit.OK)


def _chosen(competition: Competition, only: Sequence[str]) -> list[Listed]:
    names = [listed.name for listed in competition.problems]
    if unknown := [name for name in only if name not in names]:
        raise UsageError(
            f"--only {unknown[0]}: no such problem in it{did_you_mean(unknown[0], names)} (known: {', '.join(names)})"
        )
    return [listed for listed in competition.problems if not only or listed.name in only]


def _assigned(submissions: Sequence[Submission], chosen: Sequence[Listed]) -> dict[str, Submission]:
    """The submissions by the name of the problem that each is for."""
    names = [listed.name for listed in chosen]
    assigned: dict[str, Submission] = {}
    for submission in submissions:
        name = directives(submission.source, submission.name).leaderboard
        if name is None:
            raise UsageError(
                f"{submission.name}: for which problem? Begin it with a line `#!POPCORN leaderboard {names[0]}`"
            )
        if name not in names:
            raise UsageError(
                f"{submission.name}: its leaderboard '{name}' is not evaluated here{did_you_mean(name, names)} "
                f"(these are: {', '.join(names)})"
            )
        if name in assigned:
            raise UsageError(f"{submission.name} and {assigned[name].name} are both for {name}; give one of them")
        assigned[name] = submission
    return assigned


def _evaluated(
    order: CompetitionOrder,
    competition: Competition,
    listed: Listed,
    submission: Submission | None,
    console: Console,
    checkout: Checkout,
) -> Evaluated:
    closes, name = competition.closes(listed), submission.name if submission else ""
    try:
        problem = problem_of(listed, order.competition, order.folders, checkout)
        setting = settings.setting(options.asked(order, problem=""), checkout, problem)
        submission = submission or registry.read_submission(problem, None, checkout)
        name = submission.name
        author = order.author or accounts.login()
        asked = Order(setting=setting, submission=submission, mode="leaderboard", author=author)
        with ProgressLine(new_console(stderr=True)) as progress:
            ran = recorded.evaluated(asked, checkout, record=order.record, progress=progress, by=RANKED_BY)
    except HarnessError as error:
        return Evaluated(listed=listed, closes=closes, submission=name, error=error)
    terminal.show(
        evaluation.document_of(ran.report, OnBoard(board=ran.standing, place=ran.place, by=RANKED_BY)), console
    )
    return Evaluated(
        listed=listed, closes=closes, submission=name, report=ran.report, place=ran.place, error=ran.unrecorded
    )
