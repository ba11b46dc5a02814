"""The verb `history`: how each file's score moved over its runs."""

import argparse
import sys

from harness.board import leaderboard, reports
from harness.cli import options, result_files
from harness.core.checkout import Checkout
from harness.core.decode import encode
from harness.core.errors import Exit
from harness.core.words import clean_line
from harness.kinds.registry import find_name
from harness.report.console import new_console
from harness.report.history import chosen, document_of, lines
from harness.report.render import terminal

DESCRIPTION = "Show how each file's score moved over its runs: those of runs/ and of the leaderboard."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb `history`."""
    options.add_problem(parser, "only this problem's runs")
    parser.add_argument("--author", metavar="A", help="only this author's runs")
    result_files.add_json(parser)
    result_files.add_old_format(parser, "json")


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`history`: prints every line of runs; what cannot be read is said behind them."""
    files = result_files.of(namespace)
    recorded, unreadable = reports.load_all(checkout.root)
    found = lines(leaderboard.load(checkout.leaderboard), recorded)
    named = options.problem_of(namespace)
    problem = find_name(named, {line.group[0] for line in found}, checkout) if named else None
    picked = chosen(found, problem, namespace.author)
    if files.json:
        files.json.write(encode(picked))
    if files.take_stdout:
        for message in unreadable:
            print(f"left out: {clean_line(message)}", file=sys.stderr)
        return Exit.OK
    terminal.show(document_of(picked, unreadable), new_console())
    return Exit.OK
