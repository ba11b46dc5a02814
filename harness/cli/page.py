"""The verb `page`: the boards as one HTML file."""

import argparse
import datetime
from pathlib import Path

from harness.board import leaderboard, reports
from harness.core.checkout import ROOT
from harness.core.records import Exit, UsageError
from harness.report.page import DEFAULT_OUT, html
from harness.report.page_data import page_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb `page`."""
    parser.add_argument(
        "-o", "--out", type=Path, default=DEFAULT_OUT, metavar="FILE", help="where to (default: build/page.html)"
    )


def run(options: argparse.Namespace) -> Exit:
    """`page`: writes the file."""
    out: Path = options.out
    recorded, unreadable = reports.load_all(ROOT)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    found = leaderboard.load(ROOT / leaderboard.FILE)
    page = page_of(found, recorded, unreadable, ROOT, out.resolve().parent, now)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(html(page), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--out {out}: cannot be written: {error.strerror}; name another file") from None
    entries = [entry for one in page.boards for entry in one.entries]
    reported = sum(entry.run is not None for entry in entries)
    print(f"{out}: {len(page.boards)} boards, {len(entries)} entries, {reported} of them with their report")
    for message in page.unreadable:
        print(f"left out: {message}")
    return Exit.OK
