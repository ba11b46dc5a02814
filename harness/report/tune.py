"""What `tune` would change, has changed or has restored, and what that was worth, as documents and as JSON."""

from collections.abc import Sequence

from harness.core.metrics import unit_of
from harness.core.words import count_text, percent_text
from harness.judging.worth import Worth
from harness.machine.tune import CACHES, DROP_CACHES, Reading, Value
from harness.report.document import Document, Table, UntrustedText, Words, prose


def document_of(readings: Sequence[Reading], caches_blocked: str | None, applied: bool) -> Document:
    """A row a setting, and how to go on. `caches_blocked`: why they cannot be dropped, if that is so; None where they
    are not asked about. `applied`: a snapshot of earlier values is there."""
    rows: list[list[Words]] = []
    for one in readings:
        now = ", ".join(sorted({value.now for value in one.values})) or "-"
        wanted = one.setting.wanted if one.changes else "as it is" if one.values else "not here"
        rows.append([one.setting.name, UntrustedText(now), wanted, f"{one.setting.why}\n/{one.setting.pattern}"])
    if caches_blocked is not None:
        rows.append([CACHES, "-", "dropped once", f"files are read from the disk again\n/{DROP_CACHES}"])
    blocked = {one.setting.name: one.blocked for one in readings if one.changes and one.blocked}
    blocked |= {CACHES: caches_blocked} if caches_blocked else {}
    changes = sum(len(one.changes) for one in readings)
    lines: list[Words] = [UntrustedText(f"{name} cannot be changed here: {why}") for name, why in blocked.items()]
    lines += [f"{count_text(changes, 'file')} would change. Nothing was changed. `sudo python -m harness tune --apply` "
              "changes them, --only NAME some of them; --restore takes it back."]  # fmt: skip
    lines += ["Values from before are kept since an earlier --apply; --restore writes them back."] if applied else []
    return Document(blocks=(Table(("=setting", "now", "would be", "=why, and where"), rows), prose(*lines)))


def changes_document(changes: Sequence[Value], what: str) -> Document:
    rows = (UntrustedText(f"/{value.path}: {value.now} -> {value.wanted}") for value in changes)
    return Document(blocks=(prose(*rows, f"{count_text(len(changes), 'file')} {what}"),))


def worth_document(found: Sequence[Worth]) -> Document:
    rows: list[list[Words]] = []
    for one in found:
        before, after = (unit_of(one.unit).text(value) for value in (one.before, one.after))
        spreads = [percent_text(value) for value in (one.before_spread, one.after_spread)]
        change = f"{one.after / one.before:.3f}"
        rows.append([UntrustedText(one.what), before, spreads[0], after, spreads[1], change])
    return Document(blocks=(Table(("what", ">before", ">spread", ">after", ">spread", ">after/before"), rows),))
