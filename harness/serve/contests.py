"""The contests that a server runs: who may submit, what becomes of entries, and what is not to be seen yet.

A member is known by the X-Popcorn-Cli-Id that registration gave out, of which the audit log has the hash. The log is
the truth: a submission is in it before it is queued, and its outcome is written once, whenever the queue has it, also
after the server was killed in between.
"""

import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.board import reports, runs
from harness.board.entries import Board, Settlement
from harness.contest import acts
from harness.contest.acts import Contest, Outcome
from harness.contest.lifecycle import EvaluationFailed
from harness.contest.rules import Quota
from harness.contest.standings import board_then, frozen_since
from harness.contest.state import ContestEntry, fold
from harness.contest.times import read_moment
from harness.core.checkout import Checkout
from harness.core.errors import BadFileError, HarnessError, UsageError
from harness.core.records import EvalReport, Mode
from harness.problems.problem import folded
from harness.problems.submission import digest
from harness.report import contest_page
from harness.serve.store import Placement, Row, Store
from harness.serve.users import UnknownUserError

BY = "serve"  # in the log, of what the server itself writes
ALWAYS = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Veil:
    """What the public must not see of contests that are private or frozen. `then` are their entries as the public knows
    them, `changed` the runs of those that have changed since, `later` the runs since. `sources`: since when each team's
    sources, by team and sha256, are veiled. By these also what no log has, such as launches that decided nothing."""

    then: tuple[ContestEntry, ...]
    changed: frozenset[str]
    later: frozenset[str]
    sources: Mapping[tuple[str, str], datetime]

    def hides(self, run_id: str, author: str, sha256: str, date: str) -> bool:
        """Whether the run of that source, which began at that ISO 8601 time, is hidden."""
        since = self.sources.get((author, sha256))
        return run_id in self.later or (since is not None and datetime.fromisoformat(date) > since)

    def reports(self, recorded: Sequence[EvalReport]) -> list[EvalReport]:
        """Those of the reports that are not hidden."""
        return [
            one for one in recorded if not self.hides(one.run_id, one.author, one.submission.sha256, one.started_at)
        ]

    def board(self, board: Board) -> Board:
        """The board as the public knows it."""
        later = {
            past.run_id
            for one in board.judged
            for past in (one, *one.history)
            if self.hides(past.run_id, one.author, past.sha256, past.date)
        }
        found = board_then(board, self.then, self.changed, self.later | later)
        return replace(found, settlements=tuple(filter(self._is_seen, board.settlements)))

    def _is_seen(self, one: Settlement) -> bool:
        """Whether the settlement is of no source that is veiled, or of before."""
        settled = {file.sha256 for file in one.files}
        since = [moment for (_, sha256), moment in self.sources.items() if sha256 in settled]
        return all(datetime.fromisoformat(one.date) <= moment for moment in since)


class Contests:
    """The contests of a server; none where it has no contest. Its methods may be called from any thread.

    `version_of` gives the version of a problem, by its name in the store, that evaluations are judged under now."""

    def __init__(
        self,
        contests: Iterable[Contest],
        checkout: Checkout,
        now: Callable[[], datetime],
        version_of: Callable[[str], str | None] = lambda problem: None,
    ) -> None:
        self.all = tuple(contests)
        self.now = now
        self._checkout, self._version_of = checkout, version_of
        self._lock = threading.RLock()
        self._by_key = {one.key: one for one in self.all}
        self._by_problem = {folded(listed.name): one for one in self.all for listed in one.rules.problems}

    def get(self, key: str) -> Contest | None:
        return self._by_key.get(key)

    def enter(
        self, secret: str, leaderboard: str, mode: Mode, file_name: str, code: str, add: Callable[[Placement], Row]
    ) -> Row:
        """Queues a submission by `add`; in a contest as the member's whose id it is, and in leaderboard mode as an
        entry. Raises UsageError where a rule forbids it, UnknownUserError for an id with a member's name that is not
        the member's, and what `add` raises."""
        with self._lock:
            self._check_name(secret)
            contest = self._by_problem.get(folded(leaderboard))
            if contest is None:
                return add(Placement())
            admission = contest.at(now := self.now())
            known = admission.state.member_of(acts.id_hash(secret))
            name = next(one.name for one in contest.rules.problems if folded(one.name) == folded(leaderboard))
            if known is None:
                what = "this X-Popcorn-Cli-Id belongs to no member; `contest register` gives one out"
                raise admission.refused(what, "teams")
            team, member = known
            if mode != "leaderboard":  # a try: within the window, and not counted
                unlimited = replace(contest.rules, quota=Quota())
                replace(admission, rules=unlimited).check_submission(member, name)
                return add(Placement(contest=contest.key, team=team.name))
            sha256 = digest(code, ())
            new = acts.NewEntry(member=member, problem=name, file=file_name, sha256=sha256, via="serve")
            entry = acts.submit(contest, new, now)
            try:
                return add(Placement(contest=contest.key, team=team.name, entry=entry.number))
            except HarnessError as error:  # a full queue
                acts.settle(contest, acts.not_run(entry.number, str(error)), now, BY)
                raise

    def _check_name(self, secret: str) -> None:
        """A member's name is the member's alone, on leaderboards without a contest too."""
        name, hashed = secret.partition(":")[0].lower(), acts.id_hash(secret)
        for contest in self.all:
            for team in contest.state().teams.values():
                for member, known in team.members.items():
                    if member.lower() == name and known != hashed:
                        raise UnknownUserError(f"the name '{member}' is a member's of {contest.key}, with another id")

    def deleted(self, row: Row) -> None:
        """The member deleted the submission: an entry without a result yet is withdrawn."""
        contest = self._by_key.get(row.contest or "")
        if contest is None or row.entry is None:
            return
        with self._lock:
            entry = contest.state().entry(row.entry)
            if entry.state == "submitted":
                acts.withdraw(contest, entry.number, self.now(), entry.member)

    def settle(self, store: Store) -> None:
        """Writes the outcome of every entry whose evaluation is done and that has none in the log yet. An error is told
        on standard error: it must not keep the queue from running, and the next call tries again."""
        for contest in self.all:
            try:
                with self._lock:
                    self._settle(contest, store)
            except HarnessError as error:
                print(f"{contest.key}: {error}", file=sys.stderr)

    def _settle(self, contest: Contest, store: Store) -> None:
        rows = store.of_contest(contest.key)
        for entry in contest.state().entries.values():
            if entry.state != "submitted" or entry.via != "serve":
                continue
            row = rows.get(entry.number)
            if row is None:  # the server was killed before it was queued
                acts.settle(contest, acts.not_run(entry.number, "it was not queued; submit it again"), self.now(), BY)
            elif row.done:
                is_own = row.run_id is None and store.result(row.id) is not None
                acts.settle(contest, self._outcome(entry, row, is_own), self.now(), BY)

    def _outcome(self, entry: ContestEntry, row: Row, is_own: bool) -> Outcome:
        """The entry's outcome by the queue's row. `is_own`: it could not be evaluated by its own fault."""
        if row.run_id is None:
            if row.state == "timed_out":
                return EvaluationFailed(entry=entry.number, kind="timed_out", why=row.error or "")
            lost = acts.not_run(entry.number, row.error or row.state)
            return replace(lost, kind="rejected", counts=True) if is_own else lost
        path = self._checkout.runs / row.run_id / reports.FILE
        try:
            report = runs.with_source(reports.load(path, self._checkout.root), self._checkout.root)
        except BadFileError as error:
            return acts.not_run(entry.number, str(error))
        return acts.outcome(entry.number, report, self._version_of(row.problem))

    # ---- what is seen, and what is not to be seen yet

    def data(self, contest: Contest, board: Board, is_full: bool) -> dict[str, Any]:
        with self._lock:
            return contest_page.data(contest, board, self.now(), is_full)

    def veiled_since(self) -> dict[str, datetime]:
        """Since when the public must not see what happens in contests, by their keys: ever where all is private, else
        since a freeze. Those of which it sees all are left out."""
        found = {}
        with self._lock:
            now = self.now()
            for one in self.all:
                since = ALWAYS if one.rules.is_hidden(now) else frozen_since(one.rules, one.state(), now)
                if since is not None:
                    found[one.key] = since
        return found

    def veil(self, store: Store) -> "Veil":
        """What of the leaderboard and of runs/ the public must not see now: what is of private contests, and what came
        since a freeze. The log has the runs of entries, the queue also those of tries."""
        changed, later = set[str](), set[str]()
        sources: dict[tuple[str, str], datetime] = {}
        then: list[ContestEntry] = []
        with self._lock:
            for key, since in self.veiled_since().items():
                records = self._by_key[key].log.records()
                before = fold(records, since).entries
                then += before.values()
                for number, entry in fold(records).entries.items():
                    sources[entry.team, entry.sha256] = since
                    if entry.changed_at > since:
                        changed |= entry.run_ids
                        later |= entry.run_ids - (before[number].run_ids if number in before else frozenset())
                ended = store.runs_of_contest(key)
                later.update(run_id for run_id, at in ended.items() if read_moment(at) > since)
        return Veil(then=tuple(then), changed=frozenset(changed), later=frozenset(later), sources=sources)

    def seen(self, rows: Sequence[Row]) -> list[Row]:
        """Those of the submissions of which the public may see what became of them."""
        veiled, now = self.veiled_since(), self.now()

        def is_seen(row: Row) -> bool:
            since = veiled.get(row.contest or "")
            return since is None or (read_moment(row.ended_at) if row.ended_at else now) <= since

        return list(filter(is_seen, rows))


def opened(files: Iterable[Path]) -> tuple[Contest, ...]:
    """The contests of those files. UsageError if two share a name or a problem, BadFileError for bad files."""
    found = tuple(acts.opened(file) for file in files)
    keys: dict[str, Contest] = {}
    for contest in found:
        for what, name in (("name", contest.key), *(("problem", folded(one.name)) for one in contest.rules.problems)):
            other = keys.setdefault(f"{what} {name}", contest)
            if other is not contest:
                raise UsageError(f"{other.file} and {contest.file} both have the {what} {name}; serve one of them")
    return found
