"""The local leaderboard: reads, changes and writes leaderboard.yaml.

Knows the file's format, how it is read strictly, and how it is written so that evaluations that end at the same time,
or die while writing, lose nothing. Of an evaluation it knows only what becomes an entry; it shows nothing.

An entry is identified by (problem, suite, machine class, world size, author, file). Evaluating the same file again,
changed or not, replaces the entry and moves the old figures into the entry's history. An entry is `ranked`, or
`verified` once its source has reproduced its claim (harness.evaluation.verify).

A result is `held` if it is correct but a check does not believe it, or if `verify` or `rejudge` could not reproduce it.
It has no place and stands beside the entries with its evidence. A held evaluation leaves the file's entry unchanged. If
the same source passes later, it is ranked and the held evaluation stays beside it. The held evaluation moves into the
history when another source is evaluated or `verify` reproduces it. Failed evaluations are not recorded.
"""

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import yaml

from harness.board.entries import Board, Judged, described, short_file
from harness.board.judgements import with_judged
from harness.core.checkout import shown
from harness.core.decode import did_you_mean, encode, part
from harness.core.errors import BadFileError, HarnessError, UsageError, os_error_as
from harness.core.files import locked, read_text, replace_file
from harness.core.yaml_file import read_yaml

# Of leaderboard.yaml; older files are read as they are, and written in the newest schema.
# 1: first. 2: `held`; of an entry `problem_version`, `verified`, `holds`; of its history `status`, `problem_version`,
# `why`. 3: `score` with its unit in place of score_s, `ratio` of geomean_speedup, `fraction` of roofline_fraction, with
# their intervals; of an entry `cases`, `peaks`, `phases_s`. 4: `settlements`, `launch_noise`; of an entry and of its
# history `machine`; of its history `ratio_error`. Its history has all judgements of the source that stands.
# 5: of a settlement `looks`, `squares`, `confined`; of launch_noise `sha256`, `levels`. 6: of an entry, of what is held
# and of their history `code`. 7: of an entry and of its history `launches`; of a settlement `both_judged`.
# 8: of an entry and of its history `launch_sd`.
SCHEMA = 8
LOCK_NAME = ".leaderboard.lock"
WRITABLE = "make it writable, or evaluate with `eval --no-record`"
LOCK_WAIT_S = 30.0  # a writer holds the lock for milliseconds
HEADER = """\
# The local leaderboard. Written by `make eval` (python -m harness eval), to be read by people and kept in git;
# `make board` shows it as a table. Not to be edited by hand, but whole entries may be deleted.
# ratio: how many times as good as the reference; places come from it. score: the contest's own. Both are the latest
# evaluation's; the board shows estimates from it and from all of the author's launches of the same source.
# code: what the source has in common with its copies, which may differ in names, comments and blank lines.
# fraction: of the limit. history: the same file's earlier figures, newest first (of other sources at most 5).
# settlements: entries that `settle` timed head to head. launch_noise: what launches of one source differ by.
# held: right but not believable, so without a place. holds: what was held of the same file before, and why no more.
# Does it not load any more (a merge, an edit)? `git checkout leaderboard.yaml`, or move it away: a new one is begun.
"""


@dataclass(frozen=True, kw_only=True)
class _File(Board):
    schema: Literal[8]


def load(path: Path) -> Board:
    """The board in the file; a file that is missing or empty is an empty board.

    Raises BadFileError, which names the place in the file and what to do, for anything that does not fit. Nothing
    ever writes over such a file.
    """
    if not path.exists():
        return Board()
    try:
        _refuse_newer(path)
        file = read_yaml(cast("type[_File | None]", _File | None), path, prepare=_upgraded)
    except BadFileError as error:
        raise BadFileError(
            f"{error}\nThe file is left as it is. Next: `git checkout {shown(path)}` for the last good one, or move "
            "it away to begin a new one,\nor evaluate with --no-record."
        ) from None
    return part(file, Board) if file else Board()


def check_writable(path: Path) -> None:
    """Raises UsageError where `record` could not write the file, or nobody runs/ beside it, to be known before an
    evaluation. Whether the file loads is for `load` to say. Leaves the lock file behind."""
    reason = ""
    try:
        folder = path.resolve().parent
    except (OSError, RuntimeError):  # RuntimeError before Python 3.13
        raise UsageError(f"{shown(path)} cannot be written: it is a link to itself; remove it") from None
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
        raise UsageError(f"{shown(path)} cannot be written: {reason}; {WRITABLE}")
    for kept in (path.parent / "runs", path.parent / "runs" / "sources"):  # which a run and its source are written to
        if os.path.lexists(kept) and not (kept.is_dir() and os.access(kept, os.W_OK | os.X_OK)):
            why = "it is read-only" if kept.is_dir() else "it is no folder"
            raise UsageError(f"{shown(kept)}/ cannot be written: {why}; {WRITABLE}")


def record(
    path: Path, one: Judged, wait_s: float = LOCK_WAIT_S, prepare: Callable[[Board], Board] = lambda board: board
) -> Board:
    """Adds what an evaluation is worth to the file, or updates its own, and returns the new board; see `change`. First
    `prepare` adds what an older harness did not record."""
    return change(path, lambda board: with_judged(prepare(board), one), wait_s)


def change(path: Path, how: Callable[[Board], Board], wait_s: float = LOCK_WAIT_S) -> Board:
    """Puts `how` of the board that is in the file now in its place, and returns it.

    Reads, changes and writes under a lock, and replaces the file in one step: at any moment, whoever dies, the file
    is the old or the new one. Raises BadFileError for a file that does not load, HarnessError where it cannot be
    locked within `wait_s` or written; whatever `how` raises leaves the file as it is.
    """
    path = path.resolve()  # replacing a link would leave what it points to as it is
    unwritten = os_error_as(HarnessError, f"{shown(path)} was not written", "make room or check rights there")
    with unwritten, locked(path.parent / LOCK_NAME, wait_s):
        old = load(path)
        board = how(old)
        if board != old:
            replace_file(path, _text(board).encode(), is_alone=True, mode=0o600)
    return board


# ---- judgements that follow an evaluation ----------------------------------------------------------------------------
def find(
    board: Board,
    text: str,
    problem: str | None = None,
    machine_class: str | None = None,
    preferred: Sequence[Callable[[Judged], bool]] = (),
) -> Judged:
    """The entry, held or not, of that run id or beginning of one, or of that file; of `problem` where that is given.
    Of several for one file the one on `machine_class` is meant, and of several there the one that is `preferred`, by
    each in turn. Raises UsageError where there is none, or more."""
    known = [one for one in board.judged if problem in (None, one.problem)]
    if not text:
        raise UsageError("which entry? name its run id, the beginning of one, or its file")
    file = text.removeprefix("./")
    for matches in (
        lambda one: one.run_id == text,
        lambda one: one.run_id.startswith(text),
        lambda one: file in (one.file, short_file(one), Path(one.file).name),
    ):
        found = [one for one in known if matches(one)]
        for is_meant in (lambda one: one.machine_class == machine_class, *preferred):
            if len(found) > 1:
                found = [one for one in found if is_meant(one)] or found
        if len(found) == 1:
            return found[0]
        if found:
            listed = "".join(f"\n  {described(one)}" for one in found)
            raise UsageError(f"'{text}' matches {len(found)} entries; name one by its run id:{listed}")
    of = f" of {problem}" if problem else ""
    names = [name for one in known for name in (one.run_id, one.file, Path(one.file).name)]
    hint = did_you_mean(text, names) or ("; `make board` shows them" if known else "; none is recorded")
    raise UsageError(f"no entry{of} '{text}' on the leaderboard{hint}")


def _text(board: Board) -> str:
    """The file: a key a line, and what holds only plain values (versions, an earlier evaluation) on one line."""
    value = {"schema": SCHEMA} | encode(board)
    # 1e6 columns: a line that is folded changes at two places when one value changes
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(
        value, Dumper=dumper, sort_keys=False, default_flow_style=None, width=1_000_000, allow_unicode=True
    )
    return HEADER + text


OLD_NAMES = {
    "score_s_ci": "score_ci",
    "geomean_speedup": "ratio",
    "geomean_speedup_ci": "ratio_ci",
    "roofline_fraction": "fraction",
}


def _upgraded(value: object) -> object:
    """A file of an older schema under today's names; whatever does not fit is left for `decode` to say."""
    if not isinstance(value, dict) or value.get("schema") not in range(1, SCHEMA):
        return value
    if value["schema"] >= 3:  # today's names, without those that were added since
        return value | {"schema": SCHEMA}
    lists = {name: value[name] for name in ("entries", "held") if isinstance(value.get(name), list)}
    return value | {"schema": SCHEMA} | {name: [_renamed(one, True) for one in list_] for name, list_ in lists.items()}


def _renamed(record: object, is_entry: bool) -> object:
    if not isinstance(record, dict):
        return record
    found = {OLD_NAMES.get(str(key), key): value for key, value in record.items()}
    if "score_s" in found:
        seconds = found.pop("score_s")
        is_whole = is_entry and seconds is not None
        found["score"] = {"value": seconds, "unit": "s", "better": "less"} if is_whole else seconds
    if isinstance(found.get("verified"), dict):
        found["verified"] = _renamed(found["verified"], False)
    if isinstance(found.get("history"), list):
        found["history"] = [_renamed(past, False) for past in found["history"]]
    return found


def _refuse_newer(path: Path) -> None:
    with contextlib.suppress(OSError, UnicodeDecodeError):  # read_yaml says it better
        found = re.search(r"^schema: *(\d{1,9}) *$", read_text(path), re.MULTILINE)
        if found and int(found[1]) > SCHEMA:
            raise BadFileError(
                f"{shown(path)}: $.schema: written by a newer harness (schema {found[1]}, this one reads up to "
                f"{SCHEMA}); update the checkout"
            )
