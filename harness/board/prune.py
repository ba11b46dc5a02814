"""What of runs/ can go: runs and stored sources that nothing needs, by age, number and size.

Whatever leaderboard.yaml names stays, and so does what the caller needs (a contest's best submissions). Of the other
runs the newest stay, within Limits. A stored source stays while the board names it or a run that stays shares its
files. What is younger than YOUNG_S stays in any case: an evaluation may be writing it.

A plan is made first, and can be shown; `apply` looks once more before it deletes.
"""

import os
import re
import time
from collections.abc import Iterator, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from harness.board.entries import Board
from harness.board.runs import FOLDER, MAIN, SOURCES
from harness.core.files import remove, taken_bytes

YOUNG_S = 86400.0
NO_RUNS = (SOURCES, "serve")  # folders in runs/ that are no run's
STARTED = re.compile(r"(\d{8}T\d{6})-[0-9a-f]+")  # a run's id begins with when it was started, UTC


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits on runs that nothing needs: their age, and the number and size of all runs together."""

    age_s: float = 90 * 86400.0
    runs: int = 1000
    nbytes: int = 20 << 30

    def beyond(self, age_s: float, count: int, nbytes: int) -> str:
        """The limit that a run exceeds, or "": `count` newer ones stay, and with them it takes `nbytes`."""
        if age_s > self.age_s:
            return "age"
        if count >= self.runs:
            return "number"
        return "size" if nbytes > self.nbytes else ""


@dataclass(frozen=True, kw_only=True)
class Needed:
    """Runs by their ids, and sources by their sha256, that stay."""

    run_ids: frozenset[str]
    sha256s: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Something that can be deleted: its path, the bytes it frees, and the limit that it is beyond."""

    what: Literal["run", "source"]
    path: Path
    nbytes: int
    why: str


@dataclass(frozen=True, kw_only=True)
class StoredSubmission:
    """A submission to the service whose source and result can go."""

    id: int
    nbytes: int
    why: str


@dataclass(frozen=True, kw_only=True)
class PrunePlan:
    pieces: tuple[Piece, ...]
    runs: int
    sources: int


def needed(board: Board, run_ids: Set[str] = frozenset(), sha256s: Set[str] = frozenset()) -> Needed:
    """The runs and sources that the board names, in histories and settlements too, and those that the others name."""
    runs, sources = set(run_ids), set(sha256s)
    for one in board.judged:
        for past in (one, *one.history, *one.holds):
            runs.add(past.run_id)
            sources.add(past.sha256)
        runs.update(getattr(one, "run_ids", ()))
        verified = getattr(one, "verified", None)
        runs.update(verified.run_ids if verified else ())
    for settlement in board.settlements:
        sources.update(file.sha256 for file in settlement.files)
    return Needed(run_ids=frozenset(runs), sha256s=frozenset(sources))


def plan(root: Path, keep: Needed, limits: Limits) -> PrunePlan:
    now = time.time()
    pieces: list[Piece] = []
    names: set[int] = set()  # of files that runs which stay share with their sources
    seen: set[int] = set()  # a file that several runs share takes its room once
    kept = kept_bytes = 0
    found = (run for run in _folders(root / FOLDER) if run.name not in NO_RUNS)
    by_age = sorted(found, key=lambda run: (run.name not in keep.run_ids, -_started(run)))
    for run in by_age:
        nbytes = taken_bytes(run, seen)
        can_go = run.name not in keep.run_ids and now - _changed(run) > YOUNG_S
        if can_go and (why := limits.beyond(now - _started(run), kept, kept_bytes + nbytes)):
            pieces.append(Piece(what="run", path=run, nbytes=nbytes, why=why))
            continue
        kept, kept_bytes = kept + 1, kept_bytes + nbytes
        names.update(_inode(run / MAIN))
    sources = 0
    for source in _folders(root / FOLDER / SOURCES):
        nbytes = taken_bytes(source, seen)
        is_used = source.name in keep.sha256s or not names.isdisjoint(_inode(source / MAIN))
        if is_used or now - _changed(source) <= YOUNG_S:
            sources += 1
        else:
            pieces.append(Piece(what="source", path=source, nbytes=nbytes, why="unused"))
    return PrunePlan(pieces=tuple(pieces), runs=kept, sources=sources)


def apply(found: PrunePlan, keep: Needed) -> tuple[Piece, ...]:
    """Deletes the plan's pieces that are still not needed, by `keep` as of now; returns those."""
    now = time.time()
    gone = []
    for piece in found.pieces:
        names = keep.run_ids if piece.what == "run" else keep.sha256s
        if piece.path.name in names or now - _changed(piece.path) <= YOUNG_S:
            continue
        remove(piece.path)
        if not piece.path.exists():
            gone.append(piece)
    return tuple(gone)


def _folders(folder: Path) -> Iterator[Path]:
    """The folders in it. Links are left alone: they may lead anywhere."""
    if folder.is_dir():
        with os.scandir(folder) as entries:
            yield from (Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))


def _started(run: Path) -> float:
    """When the run was started, by its name; a copied checkout has dates of today."""
    if (name := STARTED.fullmatch(run.name)) is not None:
        try:
            return datetime.strptime(name[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC).timestamp()
        except ValueError:
            pass
    return _changed(run)


def _changed(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _inode(path: Path) -> set[int]:
    try:
        return {path.lstat().st_ino}
    except OSError:
        return set()
