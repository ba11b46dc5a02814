"""The data files behind docs/measurements.md: what a measurement was, its tables, and the words around them.

Knows the format (schema 1, decoded strictly) and how a bench prints and writes it; bench/measurements.py makes the
document of all files. A bench that measures makes `Figures`, gives it tables, and writes them where `--data FILE` says.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from harness.core.decode import DecodeError, encode

SCHEMA = 1  # of a data file; 1: first
TABLE_ORDER = ("title", "text", "columns", "decimals", "rows", "after")
KEPT_DIGITS = 6  # significant digits of a number that are kept

Cell = str | int | float


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under columns, with words before and after. Floats are shown with `decimals`."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    text: str = ""
    after: str = ""
    decimals: int = 1

    def __post_init__(self) -> None:
        for index, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise DecodeError(f".rows[{index}]", f"{len(row)} cells for {len(self.columns)} columns")


@dataclass(frozen=True, kw_only=True)
class Section:
    """One measurement. `recorded`: a command wrote its figures here; `transcribed`: they were copied once from what a
    command had printed. `reports`: run ids of reports/, of which tables are made."""

    schema: int
    title: str
    date: str  # of the measurement, YYYY-MM-DD
    machine: str
    source: Literal["recorded", "transcribed"]
    command: str = ""
    text: str = ""
    tables: tuple[Table, ...] = ()
    reports: tuple[str, ...] = ()
    after: str = ""

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise DecodeError(".schema", f"expected {SCHEMA}, found {self.schema}")


def markdown(table: Table) -> str:
    """The table as Markdown, without its title and words."""

    def shown(cell: Cell) -> str:
        return f"{cell:.{table.decimals}f}" if isinstance(cell, float) else str(cell).replace("|", "\\|")

    lines = [table.columns, ("---",) * len(table.columns), *(tuple(map(shown, row)) for row in table.rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def dump(section: Section) -> str:
    """The section as a data file's text: rows in one line each, words as blocks."""
    values = {name: value for name, value in encode(section).items() if value not in ("", [], ())}
    plain = Table(columns=(), rows=())
    values["tables"] = [
        {
            name: table[name]
            for name in TABLE_ORDER
            if name in ("columns", "rows") or table[name] != getattr(plain, name)
        }
        for table in values.get("tables", [])
    ] or None
    values = {name: value for name, value in values.items() if value is not None}
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


class Figures:
    """The figures of one run of a bench: printed as they come, kept for a data file."""

    def __init__(self, title: str, machine: str) -> None:
        command = shlex.join(["python", str(Path(sys.argv[0])), *_without_data(sys.argv[1:])])
        self.section = Section(
            schema=SCHEMA,
            title=title,
            date=f"{datetime.now(UTC):%Y-%m-%d}",
            machine=machine,
            source="recorded",
            command=command,
        )
        print(f"{self.section.date}, {machine}; `{command}`\n", flush=True)

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[Cell]],
        title: str = "",
        after: str = "",
        decimals: int = 1,
    ) -> None:
        """Prints the table and keeps it."""
        kept = tuple(tuple(_kept(cell) for cell in row) for row in rows)
        made = Table(columns=tuple(columns), rows=kept, title=title, after=after, decimals=decimals)
        self.section = replace(self.section, tables=(*self.section.tables, made))
        print("\n".join(filter(None, (f"#### {title}\n" if title else "", markdown(made), after))), flush=True)

    def write(self, path: Path | None) -> None:
        """Writes the data file, where one was asked for."""
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dump(self.section), encoding="utf-8")
            print(f"{path}: {len(self.section.tables)} tables; in docs/measurements/<machine>/ `make measurements` "
                  "shows them", file=sys.stderr)  # fmt: skip


def add_data_argument(parser: argparse.ArgumentParser) -> None:
    """The option that all benches share."""
    parser.add_argument(
        "--data", type=Path, metavar="FILE", help="write the figures there as well, for docs/measurements/<machine>/"
    )


def need_gpus(parser: argparse.ArgumentParser, ranks: int, found: int, finder: str = "") -> None:
    """Ends with a usage error where fewer GPUs were found (by the `finder`) than there are to be ranks."""
    if found < ranks:
        by = f", as {finder} finds" if finder else ""
        parser.error(f"--ranks {ranks}: every rank needs a GPU of its own; here are {found}{by}")


def _kept(cell: Any) -> Cell:
    return float(f"{cell:.{KEPT_DIGITS}g}") if isinstance(cell, float) else cell if isinstance(cell, int) else str(cell)


def _without_data(arguments: Sequence[str]) -> list[str]:
    """The arguments less --data: where figures went is no part of how they were made."""
    left = [argument for argument in arguments if not argument.startswith("--data=")]
    if "--data" in left:
        at = left.index("--data")
        del left[at : at + 2]
    return left


class _Dumper(yaml.SafeDumper):
    """Lists of plain values in one line, texts of several lines as blocks."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


def _list(dumper: yaml.SafeDumper, value: list[Any]) -> yaml.Node:
    plain = not any(isinstance(item, list | dict) for item in value)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=plain)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)
