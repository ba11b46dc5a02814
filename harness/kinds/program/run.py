"""What one run of a solver is worth: its last answer by the checker, and the curve that led to it."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.core.curve import Point
from harness.core.records import Wrong
from harness.core.words import cut_line
from harness.kinds.program.task import Instance, TaskModule
from harness.process.answers import Answer, Finished

MOST_POINTS = 60  # answers that are checked for the curve
LINE_CHARS = 300


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The result of one run. `cost` is that of the last answer; it is None if that answer is not valid, and `outcome`
    then says why. `note` says what the run did wrong although it has an answer."""

    cost: int | None
    points: tuple[Point, ...]
    outcome: Wrong | None
    note: str = ""


def judged(ran: Finished, instance: Instance, task: TaskModule, limit_s: float) -> Judged:
    """The last complete answer before the limit counts, however the program ended. Earlier wrong ones do not matter."""
    trouble = _trouble(ran, limit_s)
    if not ran.answers:
        lacking = "printed none" + " before its limit" * bool(ran.late_answers)
        return Judged(cost=None, points=(), outcome=Wrong(message=f"no answer: it {trouble or lacking}"))
    *earlier, last = ran.answers
    try:
        cost = _cost(task, instance, last)
    except ValueError as error:
        ending = f"; it {trouble}" if trouble else ""
        message = f"its last answer, at {last.at_s:.2f} s, is not right: {cut_line(str(error), LINE_CHARS)}{ending}"
        return Judged(cost=None, points=(), outcome=Wrong(message=message))
    points = []
    for answer in _some(earlier):
        try:
            value = _cost(task, instance, answer)
        except ValueError:
            continue
        points.append((answer.at_s, value))
    points.append((last.at_s, cost))
    curve = tuple(Point(at_s=at_s, value=float(value)) for at_s, value in points if value > 0)
    counts = "its last answer before that counts" if ran.late_answers or ran.is_late else "its last answer counts"
    note = f"{trouble}; {counts}" if trouble else ""
    return Judged(cost=cost, points=curve, outcome=None, note=note)


def _trouble(ran: Finished, limit_s: float) -> str:
    """What the run did wrong, in words; "" if nothing."""
    if ran.broke:
        return f"{ran.broke} and was ended"
    if ran.is_late:
        return f"still ran {ran.seconds:.1f} s after its start, with a limit of {limit_s:g} s, and was ended"
    if ran.late_answers:
        return f"printed answers after its limit of {limit_s:g} s, which do not count"
    if ran.ended:
        said = cut_line(ran.stderr.strip().rpartition("\n")[2], LINE_CHARS)
        return ran.ended + (f" ({said})" if said else "")
    return ""


def _cost(task: TaskModule, instance: Instance, answer: Answer) -> int:
    return task.cost(instance.loaded, answer.text.decode(errors="replace"))


def _some(answers: Sequence[Answer]) -> list[Answer]:
    """At most MOST_POINTS of them, evenly over their number."""
    if len(answers) <= MOST_POINTS:
        return list(answers)
    return [answers[index * len(answers) // MOST_POINTS] for index in range(MOST_POINTS)]
