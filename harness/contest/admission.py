"""Who may do what when: the refusals of a contest, by its rules, its state and a time.

Every refusal is a UsageError that begins with `refused:` and names the rule by its place in the contest's file, what it
says, and the time of the request.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from harness.contest.rules import AwardRule, Competition, Listed
from harness.contest.state import ContestEntry, ContestState, Team
from harness.contest.times import shown_time
from harness.core.decode import did_you_mean
from harness.core.errors import UsageError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")  # of a team and of a member: a folder and an author as well


@dataclass(frozen=True, kw_only=True)
class Admission:
    """What a contest admits at a moment: its rules, its state then, and the time of the request."""

    rules: Competition
    state: ContestState
    now: datetime

    def refused(self, what: str, rule: str) -> UsageError:
        return UsageError(f"refused: {what} (rule `{rule}`; it is {shown_time(self.now)})")

    def check_registration(self, team: str, members: tuple[str, ...]) -> None:
        """Raises UsageError where these people may not register as members of that team now."""
        opens, closes = self.rules.registration.moments
        if opens and self.now < opens:
            raise self.refused(f"registration opens at {shown_time(opens)}", "registration.opens")
        if closes and self.now > closes:
            raise self.refused(f"registration closed at {shown_time(closes)}", "registration.closes")
        for what, name in (("team", team), *(("member", name) for name in members)):
            if not NAME.fullmatch(name):
                raise UsageError(
                    f"the {what} name {name!r} cannot be used: expected up to 32 letters, digits, dots, dashes and "
                    "underscores"
                )
        if not members:
            raise UsageError(f"who is in {team}? Name at least one member")
        known = self.rules.teams.participants
        for index, name in enumerate(members):
            if name in members[:index]:
                raise UsageError(f"{name} is named twice; name each member once")
            if known and name not in known:
                what = f"'{name}' is not on the list of participants{did_you_mean(name, known)}"
                raise self.refused(what, "teams.participants")
            if (other := self.state.team_of(name)) is not None:
                where = "this team" if other.name == team else f"team {other.name}"
                raise self.refused(f"{name} is in {where} already, and a member is in one team", "teams")
        same = [one for one in self.state.teams if one.lower() == team.lower() and one != team]
        if same:
            raise UsageError(f"there is a team {same[0]}; choose a name that differs in more than upper and lower case")
        count = len(members) + len(self.state.teams[team].members if team in self.state.teams else ())
        if count > self.rules.teams.members:
            what = f"{team} would have {count} members, at most {self.rules.teams.members} are allowed"
            raise self.refused(what, "teams.members")

    def check_submission(self, member: str, problem: str, team: str | None = None) -> tuple[Team, Listed]:
        """The member's team, and the problem. UsageError for another `team`, and where a rule forbids it."""
        listed = self.rules.problem(problem)
        own = self._team(member, team)
        opens, closes = self.rules.opening(listed), self.rules.closes(listed)
        if opens and self.now < opens:
            rule = _rule(listed, "opens", bool(listed.opens))
            raise self.refused(f"too early: {problem} opens at {shown_time(opens)}", rule)
        if closes and self.now > closes:
            rule = _rule(listed, "deadline", bool(listed.deadline))
            raise self.refused(f"too late: {problem} closed at {shown_time(closes)}", rule)
        most, used = self.rules.quota.per_day, used_today(self.state, own.name, self.now)
        if most is not None and used >= most:
            raise self.refused(
                f"team {own.name} has used its {most} submissions of {self.now.astimezone(UTC):%Y-%m-%d} ({used}); the "
                f"next day begins at {shown_time(_day(self.now) + timedelta(days=1))}",
                "quota.per_day",
            )
        return own, listed

    def check_withdrawal(self, entry: ContestEntry, member: str) -> None:
        """Raises UsageError where the member is not of the entry's team."""
        own = self._team(member, None)
        if own.name != entry.team:
            raise self.refused(
                f"entry {entry.number} is team {entry.team}'s, and {member} is in team {own.name}", "teams"
            )

    def check_organiser(self, actor: str) -> None:
        """Raises UsageError where somebody else acts as an organiser."""
        if actor not in self.rules.organisers:
            what = f"{actor} is no organiser of {self.rules.name} ({', '.join(self.rules.organisers)} may do this)"
            raise self.refused(what, "organisers")

    def check_named(self, login: str, named: str) -> None:
        """Raises UsageError where somebody who is no organiser acts under another name than the login's."""
        if named != login and login not in self.rules.organisers:
            organisers = ", ".join(self.rules.organisers)
            what = f"{login} is logged in and may not act as {named}; an organiser may ({organisers})"
            raise self.refused(what, "organisers")

    def check_registrar(self, team: str, members: tuple[str, ...], actor: str) -> None:
        """Raises UsageError where an actor registers them who is neither an organiser nor of their team."""
        own = self.state.teams[team].members if team in self.state.teams else members
        if actor not in own and actor not in self.rules.organisers:
            what = f"{actor} is not in team {team}; one of {', '.join(own)} registers its members, or an organiser does"
            raise self.refused(what, "teams")

    def check_award_time(self, entry: ContestEntry, rule: AwardRule) -> None:
        """Raises UsageError where the problem is still open."""
        listed = self.rules.problem(entry.problem)
        closes = self.rules.closes(listed)
        if closes and self.now <= closes:
            what = f"too early: '{rule.name}' is awarded after {entry.problem} closes, at {shown_time(closes)}"
            raise self.refused(what, _rule(listed, "deadline", bool(listed.deadline)))

    def _team(self, member: str, team: str | None) -> Team:
        if team is not None and team not in self.state.teams:
            known = sorted(self.state.teams)
            raise self.refused(
                f"unknown team '{team}'{did_you_mean(team, known)}; `contest register` adds one", "teams"
            )
        own = self.state.team_of(member)
        if own is None:
            names = [name for one in self.state.teams.values() for name in one.members]
            hint = did_you_mean(member, names)
            raise self.refused(f"unknown member '{member}'{hint}; `contest register` adds one to a team", "teams")
        if team is not None and own.name != team:
            raise self.refused(f"{member} is in team {own.name}, not in {team}", "teams")
        return own


def used_today(state: ContestState, team: str, now: datetime) -> int:
    """How many submissions of the team count against its quota on the day (UTC) of `now`."""
    return sum(
        one.team == team and one.counts and _day(one.submitted_at) == _day(now) for one in state.entries.values()
    )


def _rule(listed: Listed, key: str, is_own: bool) -> str:
    return f"problems[{listed.name}].{key}" if is_own else key


def _day(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
