"""What `rejudge` would change, as a document and as JSON."""

from collections.abc import Sequence
from typing import Any

from harness.board.entries import Entry, HeldEntry, short_file
from harness.core.decode import encode
from harness.core.metrics import ratio_name
from harness.core.words import speedup_text
from harness.evaluation.rejudge import JSON_SCHEMA, Rejudged, Row
from harness.report.document import Document, Table, UntrustedText, Words, prose


def to_json(rows: Sequence[Row], apply: bool) -> dict[str, Any]:
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


def document_of(rows: Sequence[Row], changes: Sequence[Rejudged], apply: bool) -> Document:
    if not rows:
        return Document(blocks=(prose("Every entry was judged under today's problem: nothing is stale."),))
    ratio = ratio_name(row.old.cases[0].unit for row in rows if isinstance(row.old, Entry) and row.old.cases)
    cells: list[list[Words]] = []
    whys: list[Words] = []
    for row in rows:
        old, said, now = row.old, row.why, ("-", "left")
        if isinstance(row, Rejudged):
            now = (speedup_text(row.new.ratio), "unchanged" if row.new == old else row.new.status)
            if isinstance(row.new, HeldEntry):
                said = f"{row.new.check}: {row.new.evidence}"
        name = UntrustedText(f"{short_file(old)} by {old.author}")
        cells.append([UntrustedText(old.problem), name, speedup_text(old.ratio), old.status, *now])
        whys.append(UntrustedText(f"{old.run_id}: {said}"))
    count = f"{len(changes)} of {len(rows)} entries"
    if not changes:
        last = "Nothing changes."
    elif apply:
        last = f"Applied: {count} changed in leaderboard.yaml; the old judgements are in their history."
    else:
        last = f"{count} would change; --apply judges them again and changes leaderboard.yaml."
    columns = ("problem", "entry", f">{ratio}", "status", ">now", "status")
    return Document(blocks=(Table(columns, cells), prose(*whys, whole=True), prose(last)))
