"""The leaderboard as people and programs read it: table, Markdown, CSV, JSON.

Knows how a board looks; who is where is board's to say. Reads at 80 columns and without colour, as render does.
"""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.board.entries import Board, Entry, HeldEntry, Judged, Standing, short_file
from harness.board.judgements import doubted
from harness.board.places import groups, held_groups, ranked
from harness.core.decode import encode
from harness.core.words import (
    clean_line,
    count_text,
    name_lines,
    percent_text,
    plain_table,
    print_all,
    score_text,
    speedup_text,
)

Format = Literal["table", "markdown", "csv", "json"]
Standings = Mapping[str, Standing]
Communication = Mapping[str, str]  # how it is shown, by problem
MARKS = {  # behind an entry's status, with what the legend says of it
    "*": "its source is not kept, so it cannot be reproduced",
    "~": "judged under another version of the problem",
    "!": "the same source was also held",
    "^": "evaluated or verified outside the sandbox",
}
NARROW, NARROW_WITHOUT = 72, (">limit %", "file, run")  # columns below which these are left out of it
WIDE = 120  # columns from which on the leaderboard shows intervals, and run ids in a column of their own
RUN_CHARS = 22  # of a run id
FILE_CHARS = 34  # of a file's name on a line


def show_board(
    board: Board,
    console: Console,
    problem: str | None = None,
    form: Format = "table",
    standings: Standings | None = None,
    communication: Communication | None = None,
) -> None:
    """Prints the leaderboard, or one problem's part of it; every format but the table is made for programs.
    `standings` say of run ids, and `communication` of problems, what only the checkout knows; the latter stands in the
    table."""
    if form == "table":
        left_out = () if console.width >= NARROW else NARROW_WITHOUT
        wide = console.width >= WIDE
        table = board_table(board, problem, wide, standings, left_out, communication)
        print_all(console, table)
    else:
        console.out(BOARD_TEXTS[form](board, problem, standings), end="", highlight=False)


def board_table(
    board: Board,
    problem: str | None = None,
    wide: bool = True,
    standings: Standings | None = None,
    left_out: Sequence[str] = (),
    communication: Communication | None = None,
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
        title = f"  suite {suite}, {count_text(world_size, 'rank')}, {machine_class}"
        interval = [">95 % interval"] if wide else []
        where = ("file", "status", "run") if wide else ("file, run", "status")
        columns = (">place", ">score", ">speedup", *interval, ">limit %", "author", *where)
        table = plain_table(*(column for column in columns if column not in left_out))
        for place, entry in ranked(board, group):
            ci = entry.ratio_ci
            roof = percent_text(entry.fraction) if entry.fraction is not None else "-"
            between = [f"{ci[0]:.4g} to {ci[1]:.4g}" if ci else "-"] if wide else []
            figures = (str(place), score_text(entry.score), speedup_text(entry.ratio), *between, roof)
            status = _standing(board, entry, standings)
            used += status
            file = name_lines(short_file(entry), FILE_CHARS if wide else RUN_CHARS)
            run = clean_line(entry.run_id)
            words = (file, status, run) if wide else (f"{file}\n{run}", status)
            cells = map(Text, (*figures, name_lines(entry.author, RUN_CHARS), *words))
            table.add_row(*(cell for column, cell in zip(columns, cells, strict=True) if column not in left_out))
        parts.append(Text.assemble((clean_line(name), "bold"), clean_line(title)))
        if how := (communication or {}).get(name):
            parts.append(Text(f"communication shown by: {how}", style="dim"))
        if table.row_count:
            parts.append(table)
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


def board_json(board: Board, problem: str | None = None, standings: Standings | None = None) -> str:
    """A list of entries as leaderboard.yaml has them, each with its place and status; then what is held, without a
    place."""
    rows: list[tuple[int | None, Judged]] = [*_rows(board, problem), *((None, one) for one in _held(board, problem))]
    values = [{"place": place, "status": one.status, **encode(one), **_known(one, standings)} for place, one in rows]
    return json.dumps(values, indent=2) + "\n"


def board_csv(board: Board, problem: str | None = None, standings: Standings | None = None) -> str:
    """An entry a line under a line of names; without the history. What is held comes last, without a place."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ["problem", "suite", "machine_class", "world_size", "place", "author", "file", "score", "unit"]
    columns += ["ratio", "low", "high", "fraction", "device", "date", "run_id", "sha256"]
    columns += ["status", "check", "evidence", "problem_version", "reproducible", "stale", "confined"]
    writer.writerow(columns)
    rows: list[tuple[int | str, Judged]] = [*_rows(board, problem), *(("", one) for one in _held(board, problem))]
    for place, one in rows:
        low, high = (one.ratio_ci if isinstance(one, Entry) else None) or ("", "")
        score = {"score": one.score.value, "unit": one.score.unit} if one.score else {"score": "", "unit": ""}
        more = {"place": place, "low": low, "high": high, **score, **_known(one, standings)}
        writer.writerow([more[name] if name in more else getattr(one, name, "") for name in columns])
    return text.getvalue()


def board_markdown(board: Board, problem: str | None = None, standings: Standings | None = None) -> str:
    """A table a group, as GitHub shows it, and what is held as a list below."""
    lines: list[str] = []
    for group in sorted({*groups(board), *held_groups(board)}):
        if problem not in (None, group[0]):
            continue
        name, suite, machine_class, world_size = group
        lines += [_cell(f"### {name}: suite {suite}, {count_text(world_size, 'rank')}, {machine_class}"), ""]
        if group in groups(board):
            lines += ["| place | score | speedup | 95 % interval | of limit | author | file | date | status |"]
            lines += ["| ---: | ---: | ---: | ---: | ---: | --- | --- | --- | --- |"]
        for place, entry in ranked(board, group):
            ci = entry.ratio_ci
            cells = [
                str(place),
                score_text(entry.score),
                speedup_text(entry.ratio),
                f"{ci[0]:.4g} to {ci[1]:.4g}" if ci else "-",
                percent_text(entry.fraction) if entry.fraction is not None else "-",
                *map(_cell, (entry.author, short_file(entry), _date(entry), entry.status)),
            ]
            lines.append(f"| {' | '.join(cells)} |")
        held = [_cell(f"- held: {held_line(one)}") for one in board.held if one.group == group]
        if held:
            lines += ["", *held] if group in groups(board) else held
        lines.append("")
    return "\n".join(lines)


BOARD_TEXTS: dict[str, Callable[[Board, str | None, Standings | None], str]] = {
    "markdown": board_markdown,
    "csv": board_csv,
    "json": board_json,
}


def _standing(board: Board, entry: Entry, standings: Standings | None) -> str:
    """The entry's status with its MARKS."""
    known = (standings or {}).get(entry.run_id)
    lost, stale = known is not None and not known.reproducible, known is not None and known.stale
    marks = ("*" if lost else "") + ("~" if stale else "") + ("!" if doubted(board, entry) else "")
    if not entry.confined or (entry.verified and not entry.verified.confined):
        marks += "^"
    return entry.status + marks


def _known(one: Judged, standings: Standings | None) -> dict[str, Any]:
    known = (standings or {}).get(one.run_id)
    return {"reproducible": known.reproducible if known else None, "stale": known.stale if known else None}


def _held(board: Board, problem: str | None) -> list[HeldEntry]:
    return [one for one in board.held if problem in (None, one.problem)]


def held_line(one: HeldEntry) -> str:
    """What is held, and why, on one line of untrusted text."""
    return f"{short_file(one)} by {one.author}, {one.date[:10]}, {one.run_id}: {one.check}: {one.evidence}"


def _rows(board: Board, problem: str | None) -> list[tuple[int, Entry]]:
    return [row for group in groups(board) if problem in (None, group[0]) for row in ranked(board, group)]


def _date(entry: Entry) -> str:
    return entry.date[:10]


def _cell(text: str) -> str:
    return clean_line(text).replace("|", "\\|")
