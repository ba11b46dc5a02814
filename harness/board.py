"""The local leaderboard: leaderboard.yaml, its entries, and who is where.

Knows the file: what is in it, how it is read strictly, and how it is written so that evaluations that end at the
same time, or die while writing, lose nothing. Knows of an evaluation only what becomes an entry; shows nothing.

An entry is (problem, suite, machine class, world size, author, file). Evaluating the same file again replaces the
entry, also when the file's content has changed, and keeps the figures it had in the entry's history. An evaluation
that did not pass is never an entry.
"""

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

import yaml

from harness.decode import DecodeError, encode
from harness.problem import read_yaml, shown
from harness.records import BadFileError, EvalReport, HarnessError, UsageError
from harness.stats import Interval
from harness.verdict import figures

SCHEMA = 1  # of leaderboard.yaml; 1: first
LOCK_NAME = ".leaderboard.lock"
LOCK_WAIT_S = 30.0  # a writer holds the lock for milliseconds
DIGITS = 6  # significant digits that are kept; timing repeats to two or three
TIE_DIGITS = 4  # scores that agree in these are one place

HEADER = """\
# The local leaderboard. Written by `make eval` (python -m harness eval), to be read by people and kept in git;
# `make board` shows it as a table. Not to be edited by hand, but whole entries may be deleted.
# score_s is GPU MODE's score in seconds, lower is better. history: the same file's earlier figures, newest first.
# Does it not load any more (a merge, an edit)? `git checkout leaderboard.yaml`, or move it away: a new one is begun.
"""

Group = tuple[str, str, str, int]  # problem, suite, machine class, world size: what is ranked together


@dataclass(frozen=True, kw_only=True)
class Versions:
    """What an entry was measured with."""

    python: str
    torch: str
    triton: str | None
    harness: str


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """What an earlier evaluation of the same file said."""

    date: str
    run_id: str
    sha256: str
    score_s: float
    geomean_speedup: float

    def __post_init__(self) -> None:
        _check_positive(self, "score_s", "geomean_speedup")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One file's latest evaluation. `geomean_speedup_ci` is the 95 % interval, null where there were too few
    samples for one; `roofline_fraction` is null where no peaks were known."""

    problem: str
    suite: str
    machine_class: str
    world_size: int
    device: str
    author: str
    file: str
    sha256: str
    score_s: float
    geomean_speedup: float
    geomean_speedup_ci: tuple[float, float] | None
    roofline_fraction: float | None
    date: str  # ISO 8601, UTC
    run_id: str
    versions: Versions
    history: tuple[Earlier, ...] = ()

    def __post_init__(self) -> None:
        _check_positive(self, "world_size", "score_s", "geomean_speedup")
        for name in ("problem", "suite", "machine_class", "author", "file"):
            if not getattr(self, name).isprintable():  # such a text would not come back from YAML as it was
                raise DecodeError(f".{name}", f"expected printable characters, found {getattr(self, name)!r}")
        if self.geomean_speedup_ci and not 0 < self.geomean_speedup_ci[0] <= self.geomean_speedup_ci[1]:
            raise DecodeError(".geomean_speedup_ci", "expected [low, high], both above 0")

    @property
    def group(self) -> Group:
        """What it is ranked within."""
        return (self.problem, self.suite, self.machine_class, self.world_size)

    @property
    def identity(self) -> tuple[Group, str, str]:
        """What makes two evaluations the same entry."""
        return (self.group, self.author, self.file)


@dataclass(frozen=True, kw_only=True)
class Board:
    """All entries, in the file's order: by group, then by score."""

    entries: tuple[Entry, ...] = ()

    def __post_init__(self) -> None:
        first: dict[object, int] = {}
        for index, entry in enumerate(self.entries):
            if (same := first.setdefault(entry.identity, index)) != index:
                raise DecodeError(
                    f".entries[{index}]", f"the same author, file and group as $.entries[{same}]; delete one of them"
                )


@dataclass(frozen=True, kw_only=True)
class Place:
    """`place` of `of` entries; `shared` with as many others."""

    place: int
    of: int
    shared: int


@dataclass(frozen=True, kw_only=True)
class _File:
    schema: Literal[1]
    entries: tuple[Entry, ...] = ()

    def __post_init__(self) -> None:
        Board(entries=self.entries)


def entry_of(report: EvalReport) -> Entry | None:
    """The entry that this evaluation is worth; None for one that did not pass or timed nothing."""
    found = figures(report)
    if found is None:
        return None
    assert report.environment is not None, "an evaluation that came to an end knows its machine"
    environment, interval = report.environment, found.geomean_speedup.interval
    return Entry(
        problem=report.problem,
        suite=report.suite,
        machine_class=_printable(environment.machine_class),
        world_size=report.world_size,
        device=report.device,
        author=_printable(report.author),
        file=_printable(report.submission.name),
        sha256=report.submission.sha256,
        score_s=found.score_s,
        geomean_speedup=found.geomean_speedup.value,
        geomean_speedup_ci=(interval.low, interval.high) if isinstance(interval, Interval) else None,
        roofline_fraction=found.roofline_fraction,
        date=report.started_at,
        run_id=report.run_id,
        versions=Versions(
            python=environment.python,
            torch=environment.torch,
            triton=environment.triton,
            harness=environment.harness,
        ),
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
    return Board(entries=file.entries) if file else Board()


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


def record(path: Path, entry: Entry, wait_s: float = LOCK_WAIT_S) -> Board:
    """Adds the entry to the file, or updates its own, and returns the new board.

    Reads, changes and writes under a lock, and replaces the file in one step: at any moment, whoever dies, the file
    is the old or the new one. Raises BadFileError for a file that does not load, HarnessError where it cannot be
    locked within `wait_s` or written.
    """
    path = path.resolve()  # replacing a link would leave what it points to as it is
    try:
        with _locked(path.parent / LOCK_NAME, wait_s):
            board = _with(load(path), entry)
            _replace(path, _text(board))
    except OSError as error:
        raise HarnessError(
            f"{shown(path)} was not written: {error.strerror}; make room or check rights there"
        ) from None
    return board


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


def _with(board: Board, entry: Entry) -> Board:
    """The board with this entry in place of the one of the same identity, whose figures become history."""
    entry = _round_off(entry)
    for old in board.entries:
        if old.identity == entry.identity:
            earlier = Earlier(
                date=old.date,
                run_id=old.run_id,
                sha256=old.sha256,
                score_s=old.score_s,
                geomean_speedup=old.geomean_speedup,
            )
            entry = replace(entry, history=(earlier, *old.history))
    others = (other for other in board.entries if other.identity != entry.identity)
    return Board(entries=tuple(sorted((*others, entry), key=_order)))


def _order(entry: Entry) -> tuple[Group, float, str, str]:
    return (entry.group, entry.score_s, entry.author, entry.file)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def _round_off(entry: Entry) -> Entry:
    ci, fraction = entry.geomean_speedup_ci, entry.roofline_fraction
    return replace(
        entry,
        score_s=_rounded(entry.score_s, DIGITS),
        geomean_speedup=_rounded(entry.geomean_speedup, DIGITS),
        geomean_speedup_ci=(_rounded(ci[0], DIGITS), _rounded(ci[1], DIGITS)) if ci else None,
        roofline_fraction=None if fraction is None else _rounded(fraction, DIGITS),
    )


def _text(board: Board) -> str:
    """The file: a key a line, and what holds only plain values (versions, an earlier evaluation) on one line."""
    value = {"schema": SCHEMA, "entries": encode(board.entries)}
    # 1e6 columns: a line that is folded changes at two places when one value changes
    text: str = yaml.safe_dump(value, sort_keys=False, default_flow_style=None, width=1e6, allow_unicode=True)
    return HEADER + text


def _refuse_newer(path: Path) -> None:
    with contextlib.suppress(OSError, UnicodeDecodeError):  # read_yaml says it better
        found = re.search(r"^schema: *(\d{1,9}) *$", path.read_text(encoding="utf-8"), re.MULTILINE)
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
        if getattr(record, name) <= 0:
            raise DecodeError(f".{name}", f"expected a number above 0, found {getattr(record, name)}")
