"""The leaderboard as people and programs read it: table, Markdown, CSV, JSON.

Knows how a board looks; who is where, and by which estimates, is board.places' to say. Reads at 80 columns and without
colour, as terminal does.
"""

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.board.entries import Board, Entry, HeldEntry, Judged, Standing, short_file
from harness.board.entries import Group as BoardGroup
from harness.board.judgements import doubted
from harness.board.places import MACHINES, By, Ranked, codes_of, groups, held_groups, is_open, machines, ranking
from harness.core.decode import encode
from harness.core.metric_words import ratio_name
from harness.core.words import (
    clean_line,
    count_text,
    literal,
    name_lines,
    percent_text,
    plain_table,
    print_all,
    score_text,
    speedup_text,
)
from harness.report.memory import memory_notes

Standings = Mapping[str, Standing]
Communication = Mapping[str, str]  # how it is shown, by problem
MARKS = {  # behind an entry's status, with what the legend says of it
    "*": "its source is not kept, so it cannot be reproduced",
    "~": "judged under another version of the problem",
    "!": "the same source was also held",
    "^": "evaluated, verified or settled outside the sandbox",
    "=": "a copy of another author's earlier entry; comments, blank lines and names of locals do not count",
}
NARROW, NARROW_WITHOUT = 72, (">limit %", "file, run")  # columns below which these are left out of it
WIDE = 120  # columns from which on the leaderboard shows intervals, and run ids in a column of their own
RUN_CHARS = 22  # of a run id, and of names on a line


def show_board(
    board: Board,
    console: Console,
    problem: str | None = None,
    standings: Standings | None = None,
    communication: Communication | None = None,
    by: By = "speedup",
) -> None:
    """Prints the leaderboard, or one problem's part of it. `standings` say of run ids, and `communication` of problems,
    what only the checkout knows. `by` is what places come from."""
    left_out = () if console.width >= NARROW else NARROW_WITHOUT
    wide = console.width >= WIDE
    print_all(console, board_table(board, problem, wide, standings, left_out, communication, by))


def board_table(
    board: Board,
    problem: str | None = None,
    wide: bool = True,
    standings: Standings | None = None,
    left_out: Sequence[str] = (),
    communication: Communication | None = None,
    by: By = "speedup",
) -> RenderableType:
    """A table a group: what is ranked together stands together, and what is held below it. Run ids, which begin with
    the date and which `verify` takes, stand below the file, or beside it where it is `wide`, which also adds the
    interval; `left_out` are columns for which there is no room."""
    parts: list[RenderableType] = []
    used = ""
    for group in sorted({*groups(board), *held_groups(board)}):
        name, suite, machine_class, world_size = group
        if problem not in (None, name):
            continue
        title = f"  suite {suite}, {count_text(world_size, 'rank')}, {machine_class}{_machines(board, group)}"
        interval = [">95 % interval", ">runs"] if wide else []
        where = ("file", "status", "run") if wide else ("file, run", "status")
        rows = ranking(board, group, by)
        columns = (">place", ">score", f">{_ratio_name(rows)}", *interval, ">limit %", "author", *where)
        table = plain_table(*(column for column in columns if column not in left_out))
        for row in rows:
            entry = row.entry
            between = [_interval(row), str(row.launches)] if wide else []
            figures = (row.place.text, score_text(row.score), _speedup(row), *between, _roof(row))
            status = _standing(board, row, standings)
            used += status
            file = name_lines(short_file(entry), RUN_CHARS)
            run = clean_line(entry.run_id)
            words = (file, status, run) if wide else (f"{file}\n{run}", status)
            cells = map(Text, (*figures, name_lines(entry.author, RUN_CHARS), *words))
            table.add_row(*(cell for column, cell in zip(columns, cells, strict=True) if column not in left_out))
        parts.append(Text.assemble((clean_line(name), "bold"), clean_line(title)))
        if how := (communication or {}).get(name):
            parts.append(Text(f"communication shown by: {how}", style="dim"))
        if table.row_count:
            parts.append(table)
        parts += [Text(clean_line(line), style="dim") for line in notes(board, group, rows)]
        held = Table.grid(padding=(0, 2))
        for one in board.held:
            if one.group == group:
                held.add_row(Text("held", style="yellow"), Text(clean_line(held_line(one))))
        if held.row_count:
            parts.append(held)
        parts.append(Text())
    if not parts:
        what = f"of {problem} " if problem else ""
        return Text(f"No evaluation {what}is recorded yet: `make eval PROBLEM={problem or 'a2a'}` makes the first.")
    legend = [Text(f"{mark} {text}", style="dim") for mark, text in MARKS.items() if mark in used]
    return Group(*(parts if legend else parts[:-1]), *legend)


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
                "ratio": row.ratio.value if row.ratio else None,
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
    `high` is the interval of `estimate`, the ratio over all `launches` of its source. What is held comes last, without
    a place."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ["problem", "suite", "machine_class", "world_size", "place", "author", "file", "score", "unit"]
    columns += ["ratio", "low", "high", "fraction", "device", "date", "run_id", "sha256"]
    columns += ["status", "check", "evidence", "problem_version", "reproducible", "stale", "confined"]
    columns += ["last_place", "settled", "estimate", "launches", "machine"]
    writer.writerow(columns)
    rows: list[tuple[Judged, dict[str, Any]]] = [(row.entry, _csv_cells(row)) for row in _rows(board, problem, by)]
    rows += [(one, {}) for one in _held(board, problem)]
    for one, cells in rows:
        score = {"score": one.score.value, "unit": one.score.unit} if one.score else {"score": "", "unit": ""}
        more = {**cells, **score, **_known(one, standings)}
        writer.writerow([more[name] if name in more else getattr(one, name, "") for name in columns])
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


def board_markdown(
    board: Board, problem: str | None = None, standings: Standings | None = None, by: By = "speedup"
) -> str:
    """A table a group, as GitHub shows it, and what is held as a list below."""
    lines: list[str] = []
    for group in sorted({*groups(board), *held_groups(board)}):
        if problem not in (None, group[0]):
            continue
        name, suite, machine_class, world_size = group
        where = f"{count_text(world_size, 'rank')}, {machine_class}{_machines(board, group)}"
        lines += [_cell(f"### {name}: suite {suite}, {where}"), ""]
        rows = ranking(board, group, by)
        if group in groups(board):
            ratio = _ratio_name(rows)
            lines += [f"| place | score | {ratio} | 95 % interval | of limit | author | file | date | status |"]
            lines += ["| ---: | ---: | ---: | ---: | ---: | --- | --- | --- | --- |"]
        for row in rows:
            entry = row.entry
            cells = [row.place.text, score_text(row.score), _speedup(row), _interval(row), _roof(row)]
            cells += map(literal, (entry.author, short_file(entry), _date(entry), entry.status))
            lines.append(f"| {' | '.join(cells)} |")
        if told := notes(board, group, rows):
            lines += ["", *(_cell(line) + "  " for line in told)]
        held = [f"- held: {literal(held_line(one))}" for one in board.held if one.group == group]
        if held:
            lines += ["", *held] if group in groups(board) else held
        lines.append("")
    return "\n".join(lines)


BOARD_TEXTS: dict[str, Callable[[Board, str | None, Standings | None, By], str]] = {
    "markdown": board_markdown,
    "csv": board_csv,
    "json": board_json,
}


def notes(board: Board, group: BoardGroup, rows: Sequence[Ranked]) -> list[str]:
    """What is said below a group's entries: their memory, which orders were settled head to head, and how the others
    can be."""
    told = memory_notes(rows)
    for row in rows:
        if (first := row.copy_of) is not None:
            own = f"{short_file(row.entry)} by {row.entry.author}"
            told.append(f"{own} is a copy of {first.file} by {first.author}, {first.date[:10]}, {first.run_id}")
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
            told.append(f"settled {one.date[:10]}{where}, {one.rounds} rounds, resolves {one.resolves:.1%}: {names}")
    if not is_by_score and machines(board, group) > 1:
        apart = f"{math.expm1(MACHINES):.0%}"
        told.append(f"entries that are not all of one machine are in order only where intervals are {apart} apart")
    if not is_by_score and len({row.entry.problem_version for row in rows}) > 1:
        again = f"`python -m harness rejudge --stale --problem {group[0]}` judges all under today's"
        told.append(f"entries judged under different versions of the problem are not in order: {again}")
    if any(is_open(row, rows) for row in rows):
        told.append(f"ranges of places are not resolved: `make settle PROBLEM={group[0]}` times entries head to head")
    return told


def _machines(board: Board, group: BoardGroup) -> str:
    count = machines(board, group)
    return f", {count} machines" if count > 1 else ""


def _ratio_name(rows: Sequence[Ranked]) -> str:
    """What the ratio to the reference is called on this board."""
    return ratio_name(row.entry.cases[0].unit for row in rows if row.entry.cases)


def _speedup(row: Ranked) -> str:
    return speedup_text(row.ratio.value if row.ratio else None)


def _interval(row: Ranked) -> str:
    ci = row.ratio.ci if row.ratio else None
    return f"{ci[0]:.4g} to {ci[1]:.4g}" if ci else "-"


def _roof(row: Ranked) -> str:
    return percent_text(row.fraction) if row.fraction is not None else "-"


def _standing(board: Board, row: Ranked, standings: Standings | None) -> str:
    """The entry's status with its MARKS."""
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


def _date(entry: Entry) -> str:
    return entry.date[:10]


def _cell(text: str) -> str:
    return clean_line(text).replace("|", "\\|")
