"""The verb `board`: the local leaderboard as a table, or as text for other programs."""

import argparse
from typing import get_args

from harness.board import leaderboard, runs
from harness.board.places import By
from harness.cli import options, result_files
from harness.cli.result_files import CsvFile
from harness.core.checkout import Checkout
from harness.core.errors import Exit
from harness.kinds.registry import find_name
from harness.problems.shape_file import communication_words
from harness.report import board_view
from harness.report.console import new_console
from harness.report.render import terminal

DESCRIPTION = "Show the local leaderboard."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `board`."""
    options.add_problem(parser, "only this problem's boards")
    parser.add_argument(
        "--by",
        default="speedup",
        choices=get_args(By),
        help="what places come from: the speedup over the reference, estimated from all evaluations of a source (the "
        "default), GPU MODE's score, which is slower whenever the machine is, or the median times on the host's clock",
    )
    result_files.add_json(parser)
    result_files.add_markdown(parser)
    parser.add_argument("--csv", type=CsvFile, metavar="FILE", help="the same as CSV, a line an entry")
    result_files.add_old_format(parser, "markdown", "csv", "json")


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`board`: shows leaderboard.yaml."""
    files = result_files.of(namespace)
    found = leaderboard.load(checkout.leaderboard)
    names = {one.problem for one in (*found.entries, *found.held)}
    named = options.problem_of(namespace)
    problem = find_name(named, names, checkout) if named else None
    standings = runs.standings(found, checkout.root)
    communication = {name: communication_words(name, checkout) for name in names}
    for file in files.all:
        file.write_text(board_view.BOARD_TEXTS[file.what](found, problem, standings, namespace.by))
    if not files.take_stdout:
        terminal.show(board_view.document_of(found, problem, standings, communication, namespace.by), new_console())
    return Exit.OK
