"""Show the local leaderboard."""

from dataclasses import dataclass

from harness.board import leaderboard, runs
from harness.board.places import By
from harness.cli import options, result_files
from harness.cli.declare import option
from harness.core.checkout import Checkout
from harness.core.errors import Exit
from harness.kinds.registry import find_name
from harness.problems.shape_file import communication_words
from harness.report import board_view


@dataclass(frozen=True, kw_only=True)
class BoardOrder(result_files.WithFiles):
    problem: str | None = options.problem("only this problem's boards")
    by: By = option(
        "speedup",
        "what places come from: the speedup over the reference, estimated from all evaluations of a source (the "
        "default), GPU MODE's score, which is slower whenever the machine is, or the median times on the host's "
        "clock",
    )
    format: str | None = result_files.old_format("markdown", "csv", "json")


def run(order: BoardOrder, checkout: Checkout) -> Exit:
    found = leaderboard.load(checkout.leaderboard)
    names = {one.problem for one in found.judged}
    problem = find_name(order.problem, names, checkout) if order.problem else None
    standings = runs.standings(found, checkout.root)
    communication = {name: communication_words(name, checkout) for name in names}
    return result_files.tell(
        order,
        board_view.document_of(found, problem, standings, communication, order.by),
        json=lambda: board_view.board_json(found, problem, standings, order.by),
        csv=lambda: board_view.board_csv(found, problem, standings, order.by),
    )
