"""What `prune` found or deleted, as a document and as JSON."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.board.prune import Piece, PrunePlan, StoredSubmission
from harness.core.checkout import shown
from harness.core.words import count_text, size_text
from harness.report.document import Document, Table, prose

JSON_SCHEMA = 1  # of --json; 1: first


@dataclass(frozen=True, kw_only=True)
class Found:
    """What can go, or went where `applied`: pieces, compile `caches` with their sizes, `stored` submissions."""

    plan: PrunePlan
    pieces: tuple[Piece, ...]
    caches: Mapping[str, int]
    stored: tuple[StoredSubmission, ...]
    applied: bool

    @property
    def freed(self) -> int:
        parts = (*(piece.nbytes for piece in self.pieces), *(one.nbytes for one in self.stored))
        return sum(parts) + sum(self.caches.values())


def to_json(found: Found, root: Path) -> dict[str, Any]:
    pieces = [
        {"what": piece.what, "path": shown(piece.path, root), "bytes": piece.nbytes, "why": piece.why}
        for piece in found.pieces
    ]
    return {
        "schema": JSON_SCHEMA,
        "applied": found.applied,
        "bytes": found.freed,
        "pieces": pieces,
        "caches": [{"name": name, "bytes": nbytes} for name, nbytes in found.caches.items()],
        "submissions": [{"id": one.id, "bytes": one.nbytes, "why": one.why} for one in found.stored],
        "kept": {"runs": found.plan.runs, "sources": found.plan.sources},
    }


def document_of(found: Found) -> Document:
    runs = [piece for piece in found.pieces if piece.what == "run"]
    sources = [piece for piece in found.pieces if piece.what == "source"]
    kinds = [
        ("runs", [one.nbytes for one in runs], _reasons([one.why for one in runs])),
        ("stored sources", [one.nbytes for one in sources], "no entry or run has them"),
        ("compile caches", [*found.caches.values()], "not used for long"),
        ("submissions", [one.nbytes for one in found.stored], _reasons([one.why for one in found.stored])),
    ]
    rows = [(what, str(len(sizes)), size_text(sum(sizes)), why) for what, sizes, why in kinds if sizes]
    stay = f"{count_text(found.plan.runs, 'run')} and {count_text(found.plan.sources, 'stored source')} stay"
    if not rows:
        return Document(blocks=(prose(f"Nothing can go: {stay}.", whole=True),))
    if found.applied:
        last = f"{size_text(found.freed)} freed; {stay}."
    else:
        last = f"{size_text(found.freed)} would be freed; {stay}. `python -m harness prune --apply` deletes it."
    return Document(blocks=(Table(("what", ">goes", ">size", "why"), rows), prose(last, whole=True)))


def _reasons(words: Sequence[str]) -> str:
    """`8 by age, 2 by size`."""
    return ", ".join(f"{count} by {word}" for word, count in Counter(words).most_common())
