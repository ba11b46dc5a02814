"""Who is where: entries in order, with places that the measurements can tell apart. Pure functions over a Board.

Places come from the speedup over the reference, which was timed in turn with the entry: a machine that is slower today
slows both. Of each entry the estimate over all launches of its source by its author counts (stats.over_launches), with
an interval that covers what launches and sessions differ by: what is known of that beforehand (board.noise), pooled
with what all launches of the board show. So nobody moves another author's figure by evaluating that author's file. One
entry is ahead of another where these intervals do not overlap and their difference is larger than any of the board
would be by chance (95 %, stats.students_range). Others share a range of places: 1-2 of 5. `settle` times entries head
to head and tells them apart further; where it did, its order replaces that of the intervals. Whoever is ahead of one
that is ahead of a third is ahead of the third.

Copies of one code (problems.same_code) are level for good, and are one to a settlement: no luckier launch puts a copy
ahead of its original or of anybody that the original is not ahead of.

The launches that `verify` ran are not in the estimate: the board keeps their mean without the extremes, but neither
each launch nor the machine.

Groups with entries that have no speedup (a folder's own eval.py) or whose score is no time are ranked by score, and so
is any group on request: scores that agree to 4 digits share a place there. By the wall clock, entries are ranked by
the geometric mean of their median times on it.
"""

import itertools
import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from harness.board.digits import rounded
from harness.board.entries import Board, Entry, EntryCase, Group, Settlement, is_same_code, order, short_file
from harness.board.noise import Judgement, known_noise, sessions
from harness.core.metrics import CLOCKS
from harness.core.records import Estimate, Param, Params, Score
from harness.core.stats import (
    CONFIDENCE,
    LaunchNoise,
    LaunchRatio,
    OverLaunches,
    Sessions,
    geomean,
    over_launches,
    standard_error,
    students_range,
    with_seen,
)

By = Literal["speedup", "score", "wall"]
Key = tuple[str, str, str | None]  # author, code (or sha256), and the version of the problem that it was judged under
Shape = tuple[tuple[str, Param], ...]
Limits = Mapping[Shape, float]  # of a board's shapes, in the unit of their values
TIE_DIGITS = 4  # scores that agree in these are one place
MACHINES = math.log(1.25)  # by how much more intervals have to be apart where launches are not all of one machine


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


@dataclass(frozen=True, kw_only=True, order=True)
class Origin:
    """The evaluation in which a code was first seen on a board."""

    date: str
    author: str
    file: str
    run_id: str


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """An entry with its place and the estimates over the `launches` launches of its source by its author. `ratio` is
    None where nothing was measured beside it; `fraction` is of the limit that all entries of the board are held
    against. `code` is what its copies have in common with it; `copy_of` is where that was first seen, if that was
    another author's evaluation; `by` is what the place comes from."""

    entry: Entry
    place: Place
    ratio: Estimate | None
    score: Score
    fraction: float | None
    launches: int
    code: str
    copy_of: Origin | None = None
    by: By = "speedup"

    @property
    def speedup(self) -> float | None:
        return self.ratio.value if self.ratio else None


def ranking(board: Board, group: Group, by: By = "speedup") -> tuple[Ranked, ...]:
    entries = sorted((entry for entry in board.entries if entry.group == group), key=order)
    if not entries:
        return ()
    codes, limits = codes_of(board), limits_of(board, group)
    sources, origins = _sources(board, entries, codes), _origins(entries, codes)
    rows = [_unplaced(entry, sources[_key_of(entry, codes)], limits, origins, codes) for entry in entries]
    if by == "score" or any(entry.ratio is None or entry.score.unit != "s" for entry in entries):
        return _by_score(rows)
    if by == "wall":
        return _by_score([_on_the_wall(row) for row in rows], "wall")
    return _by_speedup(board, rows, sources, codes)


def place_of(board: Board, entry: Entry, by: By = "speedup") -> Place:
    """The place of the board's entry of this identity; KeyError where there is none."""
    return {one.entry.identity: one.place for one in ranking(board, entry.group, by)}[entry.identity]


def is_open(row: Ranked, rows: Sequence[Ranked]) -> bool:
    """Whether `settle` may narrow the row's range of places: copies are level for good, entries of other versions of
    the problem cannot be run against it, and scores that agree are no range."""
    version = row.entry.problem_version
    level = sum(other.code == row.code or other.entry.problem_version != version for other in rows)
    return row.by == "speedup" and row.place.last - row.place.place >= level


def groups(board: Board) -> list[Group]:
    """The groups that have entries, in the file's order."""
    return sorted({entry.group for entry in board.entries})


def machines(board: Board, group: Group) -> int:
    """How many machines the group's judgements ran on. Those without an id count as one more."""
    return len({one.machine for entry in board.entries if entry.group == group for one in judgements(entry)})


# ---- estimates -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class AuthorSource:
    """The judgements of one author's source under one version of its problem, newest first, one for each run. `over` is
    None where no launch has an interval: nothing shows how good it is. `within` covers what launches differ by, and not
    what sessions do; None where they were several, and on CPU cores, on which hours of one session differ too."""

    judgements: tuple[Judgement, ...]
    over: OverLaunches | None
    within: OverLaunches | None = None

    @property
    def shown(self) -> OverLaunches | None:
        """The interval that the entry's own figure is shown with."""
        return self.within or self.over

    @property
    def machines(self) -> set[str | None]:
        """The ids of the machines that they ran on; None is one that is not known."""
        return {one.machine for one in self.judgements}


def noise_of(board: Board, problem: str, machine_class: str, device: str) -> LaunchNoise:
    """The noise between evaluations of one source of a problem on a machine class, hours apart."""
    return known_noise(board, problem, machine_class, device).apart


def one_launch(found: Estimate, noise: LaunchNoise) -> Estimate:
    """The estimate of one launch, with an interval that covers what evaluations differ by."""
    if found.ci is None:
        return found
    error = math.hypot(noise.sd, standard_error(found.ci))
    over = OverLaunches(log=math.log(found.value), error=error, freedom=noise.freedom)
    return replace(found, ci=over.interval())


def judgements(entry: Entry) -> tuple[Judgement, ...]:
    """All judgements of the source that the entry stands with, under one version of its problem, newest first; one for
    each run. An edit that changes no code begins no other estimate."""
    same = [
        past for past in entry.history if is_same_code(past, entry) and past.problem_version == entry.problem_version
    ]
    everything: tuple[Judgement, ...] = (entry, *same)
    return tuple({one.run_id: one for one in reversed(everything)}.values())[::-1]


Codes = Mapping[str, str]  # by sha256


def codes_of(board: Board) -> Codes:
    """The code of each source for which some record has it; those of others are not known, and are their own."""
    found = {past.sha256: past.code for entry in board.entries for past in entry.history}
    found |= {entry.sha256: entry.code or found.get(entry.sha256) for entry in board.entries}
    return {sha256: code for sha256, code in found.items() if code is not None}


def code_of(one: Judgement, codes: Codes) -> str:
    """The digest of the code that the source shares with its copies; its sha256 where that is not known."""
    return one.code or codes.get(one.sha256, one.sha256)


def _sources(board: Board, entries: Sequence[Entry], codes: Codes) -> dict[Key, AuthorSource]:
    found: dict[Key, dict[str, Judgement]] = {}
    for entry in entries:
        runs = found.setdefault(_key_of(entry, codes), {})
        runs.update((one.run_id, one) for one in judgements(entry) if one.run_id not in runs)
    first = entries[0]
    everything = {key: tuple(sorted(runs.values(), key=lambda one: one.date)[::-1]) for key, runs in found.items()}
    launches = {key: _launches(known) for key, known in everything.items()}
    noise = known_noise(board, first.problem, first.machine_class, first.device)
    noise = with_seen(noise, list(launches.values()))
    quiet = replace(noise, session=replace(noise.session, sd=0.0))
    is_gpu = first.device != "cpu"
    return {
        key: AuthorSource(
            judgements=known,
            over=over_launches(launches[key], noise) if launches[key] else None,
            within=over_launches(launches[key], quiet) if is_gpu and len(launches[key]) == 1 else None,
        )
        for key, known in everything.items()
    }


def _key_of(entry: Entry, codes: Codes) -> Key:
    return entry.author, code_of(entry, codes), entry.problem_version


def _origins(entries: Sequence[Entry], codes: Codes) -> dict[str, Origin]:
    """The first appearance of each code in a group, in any entry's past."""
    seen: dict[str, list[Origin]] = {}
    for entry in entries:
        everything: tuple[Judgement, ...] = (entry, *entry.history)
        for one in everything:
            origin = Origin(date=one.date, author=entry.author, file=short_file(entry), run_id=one.run_id)
            seen.setdefault(code_of(one, codes), []).append(origin)
    return {code: min(found) for code, found in seen.items()}


def _launches(known: Sequence[Judgement]) -> Sessions:
    """Their launches as stats.over_launches takes them; none where no launch has an interval."""
    errors = [one.log_error for one in known if one.ratio is not None and one.log_error is not None]
    if not errors:
        return []
    usual = statistics.fmean(errors)  # of launches that an older harness recorded without an interval
    return [
        [
            LaunchRatio(math.log(one.ratio), usual if one.log_error is None else one.log_error, one.launches > 1)
            for one in session
            if one.ratio
        ]
        for session in sessions([one for one in known if one.ratio is not None])
    ]


def _score(entry: Entry, source: AuthorSource) -> Score:
    """The median over the source's judgements; of one that others move, today's."""
    if entry.score.relative_by:
        return entry.score
    values = [one.score.value if isinstance(one, Entry) else one.score for one in source.judgements]
    return replace(entry.score, value=statistics.median(values))


def _unplaced(
    entry: Entry, source: AuthorSource, limits: Limits, origins: Mapping[str, Origin], codes: Codes
) -> Ranked:
    ratio, launches = None, sum(one.launches for one in source.judgements)
    if source.shown is not None:
        ratio = Estimate(value=math.exp(source.shown.log), ci=source.shown.interval(), launches=launches)
    elif entry.ratio is not None:
        ratio = Estimate(value=entry.ratio, ci=None, why="no launch has samples enough for an interval")
    code = code_of(entry, codes)
    return Ranked(
        entry=entry,
        place=Place(place=1, last=1, of=1),  # until it is held against the others
        ratio=ratio,
        score=_score(entry, source),
        fraction=_fraction(entry, limits),
        launches=launches,
        code=code,
        copy_of=origins[code] if origins[code].author != entry.author else None,
    )


# ---- one limit for a board -------------------------------------------------------------------------------------------
def shape_of(params: Params) -> Shape:
    """The parameters as a key."""
    return tuple(sorted(params.items(), key=lambda item: item[0]))


def limits_of(board: Board, group: Group) -> Limits:
    """For each shape the lowest limit of any entry; on CPU cores only, where peaks are measured. A busy machine
    measures low peaks and so a high limit; the best peaks give the right one. On GPUs the limits come from the hardware
    table and belong to another clock than the values."""
    found: dict[Shape, float] = {}
    entries = (entry for entry in board.entries if entry.group == group and entry.device == "cpu")
    for case in (case for entry in entries for case in entry.cases):
        if (limit := _limit(case)) is not None:
            shape = shape_of(case.params)
            found[shape] = min(limit, found.get(shape, limit))
    return found


def _limit(case: EntryCase) -> float | None:
    """On the scale of its value; None if unknown. Older harnesses, with one clock on CPU cores, name none."""
    is_of_value = case.bounded in ("", case.metric)
    return case.value * case.fraction if case.fraction and case.metric == "wall" and is_of_value else None


def limited(case: EntryCase, limits: Limits) -> EntryCase:
    """The case against its board's limit, where that is below its own."""
    own, best = _limit(case), limits.get(shape_of(case.params))
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
    parts = [limited(case, limits).fraction for case in entry.cases if shape_of(case.params) in limits]
    known = [part for part in parts if part]
    return geomean(known) if known and len(known) == len(entry.cases) else entry.fraction


# ---- places ----------------------------------------------------------------------------------------------------------
def _on_the_wall(row: Ranked) -> Ranked:
    """The row with what its entry is worth on the host's clock: the geometric mean of its shapes' median times, and of
    the speedups that these medians show. Unchanged where some shape has no such time."""
    walls = [one for case in row.entry.cases for one in case.series if one.metric == CLOCKS["wall"].name]
    times_us = [one.value for one in walls if one.value]
    if not times_us or len(times_us) != len(row.entry.cases):
        return row
    ratios = [one.baseline / one.value for one in walls if one.baseline and one.value]
    ratio = Estimate(value=geomean(ratios), ci=None, why="medians of one evaluation") if ratios else None
    return replace(row, score=Score(value=geomean(times_us) / 1e6, unit="s", better="less"), ratio=ratio)


def _by_score(rows: Sequence[Ranked], by: By = "score") -> tuple[Ranked, ...]:
    """Places by score; scores that agree to TIE_DIGITS share a place, which is a range with no further meaning."""
    sign = {"less": 1, "more": -1}
    rows = sorted(rows, key=lambda one: (sign[one.score.better] * one.score.value, one.entry.author, one.entry.file))
    values = [rounded(one.score.value, TIE_DIGITS) for one in rows]
    return tuple(
        replace(
            one,
            place=Place(place=values.index(value) + 1, last=len(rows) - values[::-1].index(value), of=len(rows)),
            by=by,
        )
        for one, value in zip(rows, values, strict=True)
    )


def _by_speedup(
    board: Board, rows: Sequence[Ranked], sources: Mapping[Key, AuthorSource], codes: Codes
) -> tuple[Ranked, ...]:
    """Places by "ahead of": the best is behind all that are ahead, the last before all that are behind."""
    entries = {_key_of(row.entry, codes): row.entry for row in rows}
    met = {(a, b): _settlement_of(board, entries[a], entries[b], codes) for a, b in itertools.permutations(entries, 2)}
    count = len({code for _, code, _ in entries})  # copies are not counted: they would make every interval wider

    def is_before(one: Key, other: Key) -> bool:
        if one[1] == other[1]:
            return False
        if settlement := met[one, other]:
            ratios = {codes.get(file.sha256, file.sha256): file.ratio for file in settlement.files}
            return ratios[one[1]] > ratios[other[1]] * (1 + settlement.resolves)
        return one[2] == other[2] and _is_apart(sources[one], sources[other], count)

    ahead = closed({pair for pair in itertools.permutations(entries, 2) if is_before(*pair)})
    placed = []
    for row in rows:
        key = _key_of(row.entry, codes)
        others = [_key_of(other.entry, codes) for other in rows if other is not row]
        place = 1 + sum((other, key) in ahead for other in others)
        last = len(rows) - sum((key, other) in ahead for other in others)
        settlements = (met.get((key, other)) for other in others)
        settled = max((one.date for one in settlements if one), default=None)
        # orders of settlements and of intervals can contradict each other: then the best place counts
        placed.append(replace(row, place=Place(place=place, last=max(place, last), of=len(rows), settled=settled)))

    def best_first(one: Ranked) -> tuple[int, int, bool, float, str, str]:
        assert one.ratio is not None
        is_copy = one.copy_of is not None  # and leads nobody by a luckier launch
        return one.place.place, one.place.last, is_copy, -one.ratio.value, one.entry.author, one.entry.file

    return tuple(sorted(placed, key=best_first))


def _is_apart(one: AuthorSource, other: AuthorSource, count: int) -> bool:
    """Whether the one is ahead by the intervals of a board of `count` sources."""
    is_one_session = len(list(sessions([*one.judgements, *other.judgements]))) == 1
    a, b = (one.within, other.within) if is_one_session and one.within else (one.over, other.over)
    if a is None or b is None:
        return False
    apart = 0.0 if one.machines == other.machines and len(one.machines) == 1 else MACHINES
    return is_ahead(a, b, count, apart)


def is_ahead(a: OverLaunches, b: OverLaunches, count: int, apart: float = 0.0) -> bool:
    """Whether the one estimate is ahead of the other, of `count` that are compared: their intervals do not overlap, and
    they differ by more than any of so many would by chance. `apart`: by how much more they have to, in log(ratio)."""
    chance = students_range(CONFIDENCE, count, min(a.freedom, b.freedom)) * math.hypot(a.error, b.error)
    return math.log(a.interval()[0] / b.interval()[1]) > apart and a.log - b.log > apart + chance


def closed(ahead: Collection[tuple[Key, Key]]) -> set[tuple[Key, Key]]:
    """The transitive closure of "ahead of". A pair that contradicts itself implies nothing."""
    reached = set(ahead)
    keys = {key for pair in ahead for key in pair}
    for between in keys:
        before = [one for one in keys if (one, between) in reached]
        behind = [one for one in keys if (between, one) in reached]
        reached.update(itertools.product(before, behind))
    return {(one, other) for one, other in reached if (one, other) in ahead or (other, one) not in reached}


def _settlement_of(board: Board, one: Entry, other: Entry, codes: Codes) -> Settlement | None:
    """The latest settlement that is not void and timed these two sources against each other, under the version of the
    problem that both entries were judged under."""
    pair = {code_of(one, codes), code_of(other, codes)}
    both = [
        settlement
        for settlement in board.settlements
        if settlement.both_judged
        and settlement.group == one.group == other.group
        and settlement.problem_version == one.problem_version == other.problem_version
        and pair <= {codes.get(file.sha256, file.sha256) for file in settlement.files}
    ]
    return max(both, key=lambda settlement: settlement.date, default=None)
