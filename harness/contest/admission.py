"""Who may do what when: the refusals of a contest. Pure functions over its rules, its state and a time.

Every refusal is a UsageError that begins with `refused:` and names the rule by its place in the contest's file, what it
says, and the time of the request.
"""

import re
from datetime import UTC, datetime, timedelta

from harness.contest.rules import AwardRule, Competition, Listed
from harness.contest.state import ContestEntry, ContestState, Team
from harness.contest.times import shown_time
from harness.core.decode import did_you_mean
from harness.core.errors import UsageError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")  # of a team and of a member: a folder and an author as well


def check_registration(
    contest: Competition, state: ContestState, team: str, members: tuple[str, ...], now: datetime
) -> None:
    """Raises UsageError where these people may not register as members of that team now."""
    opens, closes = contest.registration.moments
    if opens and now < opens:
        raise refused(f"registration opens at {shown_time(opens)}", "registration.opens", now)
    if closes and now > closes:
        raise refused(f"registration closed at {shown_time(closes)}", "registration.closes", now)
    for what, name in (("team", team), *(("member", name) for name in members)):
        if not NAME.fullmatch(name):
            raise UsageError(
                f"the {what} name {name!r} cannot be used: expected up to 32 letters, digits, dots, dashes and "
                "underscores"
            )
    if not members:
        raise UsageError(f"who is in {team}? Name at least one member")
    known = contest.teams.participants
    for index, name in enumerate(members):
        if name in members[:index]:
            raise UsageError(f"{name} is named twice; name each member once")
        if known and name not in known:
            what = f"'{name}' is not on the list of participants{did_you_mean(name, known)}"
            raise refused(what, "teams.participants", now)
        if (other := state.team_of(name)) is not None:
            where = "this team" if other.name == team else f"team {other.name}"
            raise refused(f"{name} is in {where} already, and a member is in one team", "teams", now)
    same = [one for one in state.teams if one.lower() == team.lower() and one != team]
    if same:
        raise UsageError(f"there is a team {same[0]}; choose a name that differs in more than upper and lower case")
    count = len(members) + len(state.teams[team].members if team in state.teams else ())
    if count > contest.teams.members:
        what = f"{team} would have {count} members, at most {contest.teams.members} are allowed"
        raise refused(what, "teams.members", now)


def check_submission(
    contest: Competition, state: ContestState, member: str, problem: str, now: datetime, team: str | None = None
) -> tuple[Team, Listed]:
    """The member's team, and the problem. UsageError for another `team`, and where a rule forbids it."""
    listed = contest.problem(problem)
    own = _team(state, member, team, now)
    opens, closes = contest.opening(listed), contest.closes(listed)
    if opens and now < opens:
        rule = _rule(listed, "opens", bool(listed.opens))
        raise refused(f"too early: {problem} opens at {shown_time(opens)}", rule, now)
    if closes and now > closes:
        rule = _rule(listed, "deadline", bool(listed.deadline))
        raise refused(f"too late: {problem} closed at {shown_time(closes)}", rule, now)
    if (most := contest.quota.per_day) is not None and (used := used_today(state, own.name, now)) >= most:
        raise refused(
            f"team {own.name} has used its {most} submissions of {now.astimezone(UTC):%Y-%m-%d} ({used}); the next day "
            f"begins at {shown_time(_day(now) + timedelta(days=1))}",
            "quota.per_day",
            now,
        )
    return own, listed


def check_withdrawal(state: ContestState, entry: ContestEntry, member: str, now: datetime) -> None:
    """Raises UsageError where the member is not of the entry's team."""
    own = _team(state, member, None, now)
    if own.name != entry.team:
        raise refused(f"entry {entry.number} is team {entry.team}'s, and {member} is in team {own.name}", "teams", now)


def check_organiser(contest: Competition, actor: str, now: datetime) -> None:
    """Raises UsageError where somebody else acts as an organiser."""
    if actor not in contest.organisers:
        what = f"{actor} is no organiser of {contest.name} ({', '.join(contest.organisers)} may do this)"
        raise refused(what, "organisers", now)


def check_named(contest: Competition, login: str, named: str, now: datetime) -> None:
    """Raises UsageError where somebody who is no organiser acts under another name than the login's."""
    if named != login and login not in contest.organisers:
        organisers = ", ".join(contest.organisers)
        what = f"{login} is logged in and may not act as {named}; an organiser may ({organisers})"
        raise refused(what, "organisers", now)


def check_registrar(
    contest: Competition, state: ContestState, team: str, members: tuple[str, ...], actor: str, now: datetime
) -> None:
    """Raises UsageError where these people are registered by somebody who is neither an organiser nor of their team."""
    own = state.teams[team].members if team in state.teams else members
    if actor not in own and actor not in contest.organisers:
        what = f"{actor} is not in team {team}; one of {', '.join(own)} registers its members, or an organiser does"
        raise refused(what, "teams", now)


def check_award_time(contest: Competition, entry: ContestEntry, rule: AwardRule, now: datetime) -> None:
    """Raises UsageError where the problem is still open."""
    listed = contest.problem(entry.problem)
    closes = contest.closes(listed)
    if closes and now <= closes:
        what = f"too early: '{rule.name}' is awarded after {entry.problem} closes, at {shown_time(closes)}"
        raise refused(what, _rule(listed, "deadline", bool(listed.deadline)), now)


def used_today(state: ContestState, team: str, now: datetime) -> int:
    """How many submissions of the team count against its quota on the day (UTC) of `now`."""
    return sum(
        one.team == team and one.counts and _day(one.submitted_at) == _day(now) for one in state.entries.values()
    )


def refused(what: str, rule: str, now: datetime) -> UsageError:
    return UsageError(f"refused: {what} (rule `{rule}`; it is {shown_time(now)})")


def _team(state: ContestState, member: str, team: str | None, now: datetime) -> Team:
    if team is not None and team not in state.teams:
        known = sorted(state.teams)
        raise refused(f"unknown team '{team}'{did_you_mean(team, known)}; `contest register` adds one", "teams", now)
    own = state.team_of(member)
    if own is None:
        names = [name for one in state.teams.values() for name in one.members]
        hint = did_you_mean(member, names)
        raise refused(f"unknown member '{member}'{hint}; `contest register` adds one to a team", "teams", now)
    if team is not None and own.name != team:
        raise refused(f"{member} is in team {own.name}, not in {team}", "teams", now)
    return own


def _rule(listed: Listed, key: str, is_own: bool) -> str:
    return f"problems[{listed.name}].{key}" if is_own else key


def _day(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
