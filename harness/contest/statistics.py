"""What a contest looks like over time: how many submissions, how good, how long until the first, what failed.

Pure functions over a state of the contest. Figures of different boards (problem, suite, machine class, ranks) do not
compare, so each row names its board.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from harness.board.entries import Group
from harness.contest.lifecycle import STATES
from harness.contest.log import Record
from harness.contest.rules import Competition
from harness.contest.standings import frozen_since
from harness.contest.state import ContestEntry, ContestState, fold
from harness.contest.times import written
from harness.core.stats import median, quartiles
from harness.core.words import count_text

SCHEMA = 1  # of the statistics as JSON; 1: first


@dataclass(frozen=True, kw_only=True)
class Day:
    """The submissions of one day (UTC), by what became of them."""

    day: str  # YYYY-MM-DD
    submitted: int
    passed: int
    failed: int
    held: int


@dataclass(frozen=True, kw_only=True)
class Best:
    """A submission that was better than all before it on its board. `of_limit` is the fraction of the limit that the
    best so far reaches, 1 being the limit itself; None where no limit is known."""

    problem: str
    board: str
    at: str  # ISO 8601, UTC: when it was submitted
    team: str
    entry: int
    speedup: float
    of_limit: float | None


@dataclass(frozen=True, kw_only=True)
class FirstValid:
    """How long a team took from the problem's opening, or its registration where that is later or the problem has no
    opening, to the submission of its first entry that passed; None where none has."""

    problem: str
    team: str
    seconds: float | None
    submissions: int  # up to and including that one; all where none passed


@dataclass(frozen=True, kw_only=True)
class FailureCount:
    """How many submissions for a problem failed in that way; a held one fails by its check."""

    problem: str
    kind: str
    count: int


@dataclass(frozen=True, kw_only=True)
class ShapeSpread:
    """Medians of all entries that passed on one shape, in `unit`; `speedup` is the best there."""

    problem: str
    board: str
    shape: str
    unit: str
    count: int
    low: float
    first_quartile: float
    median: float
    third_quartile: float
    high: float
    speedup: float | None


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """All of them. `frozen_at`: they are those of that time. `is_hidden`: only counts are public yet."""

    schema: int
    contest: str
    at: str
    frozen_at: str | None
    is_hidden: bool
    teams: int
    submissions: int
    states: dict[str, int]
    days: tuple[Day, ...]
    best: tuple[Best, ...] = ()
    first_valid: tuple[FirstValid, ...] = ()
    failures: tuple[FailureCount, ...] = ()
    shapes: tuple[ShapeSpread, ...] = ()


def full(contest: Competition, records: Iterable[Record], now: datetime) -> Statistics:
    return _of(contest, fold(records), now, None, False)


def public(contest: Competition, records: Iterable[Record], now: datetime) -> Statistics:
    """The statistics that everybody may see: up to the freeze, and counts alone while submissions are private."""
    records = tuple(records)
    frozen_at = frozen_since(contest, fold(records), now)
    state = fold(records, frozen_at) if frozen_at else fold(records)
    return _of(contest, state, now, frozen_at, contest.is_hidden(now))


def _of(
    contest: Competition, state: ContestState, now: datetime, frozen_at: datetime | None, is_hidden: bool
) -> Statistics:
    entries = list(state.entries.values())
    states = Counter(one.state for one in entries)
    return Statistics(
        schema=SCHEMA,
        contest=contest.name,
        at=written(now),
        frozen_at=written(frozen_at) if frozen_at else None,
        is_hidden=is_hidden,
        teams=len(state.teams),
        submissions=len(entries),
        states={name: states[name] for name in STATES if states[name]},
        days=_days(entries),
        best=() if is_hidden else tuple(_best(entries)),
        first_valid=() if is_hidden else tuple(_first_valid(contest, state)),
        failures=() if is_hidden else _failures(contest, entries),
        shapes=() if is_hidden else tuple(_shapes(entries)),
    )


def _days(entries: Sequence[ContestEntry]) -> tuple[Day, ...]:
    by_day: dict[str, list[ContestEntry]] = {}
    for one in entries:
        by_day.setdefault(f"{one.submitted_at.astimezone(UTC):%Y-%m-%d}", []).append(one)
    return tuple(
        Day(
            day=day,
            submitted=len(own),
            passed=sum(one.evaluation is not None for one in own),
            failed=sum(one.failure is not None for one in own),
            held=sum(one.hold is not None for one in own),
        )
        for day, own in sorted(by_day.items())
    )


def board_text(group: Group) -> str:
    """`cpu, 8 ranks, 2 cores of ...`: what a row's figures compare within."""
    _, suite, machine_class, world_size = group
    return f"{suite}, {count_text(world_size, 'rank')}, {machine_class}"


def _best(entries: Sequence[ContestEntry]) -> Iterable[Best]:
    """The best results of each board as they came. Held, disqualified and withdrawn ones do not count."""
    speedups: dict[tuple[str, Group], float] = {}
    fractions: dict[tuple[str, Group], float] = {}
    found = []
    for one in entries:
        evaluation = one.evaluation
        if not one.is_placed or evaluation is None or evaluation.ratio is None:
            continue
        key = (one.problem, evaluation.group)
        if evaluation.fraction is not None:
            fractions[key] = max(evaluation.fraction, fractions.get(key, 0.0))
        if evaluation.ratio > speedups.get(key, 0.0):
            speedups[key] = evaluation.ratio
            found.append(
                Best(
                    problem=one.problem,
                    board=board_text(evaluation.group),
                    at=written(one.submitted_at),
                    team=one.team,
                    entry=one.number,
                    speedup=evaluation.ratio,
                    of_limit=fractions.get(key),
                )
            )
    return sorted(found, key=lambda best: (best.problem, best.board))


def _first_valid(contest: Competition, state: ContestState) -> Iterable[FirstValid]:
    for listed in contest.problems:
        opens = contest.opening(listed)
        for team in state.teams.values():
            own = [one for one in state.entries.values() if (one.team, one.problem) == (team.name, listed.name)]
            valid = next((one for one in own if one.evaluation is not None), None)
            begins = max(opens, team.registered_at) if opens else team.registered_at
            yield FirstValid(
                problem=listed.name,
                team=team.name,
                seconds=(valid.submitted_at - begins).total_seconds() if valid else None,
                submissions=own.index(valid) + 1 if valid else len(own),
            )


def _failures(contest: Competition, entries: Sequence[ContestEntry]) -> tuple[FailureCount, ...]:
    kinds: Counter[tuple[str, str]] = Counter()
    for one in entries:
        if one.failure is not None:
            kinds[one.problem, one.failure.kind] += 1
        if one.hold is not None:
            kinds[one.problem, f"held: {one.hold.check}"] += 1
    order = {listed.name: number for number, listed in enumerate(contest.problems)}
    return tuple(
        FailureCount(problem=problem, kind=kind, count=count)
        for (problem, kind), count in sorted(
            kinds.items(),  # those of problems that the file does not list any more last
            key=lambda item: (order.get(item[0][0], len(order)), -item[1], item),
        )
    )


def _shapes(entries: Sequence[ContestEntry]) -> Iterable[ShapeSpread]:
    values: dict[tuple[str, str, str, str], list[tuple[float, float | None]]] = {}
    for one in entries:
        if one.is_placed and one.evaluation is not None:
            for case in one.evaluation.cases:
                key = (one.problem, board_text(one.evaluation.group), case.label, case.unit)
                values.setdefault(key, []).append((case.value, case.ratio))
    for (problem, board, shape, unit), found in values.items():
        own = [value for value, _ in found]
        low, high = quartiles(own)
        yield ShapeSpread(
            problem=problem,
            board=board,
            shape=shape,
            unit=unit,
            count=len(own),
            low=min(own),
            first_quartile=low,
            median=median(own),
            third_quartile=high,
            high=max(own),
            speedup=max((ratio for _, ratio in found if ratio is not None), default=None),
        )
