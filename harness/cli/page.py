"""Write the leaderboard as one HTML file, with charts. The page needs no network."""

import datetime
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from harness.board import leaderboard, reports
from harness.cli import options
from harness.contest import acts
from harness.core.checkout import Checkout
from harness.core.errors import Exit
from harness.core.words import count_text
from harness.report import contest_page
from harness.report.page import html
from harness.report.page_data import page_of


@dataclass(frozen=True, kw_only=True)
class PageOrder:
    out: Path | None = options.out("where to (default: build/page.html; - is standard output)")


def run(order: PageOrder, checkout: Checkout) -> Exit:
    out = order.out or checkout.build / "page.html"
    recorded, unreadable = reports.load_all(checkout.root)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    found = leaderboard.load(checkout.leaderboard)
    page = page_of(found, recorded, unreadable, checkout.root, out.resolve().parent, now)
    is_alone = out == options.STDOUT  # without the contests' pages beside it
    contests = [] if is_alone else [acts.opened(file) for file in sorted((checkout.root / acts.FOLDER).glob("*.yaml"))]
    links = [(f"contest-{quote(one.key)}.html", one.rules.name) for one in contests]
    words = options.write_out(out, html(page, contests=links).encode(), make_folder=True)
    for contest in contests:
        shown = contest_page.data(contest, found, datetime.datetime.now(datetime.UTC), is_full=False)
        options.write_out(out.parent / f"contest-{contest.key}.html", contest_page.html(shown).encode())
    entries = [entry for one in page.boards for entry in one.entries]
    reported = sum(entry.run is not None for entry in entries)
    charted = sum(any(case.figures.series for case in entry.cases) for entry in entries)
    print(
        f"{out}: {count_text(len(page.boards), 'board')}, {count_text(len(entries), 'entry', 'entries')}, {charted} of "
        f"them with all charts, {reported} with their report in runs/",
        file=words,
    )
    for contest in contests:
        print(f"{out.parent / f'contest-{contest.key}.html'}: {contest.rules.name}, as everybody may see it")
    for message in page.unreadable:
        print(f"left out: {message}", file=words)
    return Exit.OK
