"""A submission's tuning table as text: rows in, rows out, nothing else of the file changed."""

import json
from collections.abc import Sequence

from harness.core.errors import BadFileError

BEGIN, END = "TABLE = [\n", "\n]\n"
UNMEASURED = "UNMEASURED"  # the constant for rows that were only compiled, where the file has it


def with_rows(source: str, lines: Sequence[str], name: str) -> str:
    """The file's text with these lines as its table. Raises BadFileError where the file has no table to replace."""
    head, begin, rest = source.partition(BEGIN)
    if not begin or END not in rest:
        raise BadFileError(f"{name}: no table is there to write into; it begins with `TABLE = [` on a line of its own")
    return head + begin + "".join(lines) + rest[rest.index(END) + 1 :]


def line_of(row: Sequence[object], unmeasured: str | None) -> str:
    """A row's line. `unmeasured` is what UNMEASURED stands for."""
    fields = [json.dumps(item, ensure_ascii=False) if isinstance(item, str) else repr(item) for item in row]
    if unmeasured is not None and row[-1] == unmeasured:
        fields[-1] = UNMEASURED
    return f"    Row({', '.join(fields)}),\n"
