"""What `tune` would change, has changed or has restored, and what that was worth, on a terminal and as JSON."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from harness.core.decode import encode
from harness.core.words import count_text, percent_text, plain_table, print_all, us_text
from harness.judging.worth import Worth
from harness.machine.tune import CACHES, DROP_CACHES, Reading, Value

JSON_SCHEMA = 1  # of --json; 1: first


def show(readings: Sequence[Reading], caches_blocked: str | None, applied: bool, console: Console) -> None:
    """Prints a row a setting, and how to go on. `caches_blocked`: why they cannot be dropped, if that is so; None where
    they are not asked about. `applied`: a snapshot of earlier values is there."""
    table = plain_table("=setting", "now", "would be", "=why, and where")
    for one in readings:
        now = ", ".join(sorted({value.now for value in one.values})) or "-"
        wanted = one.setting.wanted if one.changes else "as it is" if one.values else "not here"
        why = f"{one.setting.why}\n/{one.setting.pattern}"
        table.add_row(*map(Text, (one.setting.name, now, wanted, why)))
    if caches_blocked is not None:
        why = f"files are read from the disk again\n/{DROP_CACHES}"
        table.add_row(*map(Text, (CACHES, "-", "dropped once", why)))
    blocked = {one.setting.name: one.blocked for one in readings if one.changes and one.blocked}
    blocked |= {CACHES: caches_blocked} if caches_blocked else {}
    changes = sum(len(one.changes) for one in readings)
    lines = [f"{name} cannot be changed here: {why}" for name, why in blocked.items()]
    lines += [f"{count_text(changes, 'file')} would change. Nothing was changed. sudo python -m harness tune --apply "
              "changes them, --only NAME some of them; --restore takes it back."]  # fmt: skip
    lines += ["Values from before are kept since an earlier --apply; --restore writes them back."] if applied else []
    print_all(console, table, "", *map(Text, lines))


def show_changes(changes: Sequence[Value], what: str, console: Console) -> None:
    """Prints each file with its value before and after, and what to do next."""
    rows = [Text(f"/{value.path}: {value.now} -> {value.wanted}") for value in changes]
    print_all(console, *rows, Text(f"{count_text(len(changes), 'file')} {what}"))


def to_json(readings: Sequence[Reading], caches_blocked: str | None, applied: bool) -> dict[str, Any]:
    """The object that --json writes with --print."""
    return {
        "schema": JSON_SCHEMA,
        "settings": encode(tuple(readings)),
        "caches_blocked": caches_blocked,
        "applied": applied,
    }


def changes_json(changes: Sequence[Value], verb: str) -> dict[str, Any]:
    """The object that --json writes with --apply and --restore; `now` is the value before the change."""
    return {"schema": JSON_SCHEMA, verb: encode(tuple(changes))}


def show_worth(found: Sequence[Worth], console: Console) -> None:
    """Prints a row a measurement."""
    table = plain_table("what", ">before", ">spread", ">after", ">spread", ">after/before")
    for one in found:
        times = [f"{us_text(value)} {one.unit}" for value in (one.before, one.after)]
        spreads = [percent_text(value) for value in (one.before_spread, one.after_spread)]
        cells = [one.what, times[0], spreads[0], times[1], spreads[1], f"{one.after / one.before:.3f}"]
        table.add_row(*map(Text, cells))
    print_all(console, table)


def worth_json(found: Sequence[Worth]) -> dict[str, Any]:
    """The object that --json writes with --worth."""
    return {"schema": JSON_SCHEMA, "worth": encode(tuple(found))}
