"""Show how each file's score moved over its runs: those of runs/ and of the leaderboard."""

import sys
from dataclasses import dataclass

from harness.board import leaderboard, reports
from harness.cli import options, result_files
from harness.cli.declare import option
from harness.core.checkout import Checkout
from harness.core.decode import encode
from harness.core.errors import Exit
from harness.core.words import clean_line
from harness.kinds.registry import find_name
from harness.report.history import chosen, document_of, lines


@dataclass(frozen=True, kw_only=True)
class HistoryOrder(result_files.WithFiles):
    problem: str | None = options.problem("only this problem's runs")
    author: str | None = option(None, "only this author's runs", metavar="A")
    format: str | None = result_files.old_format("json")


def run(order: HistoryOrder, checkout: Checkout) -> Exit:
    """`history`: prints every line of runs; what cannot be read is said behind them."""
    recorded, unreadable = reports.load_all(checkout.root)
    found = lines(leaderboard.load(checkout.leaderboard), recorded)
    problem = find_name(order.problem, {line.group[0] for line in found}, checkout) if order.problem else None
    picked = chosen(found, problem, order.author)
    result_files.tell(order, document_of(picked, unreadable), json=lambda: encode(picked))
    for message in unreadable if result_files.of(order).take_stdout else ():
        print(f"left out: {clean_line(message)}", file=sys.stderr)
    return Exit.OK
