"""Launches in which two contenders of a settlement meet: several share a start, and the two change roles in each.

One that ends with an error says of neither that it failed, and whoever could cause one each time would keep others from
being settled. So it is made again where it is the first one for both. Else each of the two meets the reference: who
ends that with errors, too, twice in three launches, is left out, unless the reference beside itself ends so.
"""

from collections import Counter, deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from harness.core import accounts
from harness.core.errors import BadSubmissionError, HarnessError
from harness.core.records import Submission
from harness.core.words import clean_line
from harness.evaluation import compare, verify
from harness.evaluation.settle import Contenders, Dropped
from harness.kinds.gpu_only import GpuOnlyError
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
    try:
        found = _met(meeting, meeting.sources[candidate], meeting.sources[opponent], count, progress)
    except BadSubmissionError as error:
        failed = opponent if isinstance(error.__context__, OpponentFailed) else candidate
        raise Dropped(failed, error) from None
    except GpuOnlyError as error:  # it has passed on such a machine
        raise Dropped(candidate, error) from None
    return tuple(log if candidate == one else -log for log in found.launches)


def _met(
    meeting: Contenders, candidate: Submission, opponent: Submission, count: int, progress: Progress
) -> compare.Comparison:
    order = Order(
        setting=replace(meeting.setting, launches=count),
        submission=candidate,
        mode="benchmark",
        author=accounts.login(),
        opponent=opponent,
    )
    return compare.live(plan_of(order), compare.MARGIN, progress)


def at_fault(meeting: Contenders, pair: tuple[int, int], progress: Progress) -> int | None:
    """Which of the two ends launches against the reference with errors; None where not one of them alone does, or the
    reference beside itself ends so."""
    reference = verify.plain(meeting.setting.problem)

    def ends(one: Submission) -> bool:
        try:
            _met(meeting, one, reference, 1, progress)
        except BadSubmissionError:  # it fails, which says whose failure it is
            return False
        except HarnessError:
            return True
        return False

    found = []
    for number in pair:
        errors = launched = 0
        while errors < 2 and launched - errors < 2:
            errors += ends(meeting.sources[number])
            launched += 1
        if errors == 2:
            found.append(number)
    return found[0] if len(found) == 1 and not ends(reference) else None


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
        self.errors: set[int] = set()  # contenders that were in a launch which ended with an error

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
            except HarnessError as error:
                self._after(error, number, one, other)
        return waiting.popleft()

    def _after(self, error: HarnessError, number: int, one: int, other: int) -> None:
        """After the first error for both, their launch is made again. Raises Dropped for who is at fault after others,
        and the error where that is neither alone."""
        is_first = self.errors.isdisjoint((one, other))
        self.errors |= {one, other}
        with self.shown(number, one, other) as progress:
            progress.note(clean_line(f"ended with an error: {error}"))
            if is_first:
                return
            progress.note("each meets the reference, to see whose failure it is")
            gone = at_fault(self.meeting, (one, other), progress)
        if gone is None:
            raise error
        raise Dropped(gone, BadSubmissionError(f"its launches end with an error, the reference's do not: {error}"))


def _is_chance(error: HarnessError) -> bool:
    """Whether a busy machine may be the reason why a side failed, as `verify` has it, or has not ended."""
    if not isinstance(error, compare.SideFailed):
        return False
    return isinstance(error, compare.SideTimedOut) or getattr(error.outcome, "check", "") in verify.BY_CHANCE
