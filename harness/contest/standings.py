"""Who stands where in a contest: each team's best source of a problem, with the places that the board gives them.

A team's submissions of one source are launches of it, as on the board: its estimate is over all of them, withdrawn ones
too, so that the same file submitted ten times does not stand for its luckiest launch. Of a team's sources the best
counts.
"""

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from datetime import datetime

from harness.board.digits import round_off
from harness.board.entries import Board, Entry, Group, order
from harness.board.judgements import rescored, with_judged
from harness.board.places import Ranked, groups, ranking
from harness.contest.lifecycle import PLACED
from harness.contest.log import Record
from harness.contest.rules import Competition, Listed
from harness.contest.state import ContestEntry, ContestState, fold
from harness.contest.times import closing


@dataclass(frozen=True, kw_only=True)
class TeamStanding:
    """A team's place with its best entry of a problem. `row` has the place and the estimates."""

    team: str
    entry: ContestEntry
    row: Ranked


@dataclass(frozen=True, kw_only=True)
class ProblemStandings:
    """The standings of a problem on one machine class, the best first; `group` is None where nothing is placed."""

    problem: str
    group: Group | None
    teams: tuple[TeamStanding, ...]


@dataclass(frozen=True, kw_only=True)
class Standings:
    """All problems' standings, at the time `at`. `frozen_at` is when they were frozen, None where they are not.
    `is_hidden`: only organisers may see them yet, so there are none here."""

    at: datetime
    problems: tuple[ProblemStandings, ...]
    frozen_at: datetime | None = None
    is_hidden: bool = False


def frozen_since(contest: Competition, state: ContestState, now: datetime) -> datetime | None:
    """Since when the public standings are frozen; None where they are not. The contest's `freeze` is one more freezing
    among those of the organisers: of all, the last counts. Theirs are in the log's order, whatever its times say, and
    past, whatever `now` is: a clock may have been set back since."""
    planned = closing(contest.freeze)
    events = list(state.freezes)
    if planned is not None and planned <= now:
        before = [number for number, (at, _) in enumerate(events, start=1) if at <= planned]
        events.insert(before[-1] if before else 0, (planned, True))
    since = None
    for at, frozen in events:
        since = (since or at) if frozen else None
    return since


def full(contest: Competition, records: Iterable[Record], board: Board, now: datetime) -> Standings:
    """The standings as they are. `board` has the settlements and what launches differ by."""
    return _at(contest, fold(records), board, now)


def public(contest: Competition, records: Iterable[Record], board: Board, now: datetime) -> Standings:
    """The standings that everybody may see: as of the freeze, and none while submissions are private."""
    records = tuple(records)
    frozen_at = frozen_since(contest, fold(records), now)
    if contest.is_hidden(now):
        nothing = tuple(ProblemStandings(problem=one.name, group=None, teams=()) for one in contest.problems)
        return Standings(at=now, problems=nothing, frozen_at=frozen_at, is_hidden=True)
    if frozen_at is None:
        return full(contest, records, board, now)
    settled = tuple(one for one in board.settlements if datetime.fromisoformat(one.date) <= frozen_at)
    then = replace(board, settlements=settled)
    return replace(_at(contest, fold(records, frozen_at), then, now), frozen_at=frozen_at)


def board_then(board: Board, then: Iterable[ContestEntry], changed: Set[str], later: Set[str]) -> Board:
    """The leaderboard as it was when the contest's entries were as in `then`: without the runs `later`, in the past of
    others too, and with what stands there by a run of `changed` as those entries had it, if they had."""
    placed = [one for one in then if one.ranked_at is not None and one.hold is None]
    known = (one.evaluation for one in sorted(placed, key=lambda one: one.ranked_at or one.changed_at))
    before = {one.identity: one for one in known if one is not None}
    gone = [one for one in board.judged if one.run_id in changed | later]
    entries = {one.identity: one for one in board.entries if one not in gone}
    for one in gone:
        if (was := before.get(one.identity)) is not None:
            past = tuple(each for each in one.history if each.run_id != was.run_id)
            entries.setdefault(one.identity, replace(round_off(was), history=past))
    seen = (
        replace(one, history=tuple(past for past in one.history if past.run_id not in later))
        for one in entries.values()
    )
    return replace(
        board,
        entries=tuple(sorted(rescored(list(seen)), key=order)),
        held=tuple(one for one in board.held if one not in gone),
    )


def _at(contest: Competition, state: ContestState, board: Board, now: datetime) -> Standings:
    return Standings(at=now, problems=tuple(one for listed in contest.problems for one in _of(listed, state, board)))


def _of(listed: Listed, state: ContestState, board: Board) -> list[ProblemStandings]:
    """A problem's standings, one for each group: results of two machine classes do not compare."""
    of_problem = [one for one in state.entries.values() if one.problem == listed.name and one.evaluation is not None]
    sources = {(one.team, one.sha256) for one in of_problem if one.is_placed}
    launches = [one for one in of_problem if one.is_placed or one.state == "withdrawn"]
    beside = replace(board, entries=(), held=())
    of_team: dict[str, Board] = {}
    by_run: dict[str, ContestEntry] = {}
    for one in (one for one in launches if (one.team, one.sha256) in sources):
        evaluation = _named(one)
        by_run[evaluation.run_id] = one
        of_team[one.team] = with_judged(of_team.get(one.team, beside), evaluation)
    best: list[Entry] = []
    for own in of_team.values():
        best += [ranking(own, group)[0].entry for group in groups(own)]
    together = replace(beside, entries=tuple(best))
    found = []
    for group in groups(together):
        rows = ranking(together, group)
        teams = tuple(
            TeamStanding(team=row.entry.author, entry=_latest_state(row.entry, by_run), row=row) for row in rows
        )
        found.append(ProblemStandings(problem=listed.name, group=group, teams=teams))
    return found or [ProblemStandings(problem=listed.name, group=None, teams=())]


def _named(one: ContestEntry) -> Entry:
    """The entry as the contest's board has it: the author is the team, and a source is a file of its own."""
    assert one.evaluation is not None, "what is placed was evaluated"
    return replace(one.evaluation, author=one.team, file=one.sha256[:16])


def _latest_state(entry: Entry, by_run: dict[str, ContestEntry]) -> ContestEntry:
    """The state of the source's submission that got furthest, the first of several: an award is for a submission that
    was reproduced, whichever launch the board has last."""
    runs = [entry.run_id, *(past.run_id for past in entry.history if past.sha256 == entry.sha256)]
    placed = [by_run[run] for run in runs if by_run[run].is_placed]
    return max(placed, key=lambda one: (PLACED.index(one.state), -one.number))
