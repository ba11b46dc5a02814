"""The verb `verify`: does an entry's source reproduce what the entry claims?"""

import argparse

from rich.console import Console
from rich.text import Text

from harness.board import judgements, leaderboard, runs
from harness.board.entries import Board, Judged
from harness.cli import options
from harness.core.checkout import ROOT
from harness.core.records import EvalReport, Exit, UsageError
from harness.core.words import clean_line
from harness.evaluation import recorded
from harness.evaluation.verify import (
    EXITS,
    LAUNCHES,
    LEAST_LAUNCHES,
    applied,
    check_machine,
    deciding,
    decision_of,
    launch,
    setting_for,
)
from harness.kinds import settings
from harness.kinds.registry import find
from harness.machine import host
from harness.report.decision import show, show_decision, to_json
from harness.report.progress import ProgressLine


# ---- the verb --------------------------------------------------------------------------------------------------------
def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `verify`."""
    parser.add_argument("entry", help="its run id or the beginning of it (`board --format json`), or its file's name")
    parser.add_argument("--problem", metavar="P", help="only this problem's entries; a problem folder's path")
    parser.add_argument("--launches", type=int, default=LAUNCHES, metavar="N", help=f"3 or more (default: {LAUNCHES})")
    options.add_seconds(parser)
    parser.add_argument("--json", metavar="FILE", help=options.JSON_HELP)
    options.add_quiet(parser, "the decision, in one line")


def chosen(found: Board, text: str, problem: str | None) -> Judged:
    """The entry that is meant, on this machine where there are several; see board.find."""
    here = host.environment("", 0).machine_class  # a CPU's, which does not depend on the rank count
    return leaderboard.find(found, text, find(problem).name if problem else None, here)


def run_verb(asked: argparse.Namespace) -> Exit:
    """`verify`: launches, decision, and the decision on the board."""
    if asked.launches < LEAST_LAUNCHES:
        raise UsageError(f"--launches {asked.launches}: {LEAST_LAUNCHES} are the least, as two are dropped")
    options.check_json(asked)
    settings.check_seconds("--seconds", asked.seconds)
    path = recorded.LEADERBOARD
    found = leaderboard.load(path)
    one = chosen(found, asked.entry, asked.problem)
    check_machine(one)
    setting = setting_for(one, asked.problem, asked.seconds)
    version = judgements.problem_version(setting.problem, setting.suite)
    if one.problem_version not in (None, version):
        raise UsageError(
            f"{one.run_id} was judged under another version of {one.problem} than this checkout's: "
            f"`python -m harness rejudge --entry {one.run_id} --apply` first"
        )
    submission = runs.load_source(one.sha256, one.file, ROOT, one.run_id)
    leaderboard.check_writable(path)
    reports: list[EvalReport] = []
    while sum(report.figures is not None for report in reports) < asked.launches:
        said = f"launch {len(reports) + 1} of {asked.launches}: {one.file}, {one.run_id}"
        if not asked.quiet:
            Console(stderr=True).print(Text(clean_line(said)), soft_wrap=True)
        with ProgressLine(Console(stderr=True), silent=asked.quiet) as progress:
            report = launch(one, setting, submission, progress)
        runs.store(report, ROOT)
        reports.append(report)
        if deciding(reports) is not None:
            break  # what holds the entry is known
    decision = decision_of(one, reports, asked.launches)
    try:
        leaderboard.change(path, lambda now: applied(now, one, decision, reports, version))
    finally:  # what was measured is shown all the same
        out, asked.json = asked.json, None  # it gets the whole result now, which an error must not replace
        if out != options.STDOUT:
            if asked.quiet:
                show_decision(decision, Console())
            else:
                show(one, decision, reports, Console())
        if out:
            options.write_json(out, to_json(one, decision, reports))
    return EXITS[decision.word]
