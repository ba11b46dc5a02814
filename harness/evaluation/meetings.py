"""Launches in which two contenders of a settlement meet: several share a start, and the two change roles in each."""

from collections import Counter, deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from harness.core import accounts
from harness.core.errors import BadSubmissionError, HarnessError
from harness.evaluation import compare, verify
from harness.evaluation.settle import Contenders, Dropped
from harness.kinds.gpu_only import NeedsGpu
from harness.kinds.kind import OpponentFailed, Order, Progress
from harness.kinds.registry import plan_of

TOGETHER = 4  # launches that share a start
RARE = 32  # launches, of which at most one fails by chance
Shown = Callable[[int, int, int], AbstractContextManager[Progress]]


def launches(
    meeting: Contenders, number: int, one: int, other: int, count: int, progress: Progress
) -> tuple[float, ...]:
    """The logs of at most `count` launches of two of them, from round `number` on; in odd rounds the first is the
    candidate, in even ones the second. Either's outputs are judged. Raises Dropped for one that fails."""
    candidate, opponent = (one, other) if number % 2 else (other, one)
    order = Order(
        setting=replace(meeting.setting, launches=count),
        submission=meeting.sources[candidate],
        mode="benchmark",
        author=accounts.login(),
        opponent=meeting.sources[opponent],
    )
    plan = plan_of(order)
    try:
        found = compare.live(plan, compare.MARGIN, progress)
    except BadSubmissionError as error:
        at_fault = opponent if isinstance(error.__context__, OpponentFailed) else candidate
        raise Dropped(at_fault, error) from None
    except NeedsGpu as error:  # a file could end the meetings of all by that
        raise Dropped(candidate, error) from None
    return tuple(log if candidate == one else -log for log in found.launches)


class Meetings:
    """Launches of two contenders, several at a time, since a launch is cheap where its zygotes are there already.
    `shown` opens the progress of so many that begin with a round.

    A launch that ends as an honest file's may on a busy machine is made again, once for each contender and once more
    for each RARE launches of it: who could have every launch made again would choose among them."""

    def __init__(self, meeting: Contenders, rounds: int, shown: Shown) -> None:
        self.meeting, self.rounds, self.shown = meeting, rounds, shown
        self.waiting: dict[tuple[int, int], deque[float]] = {}
        self.met: Counter[int] = Counter()  # launches of each contender
        self.failed: Counter[int] = Counter()  # those that were made again

    def __call__(self, number: int, one: int, other: int) -> float:
        """The log of their launch in that round. Raises as `launches` does."""
        waiting = self.waiting.setdefault((one, other), deque())
        while not waiting:
            count = min(TOGETHER, self.rounds - number + 1)
            try:
                with self.shown(number, one, other) as progress:
                    waiting += launches(self.meeting, number, one, other, count, progress)
                self.met.update({one: count, other: count})
            except Dropped as gone:
                self.failed[gone.number] += 1
                if not _is_chance(gone.error) or self.failed[gone.number] > 1 + self.met[gone.number] // RARE:
                    raise
        return waiting.popleft()


def _is_chance(error: HarnessError) -> bool:
    """Whether a busy machine may be the reason why a side failed, as `verify` has it, or has not ended."""
    if not isinstance(error, compare.SideFailed):
        return False
    return isinstance(error, compare.SideTimedOut) or getattr(error.outcome, "check", "") in verify.BY_CHANCE
