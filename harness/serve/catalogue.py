"""The problems that a running server offers, read again on an organiser's word, without a restart."""

import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.board import judgements
from harness.contest import rules
from harness.core.checkout import Checkout
from harness.core.errors import HarnessError, UsageError
from harness.kinds import settings
from harness.problems.problem import folded
from harness.serve.boards import Boards
from harness.serve.offers import Leaderboard, Offer, ServeOptions, eval_command, free_problem, leaderboards, offered
from harness.serve.store import Row
from harness.serve.worker import Files

GONE_S = 120.0  # for an evaluation whose leaderboard is no more


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Changes by leaderboards' names; `skipped` ones have none. `errors`: why problems are not offered."""

    created: tuple[str, ...]
    updated: tuple[str, ...]
    removed: tuple[str, ...]
    skipped: tuple[str, ...]
    errors: tuple[str, ...]


class Catalogue:
    """The problems that a server offers now, created ones of `boards` among them. May be read from any thread, and
    changed by one at a time; a reader gets the problems of one moment.

    The constructor raises UsageError and BadFileError where nothing can be offered.
    """

    def __init__(self, options: ServeOptions, checkout: Checkout, boards: Boards) -> None:
        self._options, self._checkout, self._boards = options, checkout, boards
        self._in_contests = self._problems_of_contests()
        self.offers, self.leaderboards, errors = self._read()
        for why in errors:
            print(f"not served: {why}", file=sys.stderr)

    def refresh(self) -> Changes:
        """Reads the problems' files again. A leaderboard keeps its number. Where this raises UsageError or
        BadFileError, what was offered before still is. The problems of a contest must be those that it had when the
        server began: it does not know the rules of others."""
        if self._problems_of_contests() != self._in_contests:
            raise UsageError("the problems of a contest have changed; start the server again")
        before = {one.name: one for one in self.leaderboards}
        offers, found, errors = self._read()
        free = itertools.count(max(one.id for one in before.values()) + 1)
        numbered = [replace(one, id=before[one.name].id if one.name in before else next(free)) for one in found]
        self.offers, self.leaderboards = offers, tuple(numbered)
        after = {one.name: one for one in numbered}
        kept = [name for name in after if name in before]
        return Changes(
            created=tuple(name for name in after if name not in before),
            updated=tuple(name for name in kept if after[name] != before[name]),
            removed=tuple(name for name in before if name not in after),
            skipped=tuple(name for name in kept if after[name] == before[name]),
            errors=tuple(errors),
        )

    def create(self, folder: Path) -> Leaderboard:
        """Offers a problem folder, under its name and `-dev` as KernelBot does, until that is removed; a second time
        reads its files again. Raises UsageError and BadFileError if it cannot be offered."""
        name, place, before = f"{folder.name}-dev", str(folder), (self.offers, self.leaderboards)
        is_new = self._boards.created().get(name) != place
        free_problem(name, place, self._checkout, self.offers if is_new else ())
        self._boards.create(name, place)
        try:
            changes = self.refresh()
            if (created := self.find(name)) is None:
                raise UsageError(changes.errors[-1])  # it is the last that was read
            return created
        except HarnessError:
            self.offers, self.leaderboards = before
            if is_new:
                self._boards.remove(name)
            raise

    def remove(self, name: str) -> None:
        """Offers the created leaderboard no more. Raises UsageError for one that was not created."""
        place = self._boards.created().get(name)
        if place is None:
            raise UsageError(f"{name} is of the files that the server was started with; leave it out, or close it")
        self._boards.remove(name)
        try:
            self.refresh()
        except HarnessError:
            self._boards.create(name, place)
            raise

    def find(self, name: str) -> Leaderboard | None:
        """The leaderboard of either name; case and `-` for `_` do not matter."""
        wanted, known = folded(name), self.leaderboards
        return next((one for one in reversed(known) if wanted in (folded(one.problem), folded(one.name))), None)

    def command(self, row: Row, files: Files) -> Sequence[str]:
        return eval_command(self.offers)(row, files)

    def deadline_s(self, row: Row) -> float:
        return next((one.deadline_s for one in self.leaderboards if one.problem == row.problem), GONE_S)

    def unit(self, problem: str) -> str:
        return next((one.score_unit for one in self.leaderboards if one.problem == problem), "s")

    def version_of(self, problem: str) -> str | None:
        """The version of a problem that evaluations are judged under now; None for one that is not offered."""
        offer = next((one for one in self.offers if one.problem.name == problem), None)
        if offer is None:
            return None
        setting = settings.setting(replace(offer.asked, problem=offer.argument), self._checkout, offer.problem)
        return judgements.problem_version(setting.problem, setting.suite, setting.device)

    def _problems_of_contests(self) -> tuple[tuple[str, ...], ...]:
        read = (rules.read(file) for file in self._options.contests)
        return tuple(tuple(listed.name for listed in one.problems) for one in read)

    def _read(self) -> tuple[tuple[Offer, ...], tuple[Leaderboard, ...], list[str]]:
        errors: list[str] = []
        offers = offered(self._options, self._checkout, errors.append, self._boards.created())
        return offers, leaderboards(offers, self._options, self._checkout, errors.append), errors
