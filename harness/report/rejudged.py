"""What `rejudge` would change, on a terminal and as JSON."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from harness.board.entries import Entry, HeldEntry, Judged, short_file
from harness.core.decode import encode
from harness.core.metric_words import ratio_name
from harness.core.words import clean_line, plain_table, speedup_text
from harness.evaluation.rejudge import JSON_SCHEMA, Left, Rejudged, Row


def to_json(rows: Sequence[Row], apply: bool) -> dict[str, Any]:
    """The object that --json writes: old and new judgement of each entry, or why it was left."""
    return {
        "schema": JSON_SCHEMA,
        "applied": apply,
        "entries": [
            {
                "old": {"status": row.old.status} | encode(row.old),
                "new": {"status": row.new.status} | encode(row.new) if isinstance(row, Rejudged) else None,
                "why": row.why,
            }
            for row in rows
        ],
    }


def show(rows: Sequence[Row], changes: Sequence[Rejudged], apply: bool, console: Console) -> None:
    """Prints a row an entry with its speedup and status then and now, why, and what became of it."""
    if not rows:
        console.print("Every entry was judged under today's problem: nothing is stale.")
        return
    ratio = ratio_name(row.old.cases[0].unit for row in rows if isinstance(row.old, Entry) and row.old.cases)
    table = plain_table("problem", "entry", f">{ratio}", "status", ">now", "status")
    for row in rows:
        old = row.old
        name = f"{short_file(old)} by {old.author}"
        now = ("-", "left") if isinstance(row, Left) else (_speedup(row.new), _status(row.new, row.old))
        cells = (old.problem, name, _speedup(old), old.status, *now)
        table.add_row(*(Text(clean_line(cell)) for cell in cells))
    console.print(table)
    console.print()
    for row in rows:
        said = row.why
        if isinstance(row, Rejudged) and isinstance(row.new, HeldEntry):
            said = f"{row.new.check}: {row.new.evidence}"
        console.print(Text(clean_line(f"{row.old.run_id}: {said}")), soft_wrap=True)
    count = f"{len(changes)} of {len(rows)} entries"
    if not changes:
        console.print("\nNothing changes.")
    elif apply:
        console.print(f"\nApplied: {count} changed in leaderboard.yaml; the old judgements are in their history.")
    else:
        console.print(f"\n{count} would change; --apply judges them again and changes leaderboard.yaml.")


def _speedup(one: Judged) -> str:
    return speedup_text(one.ratio)


def _status(new: Judged, old: Judged) -> str:
    return "unchanged" if new == old else new.status
