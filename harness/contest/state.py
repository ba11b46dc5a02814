"""What a contest is after everything that its log says: teams, entries with their states, and when it was frozen."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from harness.board.entries import Entry
from harness.contest import lifecycle
from harness.contest.lifecycle import PLACED, EntryEvent, State, transition
from harness.contest.log import Record
from harness.core.decode import part
from harness.core.errors import BadFileError, UsageError


@dataclass(frozen=True, kw_only=True)
class Team:
    """A team; `members` are the sha256 of each member's id by the member's name."""

    name: str
    registered_at: datetime
    members: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class ContestEntry:
    """A submission and what became of it. `evaluation` is there once it was ranked or reproduced; `reproduced` is the
    last reproduction, `failure` and `hold` say why it failed or is held, `why` why it is disqualified or was
    reinstated, and `before` is the state in which it was disqualified."""

    number: int
    team: str
    member: str
    problem: str
    file: str
    sha256: str
    submitted_at: datetime
    changed_at: datetime
    via: str
    state: State = "submitted"
    evaluation: Entry | None = None
    ranked_at: datetime | None = None
    reproduced: lifecycle.Reproduced | None = None
    failure: lifecycle.EvaluationFailed | None = None
    hold: lifecycle.EvaluationHeld | None = None
    awards: tuple[str, ...] = ()
    why: str = ""
    before: State = "submitted"

    @property
    def is_placed(self) -> bool:
        return self.state in PLACED

    @property
    def run_ids(self) -> frozenset[str]:
        launches = self.reproduced.verified.run_ids if self.reproduced is not None else ()
        outcomes = (self.evaluation, self.failure, self.hold)
        return frozenset((*(one.run_id for one in outcomes if one is not None and one.run_id), *launches))

    @property
    def counts(self) -> bool:
        """Whether it is counted against the quota."""
        return self.failure is None or self.failure.counts


@dataclass(frozen=True, kw_only=True)
class ContestState:
    """Everything at one moment. `freezes`: when an organiser froze (True) or unfroze the standings."""

    teams: Mapping[str, Team] = field(default_factory=dict)
    entries: Mapping[int, ContestEntry] = field(default_factory=dict)
    freezes: tuple[tuple[datetime, bool], ...] = ()

    def entry(self, number: int) -> ContestEntry:
        """The entry of that number; UsageError where there is none."""
        if number not in self.entries:
            count = len(self.entries)
            raise UsageError(f"no entry {number}; " + (f"the last one is {count}" if count else "none was submitted"))
        return self.entries[number]

    def team_of(self, member: str) -> Team | None:
        return next((team for team in self.teams.values() if member in team.members), None)

    def member_of(self, id_sha256: str) -> tuple[Team, str] | None:
        members = ((team, name, known) for team in self.teams.values() for name, known in team.members.items())
        return next(((team, name) for team, name, known in members if known == id_sha256), None)


def fold(records: Iterable[Record], until: datetime | None = None) -> ContestState:
    """The state after the records (written up to `until`). BadFileError for one that cannot follow."""
    teams: dict[str, Team] = {}
    entries: dict[int, ContestEntry] = {}
    freezes: list[tuple[datetime, bool]] = []
    for record in records:
        if until is not None and record.moment > until:
            break
        event, at = record.event, record.moment
        match event:
            case lifecycle.Registered():
                _register(teams, event, at, record)
            case lifecycle.Frozen() | lifecycle.Unfrozen():
                freezes.append((at, isinstance(event, lifecycle.Frozen)))
            case lifecycle.Repaired():
                pass
            case lifecycle.Submitted():
                if event.entry != len(entries) + 1:
                    raise _impossible(record, f"entry {event.entry} follows entry {len(entries)}")
                entries[event.entry] = part(event, ContestEntry, number=event.entry, submitted_at=at, changed_at=at)
            case _:
                if event.entry not in entries:
                    raise _impossible(record, f"there is no entry {event.entry}")
                entries[event.entry] = _changed(entries[event.entry], event, at, record)
    return ContestState(teams=teams, entries=entries, freezes=tuple(freezes))


def _register(teams: dict[str, Team], event: lifecycle.Registered, at: datetime, record: Record) -> None:
    new = {member.name: member.id_sha256 for member in event.members}
    taken = {name for team in teams.values() for name in team.members}
    if both := sorted(taken & new.keys()):
        raise _impossible(record, f"{both[0]} is in a team already")
    known = teams.get(event.team) or Team(name=event.team, registered_at=at, members={})
    teams[event.team] = replace(known, members={**known.members, **new})


def _changed(entry: ContestEntry, event: EntryEvent, at: datetime, record: Record) -> ContestEntry:
    before = entry.state
    try:
        entry = replace(entry, state=transition(before, event.type, entry.number, entry.before), changed_at=at)
    except UsageError as error:
        raise _impossible(record, str(error)) from None
    match event:
        case lifecycle.EvaluationRanked():
            return replace(entry, evaluation=event.evaluation, ranked_at=at)
        case lifecycle.EvaluationFailed():
            return replace(entry, failure=event)
        case lifecycle.EvaluationHeld():
            return replace(entry, hold=event)
        case lifecycle.Reproduced():
            evaluation = event.evaluation or entry.evaluation
            if evaluation is None:
                raise _impossible(record, f"entry {entry.number} has no figures")
            reproduced_at = entry.ranked_at or at
            evaluation = replace(evaluation, verified=event.verified)
            return replace(entry, reproduced=event, hold=None, evaluation=evaluation, ranked_at=reproduced_at)
        case lifecycle.Awarded():
            return replace(entry, awards=(*entry.awards, event.award))
        case lifecycle.Disqualified():
            return replace(entry, why=event.why, before=before)
        case lifecycle.Reinstated():
            return replace(entry, why=f"reinstated: {event.why}", awards=())
        case lifecycle.Reviewed():
            return replace(entry, why=event.note)
    return entry


def _impossible(record: Record, what: str) -> BadFileError:
    return BadFileError(f"record {record.n} of the audit log ({record.event.type}): {what}; restore it from a copy")
