"""An entry beside the best other one of its board, right after its evaluation: head to head, by the rule of `settle`.

The two are launched several times, on the same inputs, so that what the machine does at a moment is in both. What they
differ by is known better than by two evaluations, and orders the two on the board at once.
"""

import math
import time
from dataclasses import dataclass

from harness.board import leaderboard, places, runs
from harness.board.entries import Board, Entry, is_same_code, short_file
from harness.board.noise import head_to_head
from harness.core.checkout import Checkout
from harness.core.errors import HarnessError
from harness.core.records import Submission
from harness.evaluation import settle
from harness.evaluation.meetings import Meetings, Shown
from harness.evaluation.settle import Contenders, Fit
from harness.kinds.kind import Setting

LAUNCHES = 4
MOST_LAUNCHES, MOST_S = 64, 600.0  # with a difference that is to be told


@dataclass(frozen=True, kw_only=True)
class Beside:
    """How the entry `own` did beside `other`: `log` is log(other's time / own time), known to `half` with 95 %;
    `is_leader` says whether the other one led the board."""

    own: Entry
    other: Entry
    is_leader: bool
    log: float
    half: float
    launches: int
    board: Board

    @property
    def text(self) -> str:
        """The meeting's result in a line."""
        who = f"{'the leader' if self.is_leader else 'the next'}, {short_file(self.other)} by {self.other.author}"
        low, high = (math.expm1(abs(self.log) + sign * self.half) for sign in (-1, 1))
        over = f"{self.launches} launches head to head"
        if abs(self.log) <= self.half:
            return f"within {high:.1%} of {who}: a tie in {over}"
        word = "faster" if self.log > 0 else "slower"
        return f"{math.expm1(abs(self.log)):.1%} {word} than {who} (95 %: {low:.1%} to {high:.1%}, {over})"


def opposite(board: Board, own: Entry, setting: Setting, source: Submission, checkout: Checkout) -> Contenders | None:
    """The entry and the best other one of the same version of the problem whose source is kept; None without one."""
    for row in places.ranking(board, own.group):
        other = row.entry
        if is_same_code(other, own) or other.problem_version != own.problem_version:
            continue
        try:
            kept = runs.load_source(other.sha256, other.file, checkout.root, other.run_id)
        except HarnessError:
            continue
        version = own.problem_version or ""
        return Contenders(setting=setting, version=version, entries=(other, own), sources=(kept, source), left_out=())
    return None


def met(meeting: Contenders, board: Board, shown: Shown, checkout: Checkout, until: float | None = None) -> Beside:
    """Launches the two and keeps the settlement on the checkout's board. With `until`, goes on until they are in order
    or differ by less than that part, for at most MOST_S. Raises HarnessError where one of them does not run."""
    other, own = meeting.entries
    leads = places.ranking(board, own.group)[0].entry.identity
    before, rounds = settle.known(board, meeting), LAUNCHES if until is None else MOST_LAUNCHES
    launches = Meetings(meeting, rounds, shown)
    began = time.monotonic()

    def meet(number: int, one: int, opponent: int) -> float:
        if number % 2 and time.monotonic() - began > MOST_S:
            raise TimeIsUp(f"the two are not in order after {MOST_S:.0f} s")
        return launches(number, one, opponent)

    def suffices(found: Fit) -> bool:
        apart = abs(found.logs[1] - found.logs[0])
        return apart > found.half or (until is not None and apart + found.half < math.log1p(until))

    noise = head_to_head(board, own.group, meeting.setting.device)
    found = settle.settled(before, rounds, noise, meet, suffices)
    if found.ended is not None and not isinstance(found.ended, TimeIsUp):
        raise found.ended
    kept = leaderboard.change(checkout.leaderboard, lambda now: settle.applied(now, settle.settlement(meeting, found)))
    log = found.fit.logs[1] - found.fit.logs[0]
    return Beside(
        own=own,
        other=other,
        is_leader=leads == other.identity,
        log=log,
        half=found.fit.half,
        launches=found.tally.rounds,
        board=kept,
    )


class TimeIsUp(HarnessError):
    """The time for launches head to head is over; those made so far decide."""
