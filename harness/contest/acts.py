"""What people do in a contest: each act checks the rules and adds to the audit log, under its lock.

Knows rules, log and state; neither evaluates nor shows anything. The time and the name of who acts are passed in.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from harness.board import judgements
from harness.board.entries import Board, Entry, one_line
from harness.contest import awards, lifecycle, rules, standings
from harness.contest.admission import Admission
from harness.contest.lifecycle import EntryEvent, Via, transition
from harness.contest.log import ContestLog, Record
from harness.contest.rules import Competition
from harness.contest.state import ContestEntry, ContestState, fold
from harness.contest.times import shown_time
from harness.core.accounts import owner
from harness.core.decode import part
from harness.core.errors import UsageError
from harness.core.records import EvalReport
from harness.judging import verdict

FOLDER = "contests"  # of a checkout: where contests are looked for
LOG_SUFFIX = ".log.jsonl"  # in place of .yaml, beside the contest's file
Outcome = lifecycle.EvaluationRanked | lifecycle.EvaluationHeld | lifecycle.EvaluationFailed


@dataclass(frozen=True, kw_only=True)
class Contest:
    """A contest: its file, the rules in it, and its audit log, which lies beside it."""

    file: Path
    rules: Competition
    log: ContestLog

    @property
    def key(self) -> str:
        """The file's name without its ending, by which addresses and commands name the contest."""
        return self.file.name.removesuffix(self.file.suffix)

    def state(self) -> ContestState:
        return fold(self.log.records())

    def at(self, now: datetime, records: Sequence[Record] | None = None) -> Admission:
        """What it admits now, after these records (default: all that there are)."""
        return Admission(rules=self.rules, state=self.state() if records is None else fold(records), now=now)


def opened(file: Path) -> Contest:
    """The contest of that file, whose owner organises by default. BadFileError for bad files and logs."""
    found = rules.read(file)
    found = replace(found, organisers=found.organisers or (owner(file),))
    contest = Contest(file=file, rules=found, log=ContestLog(file.with_suffix(LOG_SUFFIX)))
    contest.state()
    return contest


def id_hash(secret: str) -> str:
    """The hash of an X-Popcorn-Cli-Id that the log has."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


# ---- teams and submissions -------------------------------------------------------------------------------------------
def register(
    contest: Contest, team: str, members: tuple[str, ...], now: datetime, by: str, new_secret: Callable[[], str]
) -> dict[str, str]:
    """Registers members; each one's id for popcorn-cli, which is not kept. UsageError by the rules."""
    ids = {name: f"{name}:{new_secret()}" for name in members}

    def decide(records: tuple[Record, ...]) -> list[lifecycle.Registered]:
        contest.at(now, records).check_registration(team, members)
        return [
            lifecycle.Registered(
                team=team,
                members=tuple(lifecycle.Member(name=name, id_sha256=id_hash(text)) for name, text in ids.items()),
            )
        ]

    contest.log.add(decide, now, by)
    return ids


@dataclass(frozen=True, kw_only=True)
class NewEntry:
    """A member's submission, before it is taken on. `team` is the member's, if it was named."""

    member: str
    problem: str
    file: str
    sha256: str
    via: Via = "command line"
    team: str | None = None


def submit(contest: Contest, new: NewEntry, now: datetime) -> ContestEntry:
    """Takes the submission on; its evaluation follows. Raises UsageError where a rule forbids it."""

    def decide(records: tuple[Record, ...]) -> list[lifecycle.Submitted]:
        admission = contest.at(now, records)
        own, _ = admission.check_submission(new.member, new.problem, new.team)
        number = len(admission.state.entries) + 1
        return [part(new, lifecycle.Submitted, entry=number, team=own.name, file=one_line(new.file))]

    state = fold(contest.log.add(decide, now, new.member))
    return state.entry(max(number for number, one in state.entries.items() if one.member == new.member))


def outcome(number: int, report: EvalReport, version: str | None) -> Outcome:
    """The outcome of an evaluation, judged under that problem version, for the entry of that number."""
    judged = judgements.judged(report, version)
    if isinstance(judged, Entry):
        return lifecycle.EvaluationRanked(entry=number, evaluation=slim(judged))
    if judged is not None:
        return lifecycle.EvaluationHeld(
            entry=number, check=judged.check, evidence=judged.evidence, run_id=judged.run_id
        )
    failed = verdict.first_failure(report)
    if failed is None:
        return replace(not_run(number, "the evaluation ended before every shape was run"), run_id=report.run_id)
    why = one_line(verdict.message(failed.outcome))
    return lifecycle.EvaluationFailed(entry=number, kind=failed.outcome.type, why=why, run_id=report.run_id)


def not_run(number: int, why: str) -> lifecycle.EvaluationFailed:
    """The outcome where the harness or the machine failed; it does not count against the quota."""
    return lifecycle.EvaluationFailed(entry=number, kind="not_run", why=one_line(why), counts=False)


def slim(entry: Entry) -> Entry:
    cases = tuple(replace(case, series=(), rank_ends_us=()) for case in entry.cases)
    return replace(entry, cases=cases, peaks=None, phases_s={}, history=(), holds=())


def settle(
    contest: Contest, event: EntryEvent, now: datetime, by: str, check: Callable[[Sequence[Record]], None] | None = None
) -> ContestEntry:
    """Writes what happened to an entry, such as the outcome of its evaluation, and returns it as it is then. Raises
    UsageError where its state forbids it (withdrawn meanwhile, say), and what `check` of the log's records raises."""

    def decide(records: tuple[Record, ...]) -> list[EntryEvent]:
        entry = fold(records).entry(event.entry)
        if check is not None:
            check(records)
        transition(entry.state, event.type, event.entry, entry.before)
        return [event]

    return fold(contest.log.add(decide, now, by)).entry(event.entry)


def withdraw(contest: Contest, number: int, now: datetime, member: str) -> ContestEntry:
    """The team takes the entry back. Raises UsageError where it is not the member's team's, or over or awarded."""

    def check(records: Sequence[Record]) -> None:
        admission = contest.at(now, records)
        admission.check_withdrawal(admission.state.entry(number), member)

    return settle(contest, lifecycle.Withdrawn(entry=number), now, member, check)


# ---- organisers ------------------------------------------------------------------------------------------------------
def freeze(contest: Contest, now: datetime, by: str, frozen: bool) -> None:
    """Freezes the public standings, or lets them follow again. Raises UsageError where they are so already."""
    contest.at(now).check_organiser(by)

    def decide(records: tuple[Record, ...]) -> list[lifecycle.Frozen | lifecycle.Unfrozen]:
        admission = contest.at(now, records)
        since = standings.frozen_since(contest.rules, admission.state, now)
        if frozen and since is not None:
            raise admission.refused(f"the standings are frozen already, since {shown_time(since)}", "freeze")
        if not frozen and since is None:
            raise admission.refused("the standings are not frozen", "freeze")
        return [lifecycle.Frozen() if frozen else lifecycle.Unfrozen()]

    contest.log.add(decide, now, by)


def review(contest: Contest, number: int, now: datetime, by: str, note: str = "") -> ContestEntry:
    """An organiser has read the source of a reproduced entry. Raises UsageError where it is not reproduced."""
    contest.at(now).check_organiser(by)
    return settle(contest, lifecycle.Reviewed(entry=number, note=one_line(note)), now, by)


def award(contest: Contest, number: int, name: str, board: Board, now: datetime, by: str) -> ContestEntry:
    """Gives the entry the award. Raises UsageError where a rule forbids it."""
    contest.at(now).check_organiser(by)
    rule = awards.rule_of(contest.rules, name)

    def check(records: Sequence[Record]) -> None:
        admission, places = contest.at(now, records), standings.full(contest.rules, records, board, now)
        awards.check_award(admission, places, admission.state.entry(number), rule)

    return settle(contest, lifecycle.Awarded(entry=number, award=rule.name), now, by, check)


def disqualify(contest: Contest, number: int, why: str, now: datetime, by: str) -> ContestEntry:
    """Takes the entry out. Raises UsageError without a reason, or where the entry is over."""
    contest.at(now).check_organiser(by)
    if not why.strip():
        raise UsageError("why? Give the reason, which the team will read: --why TEXT")
    return settle(contest, lifecycle.Disqualified(entry=number, why=one_line(why)), now, by)


def reinstate(contest: Contest, number: int, why: str, now: datetime, by: str) -> ContestEntry:
    """Takes a disqualification back. Raises UsageError without a reason, or where the entry is not disqualified."""
    contest.at(now).check_organiser(by)
    if not why.strip():
        raise UsageError("why? Give the reason, which all teams may read: --why TEXT")
    return settle(contest, lifecycle.Reinstated(entry=number, why=one_line(why)), now, by)
