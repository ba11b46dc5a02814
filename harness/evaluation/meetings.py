"""Launches in which two contenders of a settlement meet: several share a start, and the two change roles in each."""

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from harness.core import accounts
from harness.core.errors import BadSubmissionError
from harness.evaluation import compare
from harness.evaluation.settle import Contenders, Dropped
from harness.kinds.kind import OpponentFailed, Order, Progress
from harness.kinds.registry import plan_of

TOGETHER = 4  # launches that share a start
Shown = Callable[[int, int, int], AbstractContextManager[Progress]]


def launches(
    meeting: Contenders, number: int, one: int, other: int, count: int, progress: Progress
) -> tuple[float, ...]:
    """The logs of at most `count` launches of two of them, from round `number` on; in odd rounds the first is the
    candidate, in even ones the second. Either's outputs are judged. Raises Dropped for one that fails twice."""
    candidate, opponent = (one, other) if number % 2 else (other, one)
    order = Order(
        setting=replace(meeting.setting, launches=count),
        submission=meeting.sources[candidate],
        mode="benchmark",
        author=accounts.login(),
        opponent=meeting.sources[opponent],
    )
    plan = plan_of(order)
    for is_last in (False, True):  # checks that compare times hold an honest launch now and then; twice is no chance
        try:
            found = compare.live(plan, compare.MARGIN, progress)
            break
        except (BadSubmissionError, compare.SideTimedOut) as error:
            if is_last:
                at_fault = opponent if isinstance(error.__context__, OpponentFailed) else candidate
                raise Dropped(at_fault, error) from None
    return tuple(log if candidate == one else -log for log in found.launches)


class Meetings:
    """Launches of two contenders, several at a time, since a launch is cheap where its zygotes are there already.
    `shown` opens the progress of so many that begin with a round."""

    def __init__(self, meeting: Contenders, rounds: int, shown: Shown) -> None:
        self.meeting, self.rounds, self.shown = meeting, rounds, shown
        self.waiting: dict[tuple[int, int], deque[float]] = {}

    def __call__(self, number: int, one: int, other: int) -> float:
        """The log of their launch in that round. Raises as `launches` does."""
        waiting = self.waiting.setdefault((one, other), deque())
        if not waiting:
            count = min(TOGETHER, self.rounds - number + 1)
            with self.shown(number, one, other) as progress:
                waiting += launches(self.meeting, number, one, other, count, progress)
        return waiting.popleft()
