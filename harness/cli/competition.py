"""The verb `competition`: the problems of a KernelBot competition, listed or evaluated."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.rule import Rule

from harness.board import leaderboard
from harness.cli import options
from harness.cli.result_files import JsonFile
from harness.contest.rules import RANKED_BY, Competition, Evaluated, Listed, problem_of, read
from harness.core.checkout import Checkout
from harness.core.decode import did_you_mean
from harness.core.errors import Exit, HarnessError, UsageError
from harness.core.records import Submission
from harness.core.words import clean, clean_line
from harness.evaluation import recorded
from harness.kinds import registry, settings
from harness.kinds.folder.known import remember
from harness.kinds.settings import Asked
from harness.machine import host
from harness.problems.submission import directives, read_submission
from harness.report import terminal
from harness.report.console import new_console
from harness.report.contest import competition_json, show, show_list
from harness.report.progress import ProgressLine

DESCRIPTION = """Evaluate all problems of a KernelBot competition file, one after the other, with a summary over all of
them. --list shows the problems, their deadlines and who leads here."""
RULE_CHARS = 80  # of a line between problems


@dataclass(frozen=True, kw_only=True)
class Options:
    """Which of the competition's problems are evaluated and how. Of `asked` the problem and the file are left open."""

    file: Path
    submissions: tuple[Path, ...]
    only: tuple[str, ...]
    folders: bool  # rather than this checkout's problems of the same name
    asked: Asked
    author: str
    record: bool
    json: JsonFile | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `competition`."""
    parser.add_argument(
        "competition", type=Path, metavar="YAML", help="a KernelBot competition file, such as amd_distributed.yaml"
    )
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        default=[],
        metavar="SUBMISSION",
        help="submissions, each for the problem in its `#!POPCORN leaderboard` line (default: each problem's own)",
    )
    parser.add_argument("--list", action="store_true", help="only show problems, deadlines and who leads here")
    parser.add_argument(
        "--only", metavar="NAME", action="append", default=[], help="only this problem; may be repeated"
    )
    parser.add_argument(
        "--folders",
        action="store_true",
        help="evaluate the file's folders, also where this checkout has a problem of that name",
    )
    options.add_setting(parser, cpu_suite="cpu")
    options.add_seconds(parser)
    options.add_unconfined(parser)
    options.add_recording(parser)
    options.add_engine(parser)


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`competition`: lists the problems, or evaluates them."""
    order = Options(
        file=namespace.competition,
        submissions=tuple(namespace.files),
        only=tuple(namespace.only),
        folders=namespace.folders,
        asked=options.asked(namespace, problem=""),
        author=namespace.author or host.login(),
        record=not namespace.no_record,
        json=namespace.json,
    )
    competition = read(order.file)
    remember({one.name: order.file.resolve().parent / one.directory for one in competition.problems}, checkout)
    chosen = _chosen(competition, order.only)
    files = _assigned([read_submission(file, checkout.root) for file in order.submissions], chosen)
    if not namespace.list:
        return evaluate(order, competition, chosen, files, checkout)
    show_list(competition, chosen, leaderboard.load(checkout.leaderboard), _console(order), checkout)
    if order.json:
        order.json.write(competition_json(competition, []))
    return Exit.OK


def evaluate(
    order: Options,
    competition: Competition,
    chosen: Sequence[Listed],
    files: Mapping[str, Submission],
    checkout: Checkout,
) -> Exit:
    """Evaluates the problems one after the other: one that fails does not keep the others from being evaluated. Exits
    with the first failure's code."""
    console = _console(order)
    done = []
    for listed in chosen:
        console.print(Rule(clean_line(listed.name), align="left"), width=min(console.width, RULE_CHARS))
        one = _evaluated(order, competition, listed, files.get(listed.name), console, checkout)
        if one.error is not None:
            console.print(f"error: {clean(str(one.error))}", markup=False, highlight=False)
        console.print()
        done.append(one)
    show(competition, done, console)
    if order.json:
        order.json.write(competition_json(competition, done))
    return next((one.exit_code for one in done if one.exit_code != Exit.OK), Exit.OK)


def _console(order: Options) -> Console:
    return new_console(stderr=order.json is not None and order.json.is_stdout)


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
    order: Options,
    competition: Competition,
    listed: Listed,
    submission: Submission | None,
    console: Console,
    checkout: Checkout,
) -> Evaluated:
    closes, name = competition.closes(listed), submission.name if submission else ""
    try:
        problem = problem_of(listed, order.file, order.folders, checkout)
        setting = settings.setting(order.asked, checkout, problem)
        submission = submission or registry.read_submission(problem, None, checkout)
        name = submission.name
        with ProgressLine(new_console(stderr=True)) as progress:
            ran = recorded.evaluated(
                setting,
                submission,
                "leaderboard",
                order.author,
                checkout,
                record=order.record,
                progress=progress,
                by=RANKED_BY,
            )
    except HarnessError as error:
        return Evaluated(listed=listed, closes=closes, submission=name, error=error)
    terminal.show(ran.report, ran.standing, ran.place, console, by=RANKED_BY)
    return Evaluated(
        listed=listed, closes=closes, submission=name, report=ran.report, place=ran.place, error=ran.unrecorded
    )
