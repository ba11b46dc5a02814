"""What `settle` found, as a document and as JSON."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from harness.board.entries import Settlement
from harness.core.decode import encode
from harness.core.words import count_text
from harness.evaluation.settle import Contenders, Meeting
from harness.report.document import Document, Table, UntrustedText, Words, prose

JSON_SCHEMA = 1  # of --json; 1: first


def spans(found: Settlement) -> list[tuple[int, int]]:
    """The places, from the best to the last possible, of each file among those that met."""
    ratios = [file.ratio for file in found.files]
    edge = 1 + found.resolves
    return [
        (1 + sum(other > one * edge for other in ratios), len(ratios) - sum(one > other * edge for other in ratios))
        for one in ratios
    ]


def document_of(found: Settlement, longer: str = "--seconds") -> Document:
    """The places; where some are shared, `longer` names what makes launches longer."""
    rows: list[list[Words]] = []
    for file, (place, last) in zip(found.files, spans(found), strict=True):
        text = str(place) if place == last else f"{place}-{last}"
        rows.append([text, f"{file.ratio:.4f}x", UntrustedText(file.author), UntrustedText(file.file)])
    open_ = sum(a.ratio <= b.ratio * (1 + found.resolves) for a, b in pairwise(found.files))
    told = f"{found.rounds} rounds tell files apart that differ by more than {found.resolves:.2%}"
    left = f"{count_text(open_, 'pair')} of neighbours not resolved: call it again to go on, or take more {longer}"
    more = f"ratio is to the slowest of them; {told}; {left if open_ else 'the order is settled'}."
    return Document(blocks=(Table((">place", ">ratio", "author", "file"), rows), prose(more, whole=True)))


def to_json(found: Settlement, who: Contenders, launches: Sequence[Meeting]) -> dict[str, Any]:
    """The object that --json writes; `ratio` of a launch is how many times as fast its first file was as its second."""
    places = [{"place": place, "last_place": last} for place, last in spans(found)]
    files = [place | encode(file) for place, file in zip(places, found.files, strict=True)]
    told = [
        {"files": [who.entries[one.one].sha256, who.entries[one.other].sha256], "ratio": math.exp(one.log)}
        for one in launches
    ]
    return {"schema": JSON_SCHEMA, **encode(found), "files": files, "launches": told, "left_out": list(who.left_out)}
