"""The leaderboard as people and programs read it: a document, CSV, JSON.

Knows how a board looks; who is where, and by which estimates, is board.places' to say.
"""

import csv
import io
import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.board.entries import Board, Entry, HeldEntry, Judged, Standing, short_file
from harness.board.entries import Group as BoardGroup
from harness.board.judgements import doubted
from harness.board.places import MACHINES, By, Ranked, codes_of, groups, is_open, machines, ranking
from harness.core.decode import encode
from harness.core.metrics import CLOCKS, label_of, ratio_name, unit_of
from harness.core.stats import geomean
from harness.core.words import count_text, interval_text, make_text, or_dash, percent_text, speedup_text
from harness.report.document import Block, Document, Facts, Heading, Styled, Table, UntrustedText, Words, column, prose

Standings = Mapping[str, Standing]
Communication = Mapping[str, str]  # how it is shown, by problem
MARKS = {  # behind an entry's status, with what the legend says of it
    "*": "its source is not kept, so it cannot be reproduced",
    "~": "judged under another version of the problem",
    "!": "the same source was also held",
    "^": "evaluated, verified or settled outside the sandbox",
    "=": "a copy of another author's earlier entry; comments, blank lines and names of locals do not count",
}
NARROW, WIDE, WIDEST = 72, 120, 140  # columns of a terminal from which on the leaderboard shows more
NAME_CHARS = 22  # of names on a line


def document_of(
    board: Board,
    problem: str | None = None,
    standings: Standings | None = None,
    communication: Communication | None = None,
    by: By = "speedup",
) -> Document:
    """The leaderboard, or one problem's part of it: a table a group, of what is ranked together, and what is held below
    it. `standings` say of run ids, and `communication` of problems, what only the checkout knows. `by` is what places
    come from. Run ids, which begin with the date and which `verify` takes, stand below the file or beside it."""
    blocks: list[Block] = []
    used = ""
    for group in sorted({one.group for one in board.judged}):
        name, suite, machine_class, world_size = group
        if problem not in (None, name):
            continue
        where = f", {count_text(world_size, 'rank')}, "
        count = machines(board, group)
        several = f", {count} machines" if count > 1 else ""
        title = ("  suite ", UntrustedText(suite), where, UntrustedText(machine_class), several)
        blocks.append(Heading((UntrustedText(name), Styled(title, ""))))
        if how := (communication or {}).get(name):
            blocks.append(prose(f"communication shown by: {how}", style="dim", close=True))
        rows = ranking(board, group, by)
        ratio = ratio_name(row.entry.cases[0].unit for row in rows if row.entry.cases)
        columns = (
            ">place", ">score", f">{ratio}", column(">95 % interval", least=WIDE),
            column(">runs", least=WIDE), column(">limit %", least=NARROW), column("author", folds=NAME_CHARS),
            column("file, run", folds=NAME_CHARS, least=NARROW, most=WIDE - 1),
            column("file", folds=NAME_CHARS, least=WIDE), "status", column("run", least=WIDE),
            column("date", least=WIDEST),
        )  # fmt: skip
        cells: list[list[Words]] = []
        for row in rows:
            entry, status = row.entry, _standing(board, row, standings)
            used += status
            file, run = UntrustedText(short_file(entry)), UntrustedText(entry.run_id)
            speedup, interval = speedup_text(row.speedup), or_dash(interval_text, row.ratio.ci if row.ratio else None)
            limit = or_dash(percent_text, row.fraction)
            figures = [row.place.text, row.score.text, speedup, interval, str(row.launches), limit]
            author, date = UntrustedText(entry.author), UntrustedText(entry.date[:10])
            cells.append([*figures, author, (file, "\n", run), file, status, run, date])
        if cells:
            blocks.append(Table(columns, cells, close=True))
        if told := notes(board, group, rows):
            blocks.append(prose(*told, style="dim", close=True))
        if held := [one for one in board.held if one.group == group]:
            lines = ((Styled("held", "yellow"), UntrustedText(held_line(one))) for one in held)
            blocks.append(Facts(tuple(lines), close=True))
    if not blocks:
        what = f"of {problem} " if problem else ""
        first = f"{make_text('eval', problem or 'a2a')} makes the first."
        return Document(blocks=(prose(UntrustedText(f"No evaluation {what}is recorded yet: {first}")),))
    legend = [f"{mark} {text}" for mark, text in MARKS.items() if mark in used]
    return Document(blocks=(*blocks, *([prose(*legend, style="dim")] if legend else [])))


def board_json(board: Board, problem: str | None = None, standings: Standings | None = None, by: By = "speedup") -> str:
    """A list of entries as leaderboard.yaml has them, each with its range of places, its status and the estimates over
    all launches of its source; then what is held, without a place."""
    values = [
        {
            "place": row.place.place,
            "last_place": row.place.last,
            "settled": row.place.settled,
            "status": row.entry.status,
            **encode(row.entry),
            "estimate": {
                "launches": row.launches,
                "ratio": row.speedup,
                "ratio_ci": list(row.ratio.ci) if row.ratio and row.ratio.ci else None,
                "score": row.score.value,
                "fraction": row.fraction,
            },
            "copy_of": encode(row.copy_of) if row.copy_of else None,
            **_known(row.entry, standings),
        }
        for row in _rows(board, problem, by)
    ]
    values += [
        {"place": None, "status": one.status, **encode(one), **_known(one, standings)} for one in _held(board, problem)
    ]
    return json.dumps(values, indent=2) + "\n"


def board_csv(board: Board, problem: str | None = None, standings: Standings | None = None, by: By = "speedup") -> str:
    """An entry a line under a line of names, with the figures of its latest evaluation; without the history. `low` to
    `high` is the interval of `estimate`, the ratio over all `launches` of its source. What is held comes last."""
    text = io.StringIO()
    columns = ["problem", "suite", "machine_class", "world_size", "place", "author", "file", "score", "unit"]
    columns += ["ratio", "low", "high", "fraction", "device", "date", "run_id", "sha256"]
    columns += ["status", "check", "evidence", "problem_version", "reproducible", "stale", "confined"]
    columns += ["last_place", "settled", "estimate", "launches", "machine"]
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    rows: list[tuple[Judged, dict[str, Any]]] = [(row.entry, _csv_cells(row)) for row in _rows(board, problem, by)]
    rows += [(one, {}) for one in _held(board, problem)]
    for one, cells in rows:
        score = {"score": one.score.value, "unit": one.score.unit} if one.score else {"score": "", "unit": ""}
        writer.writerow({**vars(one), "status": one.status, **cells, **score, **_known(one, standings)})
    return text.getvalue()


def _csv_cells(row: Ranked) -> dict[str, Any]:
    low, high = (row.ratio.ci if row.ratio else None) or ("", "")
    return {
        "place": row.place.place,
        "last_place": row.place.last,
        "settled": row.place.settled,
        "low": low,
        "high": high,
        "estimate": row.ratio.value if row.ratio else "",
        "launches": row.launches,
    }


def notes(board: Board, group: BoardGroup, rows: Sequence[Ranked]) -> list[Words]:
    """What is said below a group's entries: what else was measured, copies, and how orders are settled."""
    told: list[Words] = [*_further(rows)]
    for row in rows:
        if (first := row.copy_of) is not None:
            of = f"{first.file} by {first.author}, {first.date[:10]}, {first.run_id}"
            told.append((_who(row.entry), " is a copy of ", UntrustedText(of)))
    used = {row.place.settled for row in rows}
    codes = codes_of(board)
    here = {row.code for row in rows}
    is_by_score = any(row.by != "speedup" for row in rows)  # settling moves no such place: it is said alone
    for one in board.settlements:
        if one.group != group:
            continue
        sources = {codes.get(file.sha256, file.sha256) for file in one.files}
        if not one.both_judged:
            told.append(
                f"settled {one.date[:10]}: void, since one file of each launch was not judged; settle them again"
            )
        elif one.date in used or (is_by_score and len(sources & here) >= min(2, len(sources))):
            names = ", ".join(f"{Path(file.file).name} by {file.author} {file.ratio:.3f}x" for file in one.files)
            where = f" on machine {one.machine}" if one.machine else ""
            where += "" if one.confined else ", outside the sandbox"
            how = f"settled {one.date[:10]}{where}, {count_text(one.rounds, 'round')}, resolves {one.resolves:.1%}: "
            told.append((how, UntrustedText(names)))
    if not is_by_score and machines(board, group) > 1:
        apart = f"{math.expm1(MACHINES):.0%}"
        told.append(f"entries that are not all of one machine are in order only where intervals are {apart} apart")
    if not is_by_score and len({row.entry.problem_version for row in rows}) > 1:
        again = f"`python -m harness rejudge --stale --problem {shlex.quote(group[0])}` judges all under today's"
        told.append(f"entries judged under different versions of the problem are not in order: {again}")
    if any(is_open(row, rows) for row in rows):
        told.append(f"ranges of places are not resolved: {make_text('settle', group[0])} times entries head to head")
    return told


def _further(rows: Sequence[Ranked]) -> Iterator[Words]:
    """What else was measured of each entry in all its cases, beside the metric that ranks and clocks: geometric
    means of its values, of the reference's, and of the least."""
    for row in rows:
        cases = row.entry.cases
        names = dict.fromkeys(one.metric for case in cases for one in case.series[1:] if one.metric not in CLOCKS)
        parts = []
        for name in names:
            found = [one for case in cases for one in case.series if one.metric == name and one.value]
            columns = [[getattr(one, column) for one in found] for column in ("value", "baseline", "least")]
            means = [geomean(values) if len(values) == len(cases) and all(values) else None for values in columns]
            if (own := means[0]) is not None:
                text = unit_of(found[0].unit).text
                words = zip(("", "reference ", "least "), (own, *means[1:]), strict=True)
                parts.append(f"{label_of(name)} {', '.join(word + text(value) for word, value in words if value)}")
        if parts:
            yield "also measured of ", _who(row.entry), f", geometric means: {'; '.join(parts)}"


def _who(entry: Entry) -> Words:
    return UntrustedText(f"{short_file(entry)} by {entry.author}")


def _standing(board: Board, row: Ranked, standings: Standings | None) -> str:
    entry = row.entry
    known = (standings or {}).get(entry.run_id)
    lost, stale = known is not None and not known.reproducible, known is not None and known.stale
    marks = ("*" if lost else "") + ("~" if stale else "") + ("!" if doubted(board, entry) else "")
    settled = [one for one in board.settlements if one.group == entry.group and one.date == row.place.settled]
    confined = [entry.confined, *(one.confined for one in settled)]
    if not all(confined) or (entry.verified and not entry.verified.confined):
        marks += "^"
    if row.copy_of is not None:
        marks += "="
    return entry.status + marks


def _known(one: Judged, standings: Standings | None) -> dict[str, Any]:
    known = (standings or {}).get(one.run_id)
    return {"reproducible": known.reproducible if known else None, "stale": known.stale if known else None}


def _held(board: Board, problem: str | None) -> list[HeldEntry]:
    return [one for one in board.held if problem in (None, one.problem)]


def held_line(one: HeldEntry) -> str:
    """What is held, and why, on one line of untrusted text."""
    return f"{short_file(one)} by {one.author}, {one.date[:10]}, {one.run_id}: {one.check}: {one.evidence}"


def _rows(board: Board, problem: str | None, by: By) -> list[Ranked]:
    return [row for group in groups(board) if problem in (None, group[0]) for row in ranking(board, group, by)]
