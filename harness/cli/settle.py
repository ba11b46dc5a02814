"""Settle the order of a board's leading entries. Runs their stored sources head to head in rounds: in
each round every file meets every other in a launch of its own, timed in turn on the same inputs. Ends when all
neighbours are in order or after the last round, and keeps the order on the leaderboard. Called again with the same
files it goes on. An entry that fails is left out; after Ctrl-C the complete rounds count."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.text import Text

from harness.board import leaderboard
from harness.board.entries import Board
from harness.board.noise import USUAL, head_to_head, usual
from harness.cli import options, result_files
from harness.cli.declare import option
from harness.core.checkout import Checkout
from harness.core.errors import Exit, UsageError
from harness.core.words import clean_line
from harness.evaluation import settle
from harness.evaluation.meetings import Meetings
from harness.evaluation.settle import TOP
from harness.kinds import settings
from harness.kinds.kind import Progress
from harness.kinds.registry import find
from harness.report.console import new_console
from harness.report.progress import ProgressLine
from harness.report.settled import document_of, to_json

ROUNDS = ", ".join(f"{one.rounds} on {name.upper()}s" for name, one in USUAL.items())


@dataclass(frozen=True, kw_only=True)
class SettleOrder(options.ByEngine, result_files.WithFiles, options.Sandboxed, options.Timed):
    problem: str = options.problem(
        "whose entries meet: a problem's name, or a problem folder's path",
        "which problem? `python -m harness board` lists those that have entries",
    )
    top: int = option(TOP, f"how many entries meet (default: {TOP})")
    rounds: int | None = option(None, f"at most so many more, an even number (default: {ROUNDS})")
    suite: str | None = option(None, "the board's suite, where the problem has several boards", metavar="S")
    ranks: int | None = option(None, "the board's rank count, likewise")
    quiet: bool = options.quiet("the order")


def run(
    order: SettleOrder,
    checkout: Checkout,
    kept: Path | None = None,
    frozen: Callable[[], datetime | None] = lambda: None,
) -> Exit:
    """`settle`: runs the rounds, keeps the order on the board in the file `kept` (None: the checkout's board) and shows
    it. `frozen` says since when the public sees no new orders, if it does not. Raises UsageError for what cannot be
    settled here, and what ended the rounds early once the complete ones are kept."""
    if order.top < 2:
        raise UsageError(f"--top {order.top}: an order needs at least 2 entries")
    if order.rounds is not None and order.rounds < 2:
        raise UsageError(f"--rounds {order.rounds}: at least 2 are needed, to see what launches differ by")
    settings.check_seconds("--seconds", order.seconds)
    board = leaderboard.load(checkout.leaderboard)
    leaderboard.check_writable(checkout.leaderboard)
    group = settle.group_of(board, find(order.problem, checkout).name, order.suite, order.ranks)
    meeting = settle.contenders(board, group, order.top, order.problem, order.seconds, checkout)
    meeting = settle.confined(meeting, order.confined)
    console = new_console(stderr=True)
    for why in meeting.left_out:
        console.print(Text(clean_line(f"left out: {why}")), soft_wrap=True)
    device, before = meeting.setting.device, settle.known(board, meeting)
    rounds = usual(device).rounds if order.rounds is None else order.rounds + order.rounds % 2

    @contextlib.contextmanager
    def shown(number: int, one: int, other: int) -> Iterator[Progress]:
        names = " and ".join(meeting.sources[each].name for each in (one, other))
        more = f" more, after {before.rounds}" if before.rounds else ""
        with ProgressLine(console, silent=order.quiet) as progress:
            progress.note(clean_line(f"from round {number} of at most {rounds}{more}: {names}"))
            yield progress

    noise = head_to_head(board, group, device)
    found = settle.settled(before, rounds, noise, Meetings(meeting, rounds, shown))
    meeting = settle.without(meeting, found.dropped)
    for why in meeting.left_out[len(meeting.left_out) - len(found.dropped) :]:
        console.print(Text(clean_line(f"left out: {why}")), soft_wrap=True)
    new = settle.settlement(meeting, found)

    def with_order(now: Board) -> Board:
        nonlocal new
        new = settle.settlement(meeting, settle.merged(board, now, meeting, found, noise))
        return settle.applied(now, new, frozen())

    try:
        leaderboard.change(kept or checkout.leaderboard, with_order)
    finally:  # what was measured is shown all the same
        longer = "--seconds" if kept is None else "`seconds` in the contest's `setting`"
        result_files.tell(order, document_of(new, longer), json=lambda: to_json(new, meeting, found.meetings))
    if found.ended is not None:
        raise found.ended
    return Exit.OK
