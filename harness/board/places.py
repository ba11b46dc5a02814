"""Who is where: entries in order, with places that the measurements can tell apart. Pure functions over a Board.

Places come from the speedup over the reference, which was timed in turn with the entry: a machine that is slower today
slows both. Of each entry the estimate over all launches of its source counts (stats.over_launches), with an interval
that covers what launches differ by. One entry is ahead of another where these intervals do not overlap and the interval
of their difference, at a confidence by which all orders of a board hold together (95 %, Bonferroni), is above 0. Others
share a range of places: 1-2 of 5. `settle` times entries head to head and tells them apart further; where it did, its
order replaces that of the intervals.

Groups with entries that have no speedup (a folder's own eval.py) or whose score is no time are ranked by score, and so
is any group on request: scores that agree to 4 digits share a place there.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from harness.board.digits import rounded
from harness.board.entries import Board, Earlier, Entry, EntryCase, Group, Settlement, order
from harness.core.records import Estimate, Param, Score
from harness.core.stats import CONFIDENCE, LaunchNoise, OverLaunches, geomean, over_launches, standard_error, student_t

By = Literal["speedup", "score"]
Limits = Mapping[tuple[tuple[str, Param], ...], float]  # of a board's shapes, in the unit of their values
TIE_DIGITS = 4  # scores that agree in these are one place
# What launches of one source differ by where nobody has measured it (bench/launches.py does): on 2 busy CPU cores 5
# launches of a2a spread by 6 %, 2026-11-22; H200s by less.
DEFAULT_NOISE = {"cpu": LaunchNoise(sd=0.06, freedom=4), "gpu": LaunchNoise(sd=0.03, freedom=4)}
MACHINES = math.log(1.25)  # by how much more intervals have to be apart where they are of two machines of one class


@dataclass(frozen=True, kw_only=True)
class Place:
    """Any from `place` to `last`, of `of` entries. `settled` is the date of the settlement that it rests on."""

    place: int
    last: int
    of: int
    settled: str | None = None

    @property
    def text(self) -> str:
        """`1`, or `1-2` where the measurements do not say which."""
        return str(self.place) if self.place == self.last else f"{self.place}-{self.last}"


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """An entry with its place and the estimates over the `launches` launches of its source. `ratio` is None where
    nothing was measured beside it; `fraction` is of the limit that all entries of the board are held against. `same_as`
    is another author's entry of the very same source that was evaluated earlier; `by` is what the place comes from."""

    entry: Entry
    place: Place
    ratio: Estimate | None
    score: Score
    fraction: float | None
    launches: int
    same_as: Entry | None = None
    by: By = "speedup"


def ranking(board: Board, group: Group, by: By = "speedup") -> tuple[Ranked, ...]:
    """The group's entries, best first, with their places."""
    entries = sorted((entry for entry in board.entries if entry.group == group), key=order)
    if not entries:
        return ()
    limits = limits_of(board, group)
    noise = noise_of(board, group[0], group[2], entries[0].device)
    everything = [_unplaced(entry, noise, limits, entries) for entry in entries]
    if by == "score" or any(entry.ratio is None or entry.score.unit != "s" for entry in entries):
        return _by_score(everything)
    return _by_speedup(board, everything, noise)


def ranked(board: Board, group: Group) -> list[tuple[int, Entry]]:
    """The group's entries, best first, each with the best place that it may have: 1, 2, 2, 4."""
    return [(one.place.place, one.entry) for one in ranking(board, group)]


def place_of(board: Board, entry: Entry, by: By = "speedup") -> Place:
    """Where the board's entry of this identity stands; KeyError where there is none."""
    return {one.entry.identity: one.place for one in ranking(board, entry.group, by)}[entry.identity]


def is_open(row: Ranked, rows: Sequence[Ranked]) -> bool:
    """Whether `settle` may narrow the row's range of places: identical sources are level for good, and scores that
    agree are no range."""
    same = sum(other.entry.sha256 == row.entry.sha256 for other in rows)
    return row.by == "speedup" and row.place.last - row.place.place >= same


def groups(board: Board) -> list[Group]:
    """The groups that have entries, in the file's order."""
    return sorted({entry.group for entry in board.entries})


def held_groups(board: Board) -> list[Group]:
    """The groups in which something is held, in the file's order."""
    return sorted({one.group for one in board.held})


def machines(board: Board, group: Group) -> int:
    """How many machines the group's entries ran on, as far as their ids are known."""
    return len({entry.machine for entry in board.entries if entry.group == group and entry.machine})


# ---- estimates -------------------------------------------------------------------------------------------------------
def noise_of(board: Board, problem: str, machine_class: str, device: str) -> LaunchNoise:
    """What launches of one source of a problem differ by on a machine class: as measured there, with that problem or
    else with the one that differs most; the default where nothing was measured."""
    known = [one for one in board.launch_noise if one.machine_class == machine_class]
    if known:
        best = max([one for one in known if one.problem == problem] or known, key=lambda one: one.sd)
        return LaunchNoise(sd=best.sd, freedom=best.launches - 1)
    return DEFAULT_NOISE["cpu" if device == "cpu" else "gpu"]


def one_launch(found: Estimate, noise: LaunchNoise) -> Estimate:
    """The estimate of one launch, with an interval that covers what launches differ by."""
    if found.ci is None:
        return found
    return replace(found, ci=over_launches([math.log(found.value)], [standard_error(found.ci)], noise).interval())


def judgements(entry: Entry) -> tuple[Entry | Earlier, ...]:
    """All judgements of the source that the entry stands with, under one version of its problem, newest first; one for
    each run."""
    same = [
        past for past in entry.history if (past.sha256, past.problem_version) == (entry.sha256, entry.problem_version)
    ]
    everything: tuple[Entry | Earlier, ...] = (entry, *same)
    return tuple({one.run_id: one for one in reversed(everything)}.values())[::-1]


def _over(entry: Entry, noise: LaunchNoise) -> OverLaunches | None:
    """The estimate over the entry's launches; None where no launch has an interval: nothing shows how good it is."""
    told = [one for one in judgements(entry) if one.ratio is not None]
    known = [one.log_error for one in told if one.log_error is not None]
    if not known:
        return None
    usual = statistics.fmean(known)  # of launches that an older harness recorded without an interval
    errors = [usual if one.log_error is None else one.log_error for one in told]
    return over_launches([math.log(one.ratio) for one in told if one.ratio is not None], errors, noise)


def _score(entry: Entry) -> Score:
    """The median over the entry's judgements; of one that others move, today's."""
    if entry.score.relative_by:
        return entry.score
    values = [one.score.value if isinstance(one, Entry) else one.score for one in judgements(entry)]
    return replace(entry.score, value=statistics.median(values))


def _unplaced(entry: Entry, noise: LaunchNoise, limits: Limits, entries: Sequence[Entry]) -> Ranked:
    over, ratio = _over(entry, noise), None
    if over is not None:
        ratio = Estimate(value=math.exp(over.log), ci=over.interval())
    elif entry.ratio is not None:
        ratio = Estimate(value=entry.ratio, ci=None, why="no launch has samples enough for an interval")
    copies = [one for one in entries if one.sha256 == entry.sha256 and one.author != entry.author]
    first = min(copies, key=_first_seen, default=None)
    return Ranked(
        entry=entry,
        place=Place(place=1, last=1, of=len(entries)),
        ratio=ratio,
        score=_score(entry),
        fraction=_fraction(entry, limits),
        launches=len(judgements(entry)),
        same_as=first if first is not None and _first_seen(first) < _first_seen(entry) else None,
    )


def _first_seen(entry: Entry) -> str:
    return min(one.date for one in judgements(entry))


# ---- one limit for a board -------------------------------------------------------------------------------------------
def _key(case: EntryCase) -> tuple[tuple[str, Param], ...]:
    return tuple(sorted(case.params.items(), key=lambda item: item[0]))


def limits_of(board: Board, group: Group) -> Limits:
    """The limit of every shape on CPU cores, whose peaks are measured: the one by the best peaks of any entry. A busy
    moment makes peaks low and limits high. GPUs' limits are by a table, and of another clock than the values."""
    found: dict[tuple[tuple[str, Param], ...], float] = {}
    entries = (entry for entry in board.entries if entry.group == group and entry.device == "cpu")
    for case in (case for entry in entries for case in entry.cases):
        if (limit := _limit(case)) is not None:
            found[_key(case)] = min(limit, found.get(_key(case), limit))
    return found


def _limit(case: EntryCase) -> float | None:
    """On the scale of its value; None where none is known there. Older harnesses did not record of which metric it is,
    and had one on CPU cores."""
    is_of_value = case.bounded in ("", case.metric)
    return case.value * case.fraction if case.fraction and case.metric == "wall" and is_of_value else None


def limited(case: EntryCase, limits: Limits) -> EntryCase:
    """The case against its board's limit, where that is below its own."""
    own, best = _limit(case), limits.get(_key(case))
    if own is None or best is None or best >= own or case.fraction is None:
        return case
    low, high = (end * best / own for end in case.fraction_ci or (0.0, 0.0))
    return replace(
        case,
        fraction=case.fraction * best / own,
        fraction_ci=(low, high) if case.fraction_ci else None,
        bound=replace(case.bound, value=best) if case.bound else None,
    )


def _fraction(entry: Entry, limits: Limits) -> float | None:
    parts = [limited(case, limits).fraction for case in entry.cases if _key(case) in limits]
    known = [part for part in parts if part]
    return geomean(known) if known and len(known) == len(entry.cases) else entry.fraction


# ---- places ----------------------------------------------------------------------------------------------------------
def _by_score(rows: Sequence[Ranked]) -> tuple[Ranked, ...]:
    """By score; scores that agree to TIE_DIGITS share a place, which is a range with no meaning beside that."""
    sign = {"less": 1, "more": -1}
    rows = sorted(rows, key=lambda one: (sign[one.score.better] * one.score.value, one.entry.author, one.entry.file))
    values = [rounded(one.score.value, TIE_DIGITS) for one in rows]
    return tuple(
        replace(
            one,
            place=Place(place=values.index(value) + 1, last=len(rows) - values[::-1].index(value), of=len(rows)),
            by="score",
        )
        for one, value in zip(rows, values, strict=True)
    )


def _by_speedup(board: Board, rows: Sequence[Ranked], noise: LaunchNoise) -> tuple[Ranked, ...]:
    """By the relation "ahead of": the best place possible is behind all that are ahead, the last before all that are
    behind."""
    overs = {one.entry.identity: _over(one.entry, noise) for one in rows}
    pairs = len(rows) * (len(rows) - 1) // 2

    def is_ahead(one: Entry, other: Entry) -> bool:
        if one.sha256 == other.sha256:
            return False
        if (settlement := settlement_of(board, one, other)) is not None:
            ratios = {file.sha256: file.ratio for file in settlement.files}
            return ratios[one.sha256] > ratios[other.sha256] * (1 + settlement.resolves)
        a, b = overs[one.identity], overs[other.identity]
        if a is None or b is None:
            return False
        are_machines_known = one.machine and other.machine
        apart = MACHINES if are_machines_known and one.machine != other.machine else 0.0
        t = student_t(1 - (1 - CONFIDENCE) / 2 / pairs, min(a.freedom, b.freedom))
        together = t * math.hypot(a.error, b.error)  # of their difference, for all pairs of the board at once
        return math.log(a.interval()[0] / b.interval()[1]) > apart and a.log - b.log > apart + together

    placed = []
    for row in rows:
        others = [other.entry for other in rows if other is not row]
        place = 1 + sum(is_ahead(other, row.entry) for other in others)
        last = len(rows) - sum(is_ahead(row.entry, other) for other in others)
        settlements = (settlement_of(board, row.entry, other) for other in others)
        settled = max((one.date for one in settlements if one), default=None)
        # orders of settlements and of intervals can contradict each other: then the best place counts
        placed.append(replace(row, place=Place(place=place, last=max(place, last), of=len(rows), settled=settled)))

    def best_first(one: Ranked) -> tuple[int, int, bool, float, str, str]:
        assert one.ratio is not None
        is_copy = one.same_as is not None  # and leads nobody by a luckier launch
        return one.place.place, one.place.last, is_copy, -one.ratio.value, one.entry.author, one.entry.file

    return tuple(sorted(placed, key=best_first))


def settlement_of(board: Board, one: Entry, other: Entry) -> Settlement | None:
    """The latest settlement that timed these two sources against each other, under the version of the problem that
    both entries were judged under."""
    both = [
        settlement
        for settlement in board.settlements
        if settlement.group == one.group == other.group
        and settlement.problem_version == one.problem_version == other.problem_version
        and {one.sha256, other.sha256} <= {file.sha256 for file in settlement.files}
    ]
    return max(both, key=lambda settlement: settlement.date, default=None)
