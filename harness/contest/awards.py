"""Who gets an award: targets a shape, places, and what an entry must have been through. Pure functions."""

from collections.abc import Sequence

from harness.board.entries import EntryCase
from harness.board.places import Ranked, is_open
from harness.contest.admission import Admission
from harness.contest.lifecycle import transition
from harness.contest.rules import AwardRule, Competition, Listed, Target
from harness.contest.standings import ProblemStandings, Standings
from harness.contest.state import ContestEntry
from harness.core.decode import did_you_mean
from harness.core.errors import UsageError
from harness.core.records import param_text
from harness.core.words import percent_text, times_text, us_text


def missed(listed: Listed, cases: Sequence[EntryCase]) -> list[str]:
    """The targets of the problem that the measured cases miss, a sentence each; empty where all are reached."""
    found = []
    for target in listed.targets:
        shape = " ".join(f"{name} {param_text(value)}" for name, value in target.shape.items()) or "every shape"
        chosen = [case for case in cases if target.shape.items() <= case.params.items()]
        if not chosen:
            found.append(f"target for {shape}: no such shape was measured")
        found += [f"{case.label}: {what}" for case in chosen for what in _missed(target, case)]
    return found


def _missed(target: Target, case: EntryCase) -> list[str]:
    found = []
    if target.time_us is not None:
        if case.unit != "us":
            found.append(f"measured in {case.unit}, the target is a time")
        elif case.value > target.time_us:
            found.append(f"{us_text(case.value)} us, the target is {us_text(target.time_us)} us")
    if target.speedup is not None and (case.ratio is None or case.ratio < target.speedup):
        reached = "no speedup is known" if case.ratio is None else times_text(case.ratio)
        found.append(f"{reached}, the target is {times_text(target.speedup)}")
    if target.limit is not None and (case.fraction is None or case.fraction < target.limit):
        reached = "no limit is known" if case.fraction is None else f"{percent_text(case.fraction)} of the limit"
        found.append(f"{reached}, the target is {percent_text(target.limit)}")
    return found


def rule_of(contest: Competition, name: str) -> AwardRule:
    """The award of that name; UsageError where there is none."""
    names = [rule.name for rule in contest.awards]
    if name not in names:
        known = f" (known: {', '.join(names)})" if names else "; its file has no `awards`"
        raise UsageError(f"no award '{name}' in {contest.name}{did_you_mean(name, names)}{known}")
    return contest.awards[names.index(name)]


def check_award(admission: Admission, standings: Standings, entry: ContestEntry, rule: AwardRule) -> None:
    """Raises UsageError where the entry may not be given the award now. `standings` are the full ones."""
    if rule.problem and rule.problem != entry.problem:
        what = f"'{rule.name}' is for {rule.problem}, and entry {entry.number} is of {entry.problem}"
        raise admission.refused(what, _rule(rule))
    admission.check_award_time(entry, rule)
    transition(entry.state, "awarded", entry.number)
    of_problem = [one for one in admission.state.entries.values() if one.problem == entry.problem]
    others = [one for one in of_problem if rule.name in one.awards and one.state == "awarded"]  # not disqualified since
    taken = [one for one in others if one == entry or not rule.shared or not _shares(standings, one, rule)]
    if taken:
        raise admission.refused(f"'{rule.name}' went to entry {taken[0].number} already", _rule(rule))
    _check_place(admission, standings, entry, rule)
    assert entry.evaluation is not None
    if rule.targets and (told := missed(admission.rules.problem(entry.problem), entry.evaluation.cases)):
        more = f", and {len(told) - 1} more" if len(told) > 1 else ""
        raise admission.refused(
            f"entry {entry.number} is below its target: {told[0]}{more}", f"problems[{entry.problem}].targets"
        )


def _check_place(admission: Admission, standings: Standings, entry: ContestEntry, rule: AwardRule) -> None:
    found = _find(standings, entry)
    if found is None:
        raise admission.refused(f"entry {entry.number} is not its team's best, so it has no place", _rule(rule))
    problem, row = found
    shown = f"place {row.place.text} of {entry.problem}"
    if rule.place != row.place.place:
        what = f"entry {entry.number} has {shown}, '{rule.name}' is for place {rule.place}"
        raise admission.refused(what, _rule(rule))
    if row.place.last > row.place.place and not rule.shared:
        what = f"{shown} is shared: the measurements do not tell these entries apart, and '{rule.name}' is not shared"
        if is_open(row, [team.row for team in problem.teams]):
            what += f"; `contest settle CONTEST {entry.problem} --top {row.place.last}` runs them head to head"
        raise admission.refused(what, _rule(rule))


def _shares(standings: Standings, entry: ContestEntry, rule: AwardRule) -> bool:
    """Whether the entry, which has the award, still stands in its place: after a reinstatement it may not."""
    found = _find(standings, entry)
    return found is not None and found[1].place.place == rule.place


def _find(standings: Standings, entry: ContestEntry) -> tuple[ProblemStandings, Ranked] | None:
    rows = ((problem, team) for problem in standings.problems for team in problem.teams)
    return next(((problem, team.row) for problem, team in rows if team.entry.number == entry.number), None)


def _rule(rule: AwardRule) -> str:
    return f"awards[{rule.name}]"
