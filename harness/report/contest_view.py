"""A contest as documents and as JSON: what it is, its standings, an entry's history. Statistics are contest_stats'."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from harness.contest import standings
from harness.contest.acts import Contest
from harness.contest.admission import used_today
from harness.contest.awards import missed
from harness.contest.lifecycle import OfEntry, Registered
from harness.contest.log import Record
from harness.contest.rules import Competition, Listed
from harness.contest.standings import ProblemStandings, Standings
from harness.contest.state import ContestEntry, ContestState
from harness.contest.statistics import board_text
from harness.contest.times import closing, read_moment, shown_time, written
from harness.core.decode import encode
from harness.core.records import param_text
from harness.core.words import clean_line, count_text, or_dash, percent_text, speedup_text, times_text
from harness.report.document import Block, Document, Heading, Styled, Table, UntrustedText, cells, prose

SCHEMA = 1  # of the JSON objects here; 1: first


# ---- several contests ------------------------------------------------------------------------------------------------
def contests_document(found: Sequence[Contest], now: datetime) -> Document:
    rows = []
    for one in contests_json(found, now)["contests"]:
        ends = shown_time(read_moment(one["ends"])) if one["ends"] else "never"
        counts = str(one["teams"]), str(one["entries"])
        rows.append(cells(one["contest"], one["name"], *counts, one["phase"], ends))
    return Document(blocks=(Table(("contest", "name", ">teams", ">entries", "now", "ends"), rows),))


def phase(contest: Competition, state: ContestState, now: datetime) -> str:
    """In a few words, how far the contest is."""
    opens, closes = contest.registration.moments
    openings = [contest.opening(listed) for listed in contest.problems]
    is_open = any(
        (begins is None or begins <= now) and ((ends := contest.closes(listed)) is None or now <= ends)
        for begins, listed in zip(openings, contest.problems, strict=True)
    )
    words = []
    if (opens is None or opens <= now) and (closes is None or now <= closes) and not contest.is_over(now):
        words.append("registration")
    words += ["submission"] if is_open else []
    words += ["over"] if contest.is_over(now) else []
    words += ["frozen"] if standings.frozen_since(contest, state, now) else []
    return ", ".join(words) or "not open"


def contests_json(found: Sequence[Contest], now: datetime) -> dict[str, Any]:
    rows = []
    for one in found:
        state, ends = one.state(), one.rules.ends
        rows.append(
            {
                "contest": one.key,
                "file": str(one.file),
                "name": one.rules.name,
                "teams": len(state.teams),
                "entries": len(state.entries),
                "phase": phase(one.rules, state, now),
                "ends": written(ends) if ends else None,
            }
        )
    return {"schema": SCHEMA, "contests": rows}


# ---- one contest -----------------------------------------------------------------------------------------------------
def contest_document(found: Contest, now: datetime) -> Document:
    rules, state = found.rules, found.state()
    title = (UntrustedText(rules.name), Styled(f", {shown_time(now)}: {phase(rules, state, now)}", ""))
    blocks: list[Block] = [Heading(title)]
    if rules.description:
        blocks.append(prose(*map(UntrustedText, rules.description.strip().splitlines())))
    blocks.append(Table(("rule", ""), [(name, UntrustedText(text)) for name, text in _rules(rules)]))
    rows = []
    for listed in rules.problems:
        opens, closes = rules.opening(listed), rules.closes(listed)
        times = shown_time(opens) if opens else "always", shown_time(closes) if closes else "never"
        rows.append(cells(listed.name, *times, "; ".join(_targets(listed)) or "none"))
    blocks.append(Table(("problem", "opens", "closes", "targets"), rows))
    if state.teams:
        of_teams = [
            cells(one["name"], ", ".join(one["members"]), str(one["entries"]), str(one["today"]))
            for one in _teams(state, now)
        ]
        blocks.append(Table(("team", "members", ">entries", ">today"), of_teams))
    return Document(blocks=(*blocks, *_torn(found)))


def _rules(rules: Competition) -> list[tuple[str, str]]:
    opens, closes = rules.registration.moments
    begins, ends = shown_time(opens) if opens else "any time", shown_time(closes) if closes else "the end"
    found = [
        ("registration", f"{begins} to {ends}"),
        ("teams", f"{count_text(rules.teams.members, 'member')} at most; a member is in one team"),
        ("quota", f"{rules.quota.per_day} submissions a team and day (UTC)" if rules.quota.per_day else "none"),
    ]
    if rules.teams.participants:
        found.append(("participants", f"{len(rules.teams.participants)} people, listed in its file"))
    if freeze := closing(rules.freeze):
        found.append(("freeze", f"public standings stay as they are from {shown_time(freeze)}"))
    if rules.private and rules.ends:
        found.append(("private", f"what a team submits and reaches, until {shown_time(rules.ends)}"))
    for award in rules.awards:
        of = f"place {award.place} of {award.problem or 'each problem'}"
        parts = [of, *(["targets reached"] if award.targets else []), *([] if award.shared else ["not shared"])]
        found.append((f"award {award.name}", ", ".join(parts)))
    if rules.organisers:
        found.append(("organisers", ", ".join(rules.organisers)))
    return found


def _targets(listed: Listed) -> list[str]:
    found = []
    for target in listed.targets:
        shape = " ".join(f"{name} {param_text(value)}" for name, value in target.shape.items()) or "every shape"
        parts = [f"at most {target.time_us:g} us"] if target.time_us else []
        parts += [f"{times_text(target.speedup)} the reference"] if target.speedup else []
        parts += [f"{percent_text(target.limit)} of the limit"] if target.limit else []
        found.append(f"{shape}: {', '.join(parts)}")
    return found


def _torn(found: Contest) -> list[Block]:
    """Says that the log's last line was cut off, if it was."""
    return [prose(UntrustedText(f"warning: {found.log.torn}"), style="yellow", whole=True)] if found.log.torn else []


def _teams(state: ContestState, now: datetime) -> list[dict[str, Any]]:
    return [
        {
            "name": team.name,
            "registered_at": written(team.registered_at),
            "members": list(team.members),
            "entries": sum(one.team == team.name for one in state.entries.values()),
            "today": used_today(state, team.name, now),
        }
        for team in state.teams.values()
    ]


def contest_json(found: Contest, now: datetime) -> dict[str, Any]:
    state = found.state()
    return {
        "schema": SCHEMA,
        "at": written(now),
        "contest": found.key,
        "phase": phase(found.rules, state, now),
        "rules": encode(found.rules),
        "teams": _teams(state, now),
        "torn": found.log.torn or None,
    }


# ---- an entry, and the log -------------------------------------------------------------------------------------------
def entry_document(found: Contest, number: int) -> Document:
    one = found.state().entry(number)
    lines = [entry_line(one), f"{one.file}, sha256 {one.sha256[:16]}, by {one.member}"]
    if one.evaluation is not None:
        lines.append(f"run {one.evaluation.run_id}, source in runs/sources/{one.sha256}/")
        listed = [listed for listed in found.rules.problems if listed.name == one.problem]  # none: not any more
        below = [told for each in listed for told in missed(each, one.evaluation.cases)]
        lines += [f"below its target: {told}" for told in below]
    records = [one for one in found.log.records() if isinstance(one.event, OfEntry) and one.event.entry == number]
    return Document(blocks=(prose(*map(UntrustedText, lines), whole=True), _log(records)))


def entry_line(one: ContestEntry) -> str:
    """`entry 7 of team owls: ranked, 2.10x the reference`."""
    reached = f", {speedup_text(one.evaluation.ratio)} the reference" if one.evaluation and one.evaluation.ratio else ""
    return clean_line(f"entry {one.number} of team {one.team}, {one.problem}: {one.state}{reached}{_why(one)}")


def _why(one: ContestEntry) -> str:
    if one.state == "failed" and one.failure is not None:
        return f" ({one.failure.kind.replace('_', ' ')}: {one.failure.why})"
    if one.state == "held" and one.hold is not None:
        return f" ({one.hold.check}: {one.hold.evidence})"
    if one.state == "awarded":
        return f" ({', '.join(one.awards)})"
    return f" ({one.why})" if one.why else ""


def log_document(found: Contest) -> Document:
    return Document(blocks=(_log(found.log.records()), *_torn(found)))


def _log(records: Sequence[Record]) -> Table:
    rows = []
    for record in records:
        when = shown_time(record.moment.replace(microsecond=0))
        rows.append(cells(str(record.n), when, record.by, record.event.type, _what(record)))
    return Table((">n", "when", "who", "what", ""), rows)


def _what(record: Record) -> str:
    event = record.event
    if isinstance(event, Registered):
        return f"{event.team}: {', '.join(member.name for member in event.members)}"
    values = encode(event)
    number = f"entry {values['entry']}" if "entry" in values else ""
    known = ("team", "problem", "file", "kind", "check", "why", "evidence", "award", "note")
    return ", ".join([number, *(str(values[name]) for name in known if values.get(name))]).strip(", ")


# ---- standings -------------------------------------------------------------------------------------------------------
def standings_document(found: Contest, shown: Standings, problem: str | None) -> Document:
    blocks: list[Block] = [
        Heading((UntrustedText(found.rules.name), Styled(f", {shown_time(shown.at)}{_headline(found, shown)}", "")))
    ]
    keys = ("place", "speedup_text", "limit_text", "team", "entry", "state", "targets")
    for one in shown.problems:
        if problem not in (None, one.problem) or shown.is_hidden:
            continue
        where = f"  {board_text(one.group)}" if one.group else ""
        blocks.append(Heading((UntrustedText(one.problem), Styled(UntrustedText(where), ""))))
        if not one.teams:
            blocks.append(prose("no entry passed yet"))
            continue
        rows = [cells(*(str(row[key]) for key in keys)) for row in standing_rows(found.rules, one)]
        blocks.append(Table((">place", ">speedup", ">limit %", "team", ">entry", "state", "targets"), rows, close=True))
    return Document(blocks=(*blocks, *_torn(found)))


def _headline(found: Contest, shown: Standings) -> str:
    if shown.is_hidden:
        ends = found.rules.ends
        until = f" until {shown_time(ends)}" if ends else ""
        return f"\nThe standings are private{until}; organisers see them with --full."
    if shown.frozen_at is not None:
        return f", frozen: as they were at {shown_time(shown.frozen_at)}"
    return ""


def standing_rows(rules: Competition, one: ProblemStandings) -> list[dict[str, Any]]:
    """The rows of a problem's standings, as JSON and pages have them."""
    listed = rules.problem(one.problem)
    rows = []
    for standing in one.teams:
        evaluation, row = standing.entry.evaluation, standing.row
        below = missed(listed, evaluation.cases) if evaluation else []
        reached = ("missed" if below else "reached") if listed.targets else "none set"
        rows.append(
            {
                "place": row.place.text,
                "speedup": row.speedup,
                "interval": list(row.ratio.ci) if row.ratio and row.ratio.ci else None,
                "speedup_text": speedup_text(row.speedup),
                "limit": row.fraction,
                "limit_text": or_dash(percent_text, row.fraction),
                "launches": row.launches,
                "team": standing.team,
                "entry": standing.entry.number,
                "state": standing.entry.state,
                "targets": reached,
                "missed": below,
                "awards": list(standing.entry.awards),
            }
        )
    return rows


def standings_json(found: Contest, shown: Standings, problem: str | None = None) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "contest": found.key,
        "name": found.rules.name,
        "at": written(shown.at),
        "frozen_at": written(shown.frozen_at) if shown.frozen_at else None,
        "is_hidden": shown.is_hidden,
        "problems": [
            {
                "problem": one.problem,
                "board": board_text(one.group) if one.group else None,
                "teams": standing_rows(found.rules, one),
            }
            for one in shown.problems
            if problem in (None, one.problem)
        ],
    }
