"""The verb `rejudge`: what entries are worth by today's problem and checks."""

import argparse

from rich.console import Console

from harness.board import judgements, leaderboard, runs
from harness.board.entries import Board, Judged
from harness.cli import options
from harness.cli.verify import chosen
from harness.core.checkout import ROOT
from harness.core.records import Exit, HarnessError, UsageError
from harness.evaluation import recorded, verify
from harness.evaluation.rejudge import Left, Rejudged, Row, applied, rejudged
from harness.kinds import settings
from harness.kinds.registry import find
from harness.report.progress import ProgressLine
from harness.report.rejudged import show, to_json


# ---- which ----------------------------------------------------------------------------------------------------------
def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `rejudge`."""
    parser.add_argument("--problem", metavar="P", help="only this problem's entries; a problem folder's path")
    parser.add_argument(
        "--entry", action="append", metavar="E", help="only this one, as `verify` names them; may be repeated"
    )
    parser.add_argument(
        "--stale",
        action="store_true",
        help="only those judged under another version of their problem, or an unknown one",
    )
    parser.add_argument("--rerun", action="store_true", help="run each again, even where its report would do")
    parser.add_argument("--apply", action="store_true", help="change the leaderboard (default: show what would change)")
    options.add_seconds(parser)
    parser.add_argument("--json", metavar="FILE", help=options.JSON_HELP)


def selected(found: Board, asked: argparse.Namespace) -> list[Judged]:
    """The entries that are meant, in the board's order; UsageError where there is none."""
    name = find(asked.problem).name if asked.problem else None
    if asked.entry:
        return list({id(one): one for text in asked.entry for one in [chosen(found, text, asked.problem)]}.values())
    everything: list[Judged] = [*found.entries, *found.held]
    chosen = [one for one in everything if name in (None, one.problem)]
    if not chosen:
        raise UsageError(f"no entry{f' of {name}' if name else ''} is on the leaderboard: there is nothing to judge")
    return chosen


# ---- the verb --------------------------------------------------------------------------------------------------------
def run_verb(asked: argparse.Namespace) -> Exit:
    """`rejudge`: judges again, shows the difference, applies it if asked to."""
    options.check_json(asked)
    settings.check_seconds("--seconds", asked.seconds)
    path = recorded.LEADERBOARD
    found = leaderboard.load(path)
    chosen = selected(found, asked)
    if asked.apply:
        leaderboard.check_writable(path)
    rows: list[Row] = []
    for one in chosen:
        try:
            setting = verify.setting_for(one, asked.problem, asked.seconds)
            version = judgements.problem_version(setting.problem, setting.suite)
        except UsageError as error:  # no such problem, suite or split any more
            if asked.entry:
                raise
            rows.append(Left(old=one, why=str(error)))
            continue
        if asked.stale and one.problem_version == version:
            continue
        try:
            with ProgressLine(Console(stderr=True)) as progress:
                row = rejudged(one, setting, asked, progress)
        except HarnessError as error:  # not on this machine, or not now: what the others are worth is not lost
            row = Left(old=one, why=str(error))
        if asked.apply and isinstance(row, Rejudged):
            for report in row.runs:
                runs.store(report, ROOT)
        rows.append(row)
    changes = [row for row in rows if isinstance(row, Rejudged) and row.new != row.old]
    try:
        if asked.apply and changes:
            leaderboard.change(path, lambda now: applied(now, changes))
    finally:  # what was found is shown all the same
        out, asked.json = asked.json, None  # it gets the whole result now, which an error must not replace
        if out != options.STDOUT:
            show(rows, changes, asked.apply, Console())
        if out:
            options.write_json(out, to_json(rows, asked.apply))
    return Exit.OK
