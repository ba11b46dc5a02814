"""The verb `contest settle`: the best sources of a problem's leading teams meet head to head.

leaderboard.yaml has one entry for each file of a team, the latest. A team's best source may have been replaced there.
So `settle` runs on a board of the contest's standings, in a file of its own, and the order that it finds is kept in
leaderboard.yaml, where standings look for it, with what another `settle` has kept there meanwhile.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from harness.board import leaderboard
from harness.board.entries import Board
from harness.board.entries import order as best_first
from harness.cli.contest_orders import ContestSettleOrder
from harness.cli.contest_verbs import HERE, World, actor, runnable_contest
from harness.cli.settle import SettleOrder
from harness.cli.settle import run as settle_board
from harness.contest import rules, standings
from harness.core.checkout import Checkout
from harness.core.decode import part
from harness.core.errors import Exit
from harness.core.files import scratch
from harness.evaluation.settle import TOP


@dataclass(frozen=True)
class _WithBoard(Checkout):
    """The checkout, with another file for its board."""

    board: Path

    @property
    def leaderboard(self) -> Path:
        return self.board


def settle(order: ContestSettleOrder, checkout: Checkout, world: World = HERE) -> Exit:
    """Run the best sources of a problem's leading teams head to head, for places that they share."""
    found, now = runnable_contest(order.contest, checkout), world.now()
    found.at(now).check_organiser(actor(order.by, found, world))
    listed = found.rules.problem(order.problem)
    problem = rules.problem_of(listed, found.file, folders=False, checkout=checkout)
    board = leaderboard.load(checkout.leaderboard)
    leaderboard.check_writable(checkout.leaderboard)
    of_contest = _placed(order.problem, standings.full(found.rules, found.log.records(), board, now), board)
    asked = part(
        found.rules.setting,
        SettleOrder,
        problem=str(problem.folder) if problem.is_upstream else problem.name,
        top=TOP if order.top is None else order.top,
        confined=order.confined,
        quiet=order.quiet,
    )
    checkout.cache.mkdir(parents=True, exist_ok=True)  # where no submission can see it
    with scratch("board-", checkout.cache) as folder:
        place = _WithBoard(checkout.root, folder / "leaderboard.yaml")
        leaderboard.change(place.leaderboard, lambda _: of_contest)
        return settle_board(
            asked,
            place,
            kept=checkout.leaderboard,
            frozen=lambda: standings.frozen_since(found.rules, found.state(), world.now()),
        )


def _placed(problem: str, shown: standings.Standings, board: Board) -> Board:
    """The board with the best source of each team, under the name of its file, as its only entries."""
    teams = [team for one in shown.problems if one.problem == problem for team in one.teams]
    entries = (replace(team.row.entry, file=team.entry.file) for team in teams)
    return replace(board, entries=tuple(sorted(entries, key=best_first)), held=())
