"""The verb `competition`: the problems of a KernelBot competition, listed or evaluated."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from harness.board import leaderboard
from harness.cli import options
from harness.contest.rules import Competition, Evaluated, Listed, problem_of, read
from harness.core.checkout import ROOT
from harness.core.decode import did_you_mean
from harness.core.records import Exit, HarnessError, Submission, UsageError
from harness.core.words import clean, clean_line
from harness.evaluation import recorded
from harness.kinds import settings
from harness.kinds.kind import Setting
from harness.machine import host
from harness.problems.submission import directives, read_submission
from harness.report import terminal
from harness.report.contest import competition_json, show, show_list
from harness.report.progress import ProgressLine


# ---- the command line ------------------------------------------------------------------------------------------------
def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `competition`."""
    parser.add_argument("competition", type=Path, help="a KernelBot competition file, such as amd_distributed.yaml")
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="SUBMISSION",
        help="each for the problem that its `#!POPCORN leaderboard` line names; default: each problem's own",
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
    options.add_recording(parser)


def run_verb(asked: argparse.Namespace) -> Exit:
    """Lists the problems, or evaluates them one after the other: one that fails does not keep the others from being
    evaluated. Exits with the first failure's code."""
    options.check_json(asked)
    competition = read(asked.competition)
    chosen = _chosen(competition, asked.only)
    files = _assigned([read_submission(file, ROOT) for file in asked.files], chosen)
    console = Console(stderr=asked.json == options.STDOUT)
    if asked.list:
        show_list(competition, chosen, leaderboard.load(recorded.LEADERBOARD), console)
        if asked.json:
            options.write_json(asked.json, competition_json(competition, []))
        return Exit.OK
    done = []
    for listed in chosen:
        console.rule(clean_line(listed.name), align="left")
        one = _evaluated(asked, competition, listed, files.get(listed.name), console)
        if one.error is not None:
            console.print(f"error: {clean(str(one.error))}", markup=False, highlight=False)
        console.print()
        done.append(one)
    show(competition, done, console)
    if asked.json:
        options.write_json(asked.json, competition_json(competition, done))
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
    asked: argparse.Namespace, competition: Competition, listed: Listed, submission: Submission | None, console: Console
) -> Evaluated:
    closes, name = competition.closes(listed), submission.name if submission else ""
    try:
        problem = problem_of(listed, asked.competition, asked.folders)
        setting: Setting = settings.setting(asked, problem)
        submission = submission or read_submission(problem.default_submission(), ROOT)
        name = submission.name
        author = asked.author or host.login()
        with ProgressLine(Console(stderr=True)) as progress:
            ran = recorded.evaluated(
                setting, submission, "leaderboard", author, record=not asked.no_record, progress=progress
            )
    except HarnessError as error:
        return Evaluated(listed=listed, closes=closes, submission=name, error=error)
    terminal.show(ran.report, ran.standing, ran.place, console)
    return Evaluated(
        listed=listed, closes=closes, submission=name, report=ran.report, place=ran.place, error=ran.unrecorded
    )
