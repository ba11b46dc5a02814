"""The local leaderboard: leaderboard.yaml, its entries, and who is where.

Knows the file: what is in it, how it is read strictly, and how it is written so that evaluations that end at the
same time, or die while writing, lose nothing. Knows of an evaluation only what becomes an entry; shows nothing.

An entry is (problem, suite, machine class, world size, author, file). Evaluating the same file again replaces the
entry, also when the file's content has changed, and keeps the figures it had in the entry's history. It is `ranked`, or
`verified` once its source has reproduced what it claims (harness.verify).

What is right but not believable is `held`, has no place, and stands beside the entries with its evidence: an
evaluation that a check held, or an entry that `verify` or `rejudge` did not find again. A held evaluation leaves the
same file's entry as it is. It goes into the entry's past when another source is evaluated or `verify` reproduces it;
the same source that passes another time is ranked, and the held evaluation stays beside it. An evaluation that is
wrong, raised, crashed or timed out is nothing.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

import yaml

from harness.decode import DecodeError, did_you_mean, encode
from harness.files import read_text
from harness.problem import Problem, Suite, read_yaml, shown
from harness.records import BadFileError, EvalReport, HarnessError, Held, UsageError
from harness.stats import Interval
from harness.verdict import figures, first_failure, told_score_s

# Of leaderboard.yaml. 1: first. 2: `held`; of an entry `problem_version`, `verified`, `holds`; of its history `status`,
# `problem_version`, `why`. All can be left out, so a file of schema 1 is read as it is; the number rose because an
# older harness refuses unknown keys, and of a newer schema it says that the checkout has to be updated.
SCHEMA = 2
JUDGES = 1  # part of every problem version: raise it with a change of a check or verdict that lets other results pass
FILE = "leaderboard.yaml"  # at the top of the checkout
LOCK_NAME = ".leaderboard.lock"
LOCK_WAIT_S = 30.0  # a writer holds the lock for milliseconds
DIGITS = 6  # significant digits that are kept; timing repeats to two or three
TIE_DIGITS = 4  # scores that agree in these are one place

HEADER = """\
# The local leaderboard. Written by `make eval` (python -m harness eval), to be read by people and kept in git;
# `make board` shows it as a table. Not to be edited by hand, but whole entries may be deleted.
# score_s is GPU MODE's score in seconds, lower is better. history: the same file's earlier figures, newest first.
# held: right but not believable, so without a place. holds: what was held of the same file before, and why no more.
# Does it not load any more (a merge, an edit)? `git checkout leaderboard.yaml`, or move it away: a new one is begun.
"""

EVIDENCE_CHARS = 500  # of what a check saw, as the file keeps it; the run's report has all of it

Group = tuple[str, str, str, int]  # problem, suite, machine class, world size: what is ranked together
Identity = tuple[Group, str, str]


@dataclass(frozen=True, kw_only=True)
class Versions:
    """What an entry was measured with."""

    python: str
    torch: str
    triton: str | None
    harness: str


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """What an earlier judgement of the same file said, and why it is history."""

    date: str
    run_id: str
    sha256: str
    score_s: float
    geomean_speedup: float | None
    status: Literal["ranked", "verified"] = "ranked"
    problem_version: str | None = None
    why: str = "evaluated again"

    def __post_init__(self) -> None:
        _check_positive(self, "score_s", "geomean_speedup")
        _check_printable(self, "why")


@dataclass(frozen=True, kw_only=True)
class Hold:
    """A held evaluation of the same file that does not stand any more, and why."""

    date: str
    run_id: str
    sha256: str
    check: str
    evidence: str
    problem_version: str | None
    why: str

    def __post_init__(self) -> None:
        _check_printable(self, "check", "evidence", "why")


@dataclass(frozen=True, kw_only=True)
class Verified:
    """`launches` evaluations of the stored source, the runs `run_ids`, reproduced what the entry claims. Both figures
    are Olympic means with their 95 % intervals over launches (harness.verify)."""

    date: str
    launches: int
    run_ids: tuple[str, ...]
    score_s: float
    score_s_ci: tuple[float, float]
    geomean_speedup: float
    geomean_speedup_ci: tuple[float, float]

    def __post_init__(self) -> None:
        _check_positive(self, "launches", "score_s", "geomean_speedup")
        _check_interval(self, "score_s_ci", "geomean_speedup_ci")


@dataclass(frozen=True, kw_only=True)
class _OfFile:
    """Whose file it is, and what it is ranked within."""

    problem: str
    suite: str
    machine_class: str
    world_size: int
    device: str
    author: str
    file: str
    sha256: str

    def __post_init__(self) -> None:
        _check_positive(self, "world_size")
        _check_printable(self, "problem", "suite", "machine_class", "author", "file")

    @property
    def group(self) -> Group:
        """What it is ranked within."""
        return (self.problem, self.suite, self.machine_class, self.world_size)

    @property
    def identity(self) -> Identity:
        """What makes two evaluations the same entry."""
        return (self.group, self.author, self.file)


@dataclass(frozen=True, kw_only=True)
class Entry(_OfFile):
    """One file's latest evaluation. `geomean_speedup_ci` is the 95 % interval, null where there were too few
    samples for one; `roofline_fraction` is null where no peaks were known. What a problem folder's own eval.py tells
    has the suite `theirs` and no speedup (null), since it times no reference. `problem_version` is what it was judged
    under, null where an older harness recorded it. `holds`: held evaluations of this file in the past."""

    score_s: float
    geomean_speedup: float | None
    geomean_speedup_ci: tuple[float, float] | None
    roofline_fraction: float | None
    date: str  # ISO 8601, UTC
    run_id: str
    versions: Versions
    problem_version: str | None = None
    verified: Verified | None = None
    history: tuple[Earlier, ...] = ()
    holds: tuple[Hold, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_positive(self, "score_s", "geomean_speedup")
        if self.geomean_speedup_ci:
            _check_interval(self, "geomean_speedup_ci")

    @property
    def status(self) -> Literal["ranked", "verified"]:
        """One word for how far it is believed."""
        return "verified" if self.verified else "ranked"


@dataclass(frozen=True, kw_only=True)
class HeldEntry(_OfFile):
    """What is right but not believed: `check` is what stopped it and `evidence` what it saw, in the runs `run_ids`.
    `run_id` is the evaluation that claimed; its figures are null where it ended before it had them."""

    check: str
    evidence: str
    score_s: float | None
    geomean_speedup: float | None
    date: str  # ISO 8601, UTC: of the evaluation that claimed
    run_id: str
    run_ids: tuple[str, ...]
    versions: Versions
    problem_version: str | None = None
    history: tuple[Earlier, ...] = ()
    holds: tuple[Hold, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_printable(self, "check", "evidence")
        for name in ("score_s", "geomean_speedup"):
            if getattr(self, name) is not None:
                _check_positive(self, name)

    @property
    def status(self) -> Literal["held"]:
        """The word beside those of an Entry."""
        return "held"


Judged = Entry | HeldEntry


@dataclass(frozen=True, kw_only=True)
class Board:
    """All entries, in the file's order: by group, then by score; and what is held, by group, author and file."""

    entries: tuple[Entry, ...] = ()
    held: tuple[HeldEntry, ...] = ()

    def __post_init__(self) -> None:
        parts: tuple[tuple[str, tuple[Judged, ...]], ...] = (("entries", self.entries), ("held", self.held))
        for name, records in parts:
            first: dict[Identity, int] = {}
            for index, one in enumerate(records):
                if (same := first.setdefault(one.identity, index)) != index:
                    raise DecodeError(
                        f".{name}[{index}]",
                        f"the same author, file and group as $.{name}[{same}]; delete one of them",
                    )


@dataclass(frozen=True, kw_only=True)
class Place:
    """`place` of `of` entries; `shared` with as many others."""

    place: int
    of: int
    shared: int


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What only a checkout knows of an entry: whether its source can be had there, and whether it was judged under
    another version of the problem than is there (False also where the version was not recorded)."""

    reproducible: bool
    stale: bool


@dataclass(frozen=True, kw_only=True)
class _File:
    schema: Literal[1, 2]
    entries: tuple[Entry, ...] = ()
    held: tuple[HeldEntry, ...] = ()

    def __post_init__(self) -> None:
        Board(entries=self.entries, held=self.held)


def problem_version(problem: Problem, suite: Suite) -> str:
    """What a judgement depends on, as 16 hexadecimal digits: the problem's files as ranks see them, the cases that run,
    how they are ranked, and this harness's JUDGES. Raises BadFileError where a file cannot be read.

    What a fixed bound or a peak in hardware.yaml says is not in it: that is judged from reports (harness.rejudge).
    """
    cases = [
        [case.kind, case.params, case.seed, case.world_size]
        for cases in (suite.tests, suite.benchmarks)
        for case in cases
    ]
    rules = {"judges": JUDGES, "gate": problem.gate, "ranking_by": problem.ranking_by, "cases": cases}
    digest = hashlib.sha256(json.dumps(rules, sort_keys=True).encode())
    try:
        staged = sorted(problem.staged().items())
    except OSError as error:
        raise BadFileError(f"{error.filename}: cannot be read: {error.strerror}; check its rights") from None
    for name, data in staged:
        digest.update(f"\0{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:16]


def judged(report: EvalReport, version: str | None = None) -> Judged | None:
    """What the board keeps of this evaluation: an entry, or that it was held, and why; None for any other."""
    return entry_of(report, version) or held_of(report, version)


def held_of(report: EvalReport, version: str | None = None) -> HeldEntry | None:
    """The held evaluation; None for one whose first failure is none of credibility, and for one that passed."""
    failed = first_failure(report)
    if failed is None or not isinstance(failed.outcome, Held) or report.environment is None:
        return None
    environment = report.environment
    return HeldEntry(
        problem=report.problem,
        suite=report.suite,
        machine_class=_printable(environment.machine_class),
        world_size=report.world_size,
        device=report.device,
        author=_printable(report.author),
        file=_printable(report.submission.name),
        sha256=report.submission.sha256,
        check=one_line(failed.outcome.check),
        evidence=one_line(failed.outcome.evidence),
        score_s=None,
        geomean_speedup=None,
        date=report.started_at,
        run_id=report.run_id,
        run_ids=(report.run_id,),
        versions=_versions(report),
        problem_version=version,
    )


def entry_of(report: EvalReport, version: str | None = None) -> Entry | None:
    """The entry that this evaluation is worth, judged under that problem version; None for one that did not pass or
    timed nothing."""
    found = figures(report)
    score_s = found.score_s if found else told_score_s(report)
    if score_s is None:
        return None
    assert report.environment is not None, "an evaluation that came to an end knows its machine"
    environment, speedup = report.environment, found.geomean_speedup if found else None
    interval = speedup.interval if speedup else None
    return Entry(
        problem=report.problem,
        suite=report.suite,
        machine_class=_printable(environment.machine_class),
        world_size=report.world_size,
        device=report.device,
        author=_printable(report.author),
        file=_printable(report.submission.name),
        sha256=report.submission.sha256,
        score_s=score_s,
        geomean_speedup=speedup.value if speedup else None,
        geomean_speedup_ci=(interval.low, interval.high) if isinstance(interval, Interval) else None,
        roofline_fraction=found.roofline_fraction if found else None,
        date=report.started_at,
        run_id=report.run_id,
        versions=_versions(report),
        problem_version=version,
    )


def load(path: Path) -> Board:
    """The board in the file; a file that is missing or empty is an empty board.

    Raises BadFileError, which names the place in the file and what to do, for anything that does not fit. Nothing
    ever writes over such a file.
    """
    if not path.exists():
        return Board()
    try:
        _refuse_newer(path)
        file = read_yaml(cast("type[_File | None]", _File | None), path)
    except BadFileError as error:
        raise BadFileError(
            f"{error}\nThe file is left as it is. Next: `git checkout {shown(path)}` for the last good one, or move "
            "it away to begin a new one,\nor evaluate with --no-record."
        ) from None
    return Board(entries=file.entries, held=file.held) if file else Board()


def check_writable(path: Path) -> None:
    """Raises UsageError where `record` could not write, to be known before an evaluation and not after it. Whether
    the file loads is for `load` to say. Leaves the lock file behind, as `record` does."""
    folder, reason = path.resolve().parent, ""
    if not folder.is_dir():
        reason = "there is no such folder"
    elif not os.access(folder, os.W_OK | os.X_OK):
        reason = f"nothing can be written in {folder}"
    elif path.exists() and not os.access(path, os.W_OK):
        reason = "the file is read-only"
    else:
        try:
            os.close(os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o666))
        except OSError as error:
            reason = f"{folder / LOCK_NAME}: {error.strerror}"
    if reason:
        raise UsageError(f"{shown(path)} cannot be written: {reason}; run with --no-record to evaluate all the same")


def record(path: Path, one: Judged, wait_s: float = LOCK_WAIT_S) -> Board:
    """Adds what an evaluation is worth to the file, or updates its own, and returns the new board; see `change`."""
    return change(path, lambda board: _with(board, one), wait_s)


def change(path: Path, how: Callable[[Board], Board], wait_s: float = LOCK_WAIT_S) -> Board:
    """Puts `how` of the board that is in the file now in its place, and returns it.

    Reads, changes and writes under a lock, and replaces the file in one step: at any moment, whoever dies, the file
    is the old or the new one. Raises BadFileError for a file that does not load, HarnessError where it cannot be
    locked within `wait_s` or written; whatever `how` raises leaves the file as it is.
    """
    path = path.resolve()  # replacing a link would leave what it points to as it is
    try:
        with _locked(path.parent / LOCK_NAME, wait_s):
            old = load(path)
            board = how(old)
            if board != old:
                _replace(path, _text(board))
    except OSError as error:
        raise HarnessError(
            f"{shown(path)} was not written: {error.strerror}; make room or check rights there"
        ) from None
    return board


# ---- judgements that follow an evaluation ----------------------------------------------------------------------------


def find(board: Board, text: str, problem: str | None = None, machine_class: str | None = None) -> Judged:
    """The entry, held or not, of that run id or beginning of one, or of that file; of `problem` where that is given.
    Of several for one file the one on `machine_class` is meant. Raises UsageError where there is none, or more."""
    everything: list[Judged] = [*board.entries, *board.held]
    known = [one for one in everything if problem in (None, one.problem)]
    if not text:
        raise UsageError("which entry? name its run id, the beginning of one, or its file")
    for matches in (_has_run_id, _begins_run_id, _is_file):
        found = [one for one in known if matches(one, text)]
        if len(found) > 1:
            found = [one for one in found if one.machine_class == machine_class] or found
        if len(found) == 1:
            return found[0]
        if found:
            listed = "".join(f"\n  {described(one)}" for one in found)
            raise UsageError(f"'{text}' is {len(found)} entries; give the run id of one:{listed}")
    of = f" of {problem}" if problem else ""
    names = [name for one in known for name in (one.run_id, one.file, Path(one.file).name)]
    hint = did_you_mean(text, names) or ("; `make board` shows them" if known else "; none is recorded")
    raise UsageError(f"no entry{of} '{text}' on the leaderboard{hint}")


def described(one: Judged) -> str:
    """The record in a line."""
    name = f"{one.run_id}  {one.problem}, suite {one.suite}, {one.world_size} ranks, {one.machine_class}"
    return f"{name}: {one.file} by {one.author}, {one.status}"


def replaced(board: Board, old: Judged, new: Judged, why: str) -> Board:
    """The board with `new` in the place of `old`, whose judgement becomes history for that reason. What else stands
    where `new` comes to stand becomes history too.

    Raises HarnessError where `old` is not on the board any more: deleted, or judged otherwise, in the meantime.
    """
    current = _current(board, old)
    others: tuple[Judged, ...] = board.entries if isinstance(new, Entry) else board.held
    gone = [(current, why)]
    gone += [(one, "evaluated again") for one in others if one.identity == new.identity and one is not current]
    return _put(board, new, gone)


def confirmed(board: Board, old: Entry, found: Verified, why: str, version: str) -> Board:
    """The board on which that entry is verified under that problem version, and a held evaluation of its source
    released for that reason.

    Raises HarnessError where `old` is not on the board any more.
    """
    current = _current(board, old)
    assert isinstance(current, Entry)
    others = tuple(one for one in board.entries if one is not current)
    same = [one for one in board.held if (one.identity, one.sha256) == (current.identity, current.sha256)]
    return _put(
        Board(entries=others, held=board.held),
        replace(current, verified=found, problem_version=version),
        [(one, why) for one in same],
    )


def held(old: Judged, check: str, evidence: str, run_ids: tuple[str, ...], version: str | None = None) -> HeldEntry:
    """`old` as it is held by a later judgement, in those runs. What it claimed stays."""
    return HeldEntry(
        **{name: getattr(old, name) for name in _OfFile.__dataclass_fields__},
        check=one_line(check),
        evidence=one_line(evidence),
        score_s=old.score_s,
        geomean_speedup=old.geomean_speedup,
        date=old.date,
        run_id=old.run_id,
        run_ids=run_ids,
        versions=old.versions,
        problem_version=version or old.problem_version,
    )


def doubted(board: Board, entry: Entry) -> HeldEntry | None:
    """The held evaluation of the very source that this entry is ranked with, if there is one."""
    same = (one for one in board.held if (one.identity, one.sha256) == (entry.identity, entry.sha256))
    return next(same, None)


def _current(board: Board, old: Judged) -> Judged:
    """What the board has of that judgement now; a further verification does not make it another."""
    records: tuple[Judged, ...] = board.entries if isinstance(old, Entry) else board.held
    for one in records:
        if (one.identity, one.run_id, one.sha256) == (old.identity, old.run_id, old.sha256):
            return one
    others: list[Judged] = [*board.entries, *board.held]
    now = next((one for one in others if one.identity == old.identity), None)
    became = f"now stands there: {described(now)}" if now else "it was deleted"
    raise HarnessError(
        f"{old.run_id} was changed in the leaderboard meanwhile ({became}); nothing was changed, the new runs are kept"
    )


def _has_run_id(one: Judged, text: str) -> bool:
    return one.run_id == text


def _begins_run_id(one: Judged, text: str) -> bool:
    return one.run_id.startswith(text)


def _is_file(one: Judged, text: str) -> bool:
    text = text.removeprefix("./")
    return text in (one.file, one.file.removeprefix(f"submissions/{one.problem}/"), Path(one.file).name)


# ---- places ----------------------------------------------------------------------------------------------------------


def ranked(board: Board, group: Group) -> list[tuple[int, Entry]]:
    """The group's entries by score, each with its place: 1, 2, 2, 4, where scores that agree to 4 digits share one."""
    entries = sorted((entry for entry in board.entries if entry.group == group), key=_order)
    scores = [_rounded(entry.score_s, TIE_DIGITS) for entry in entries]
    return [(scores.index(score) + 1, entry) for score, entry in zip(scores, entries, strict=True)]


def place_of(board: Board, entry: Entry) -> Place:
    """Where the board's entry of this identity stands; KeyError where there is none."""
    places = {other.identity: place for place, other in ranked(board, entry.group)}
    place = places[entry.identity]
    return Place(place=place, of=len(places), shared=list(places.values()).count(place) - 1)


def groups(board: Board) -> list[Group]:
    """The groups that have entries, in the file's order."""
    return sorted({entry.group for entry in board.entries})


def held_groups(board: Board) -> list[Group]:
    """The groups in which something is held, in the file's order."""
    return sorted({one.group for one in board.held})


def _with(board: Board, one: Judged) -> Board:
    """The board with this evaluation in place of what it supersedes: a held one an earlier held one of the same
    identity; an entry the earlier entry, and what is held there unless it is the very same source."""
    again, another = "evaluated again", "another source was evaluated"
    gone: list[tuple[Judged, str]]
    if isinstance(one, HeldEntry):
        gone = [(old, again) for old in board.held if old.identity == one.identity]
    else:
        gone = [(old, again) for old in board.entries if old.identity == one.identity]
        gone += [(old, another) for old in board.held if old.identity == one.identity and old.sha256 != one.sha256]
    return _put(board, one, gone)


def _put(board: Board, one: Judged, gone: list[tuple[Judged, str]]) -> Board:
    """The board with `one`, which takes over the past of what is `gone`, each for a reason."""
    history, holds = list(one.history), list(one.holds)
    for old, why in gone:
        if isinstance(old, Entry):
            history.append(_earlier(old, why))
        else:
            holds.append(_hold(old, why))
        history += old.history
        holds += old.holds
    one = round_off(one)
    one = replace(
        one,
        history=tuple(sorted(history, key=lambda past: past.date, reverse=True)),
        holds=tuple(sorted(holds, key=lambda past: past.date, reverse=True)),
    )
    left = [old for old, _ in gone]
    entries = [entry for entry in board.entries if not any(entry is old for old in left)]
    held = [other for other in board.held if not any(other is old for old in left)]
    if isinstance(one, Entry):
        entries.append(one)
    else:
        held.append(one)
    return Board(
        entries=tuple(sorted(entries, key=_order)),
        held=tuple(sorted(held, key=lambda other: other.identity)),
    )


def _earlier(old: Entry, why: str) -> Earlier:
    return Earlier(
        date=old.date,
        run_id=old.run_id,
        sha256=old.sha256,
        score_s=old.score_s,
        geomean_speedup=old.geomean_speedup,
        status=old.status,
        problem_version=old.problem_version,
        why=one_line(why),
    )


def _hold(old: HeldEntry, why: str) -> Hold:
    return Hold(
        date=old.date,
        run_id=old.run_id,
        sha256=old.sha256,
        check=old.check,
        evidence=old.evidence,
        problem_version=old.problem_version,
        why=one_line(why),
    )


def _versions(report: EvalReport) -> Versions:
    assert report.environment is not None, "an evaluation that came to an end knows its machine"
    environment = report.environment
    return Versions(
        python=environment.python,
        torch=environment.torch,
        triton=environment.triton,
        harness=environment.harness,
    )


def _order(entry: Entry) -> tuple[Group, float, str, str]:
    return (entry.group, entry.score_s, entry.author, entry.file)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


def one_line(text: str) -> str:
    """A text from anywhere as the file keeps it: printable, on one line, of at most EVIDENCE_CHARS."""
    line = _printable(" ".join(text.split()))
    return line if len(line) <= EVIDENCE_CHARS else line[: EVIDENCE_CHARS - 3] + "..."


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def round_off(one: Judged) -> Judged:
    """The record with the digits that leaderboard.yaml keeps: what is written is what is read."""
    if isinstance(one, HeldEntry):
        return replace(one, score_s=_short(one.score_s), geomean_speedup=_short(one.geomean_speedup))
    found = one.verified
    if found:
        found = replace(
            found,
            score_s=_rounded(found.score_s, DIGITS),
            score_s_ci=_shorts(found.score_s_ci),
            geomean_speedup=_rounded(found.geomean_speedup, DIGITS),
            geomean_speedup_ci=_shorts(found.geomean_speedup_ci),
        )
    return replace(
        one,
        score_s=_rounded(one.score_s, DIGITS),
        geomean_speedup=_short(one.geomean_speedup),
        geomean_speedup_ci=_shorts(one.geomean_speedup_ci) if one.geomean_speedup_ci else None,
        roofline_fraction=_short(one.roofline_fraction),
        verified=found,
    )


def _short(value: float | None) -> float | None:
    return None if value is None else _rounded(value, DIGITS)


def _shorts(values: tuple[float, float]) -> tuple[float, float]:
    return (_rounded(values[0], DIGITS), _rounded(values[1], DIGITS))


def _text(board: Board) -> str:
    """The file: a key a line, and what holds only plain values (versions, an earlier evaluation) on one line."""
    value = {"schema": SCHEMA, "entries": encode(board.entries), "held": encode(board.held)}
    # 1e6 columns: a line that is folded changes at two places when one value changes
    text: str = yaml.safe_dump(value, sort_keys=False, default_flow_style=None, width=1e6, allow_unicode=True)
    return HEADER + text


def _refuse_newer(path: Path) -> None:
    with contextlib.suppress(OSError, UnicodeDecodeError):  # read_yaml says it better
        found = re.search(r"^schema: *(\d{1,9}) *$", read_text(path), re.MULTILINE)
        if found and int(found[1]) > SCHEMA:
            raise BadFileError(
                f"{shown(path)}: $.schema: written by a newer harness (schema {found[1]}, this one reads up to "
                f"{SCHEMA}); update the checkout"
            )


@contextlib.contextmanager
def _locked(path: Path, wait_s: float) -> Iterator[None]:
    """Holds the lock file's lock, which the kernel lets go when its holder ends, however that ends.

    A file of its own, because leaderboard.yaml itself is replaced: whoever waited for the old file's lock would then
    write beside whoever locks the new one. It is never deleted, for the same reason.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise HarnessError(
                        f"another process has held {shown(path)} for {wait_s:g} s; see who with `fuser {path}`, "
                        "end it, and evaluate again"
                    ) from None
                time.sleep(0.01)
        yield
    finally:
        os.close(fd)


def _replace(path: Path, text: str) -> None:
    """Puts `text` in the file's place in one step, with the file's mode. To be called under the lock, which is why
    the temporary file can have a fixed name: what a killed writer left there is written over."""
    temporary = path.parent / f".{path.name}.tmp"
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(fd, "wb") as file:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(fd, path.stat().st_mode & 0o7777)
            file.write(text.encode())
            file.flush()
            os.fsync(fd)  # the content is on the disk before the name points to it
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)  # and so is the name
    finally:
        os.close(folder)


def _check_positive(record: object, *names: str) -> None:
    for name in names:
        if (value := getattr(record, name)) is not None and value <= 0:
            raise DecodeError(f".{name}", f"expected a number above 0, found {getattr(record, name)}")


def _check_printable(record: object, *names: str) -> None:
    for name in names:
        if not getattr(record, name).isprintable():  # such a text would not come back from YAML as it was
            raise DecodeError(f".{name}", f"expected printable characters, found {getattr(record, name)!r}")


def _check_interval(record: object, *names: str) -> None:
    for name in names:
        low, high = getattr(record, name)
        if not 0 < low <= high:
            raise DecodeError(f".{name}", "expected [low, high], both above 0")
