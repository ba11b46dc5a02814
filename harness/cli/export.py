"""The verb `export`: everything recorded, as rows for other programs."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.board import leaderboard, reports
from harness.cli import options
from harness.core.checkout import Checkout
from harness.core.errors import Exit, UsageError
from harness.core.words import clean_line
from harness.kinds.registry import find_name
from harness.report.export import COLUMNS, FORMATS, LEADERBOARDS, Row, Type, leaderboards, rows

DESCRIPTION = """Write runs and leaderboard as CSV, JSON lines or parquet: a row for each run and case, under the names
of GPU MODE's public dataset. --leaderboards writes the problems instead, as its leaderboards file has them. Parquet
needs the extra `parquet`."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where the rows go and how they look; `path` is None for standard output."""

    form: str
    path: Path | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb `export`."""
    parser.add_argument("--format", choices=list(FORMATS), help="default: as FILE's name ends, else csv")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="default: -, standard output")
    options.add_problem(parser, "only this problem's runs")
    parser.add_argument("--leaderboards", action="store_true", help="the problems, in place of runs")


def target(form: str | None, out: Path | None) -> Target:
    """What the options say. Raises UsageError for a binary format without a file, or a FILE that is no file."""
    out = None if out == options.STDOUT else out
    suffix = out.suffix.lower().removeprefix(".") if out else ""
    chosen = form or suffix or "csv"
    if chosen not in FORMATS:
        names = ", ".join(f".{name}" for name in FORMATS)
        raise UsageError(f"--out {out}: '{suffix}' is no format; end the name in {names}, or say which with --format")
    if out is None and chosen == "parquet":
        raise UsageError("--format parquet is binary: name a file with -o FILE")
    if out is not None and out.exists() and not out.is_file():
        raise UsageError(f"--out {out}: it is there, and is no file; name another")
    return Target(form=chosen, path=out)


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`export`: writes the rows; what cannot be read is said on standard error."""
    to = target(namespace.format, namespace.out)
    named = options.problem_of(namespace)
    if namespace.leaderboards:
        if named:
            raise UsageError("--leaderboards: all problems are written; leave the problem out")
        boards = leaderboards(checkout)
        _write(to, boards, LEADERBOARDS, f"{len(boards)} leaderboards")
        return Exit.OK
    recorded, unreadable = reports.load_all(checkout.root)
    found = rows(leaderboard.load(checkout.leaderboard), recorded, checkout.root)
    if named:
        problem = find_name(named, {row["problem"] for row in found}, checkout)
        found = [row for row in found if row["problem"] == problem]
    runs = len({row["run_id"] for row in found})
    _write(to, found, COLUMNS, f"{len(found)} rows of {runs} runs")
    for message in unreadable:
        print(f"left out: {clean_line(message)}", file=sys.stderr)
    return Exit.OK


def _write(to: Target, found: Sequence[Row], columns: Mapping[str, Type], what: str) -> None:
    data = FORMATS[to.form](found, columns)
    options.write_out(to.path or options.STDOUT, data)
    if to.path is not None:
        print(f"{to.path}: {what}, {len(columns)} columns")
