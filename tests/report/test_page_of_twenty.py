"""The page of a fresh clone, and that of a board with 20 entries and failed runs, at 1280 and 390, light and dark.

SCREENSHOTS=folder pytest writes there what they look like.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from browser import CONTRAST, MISSING, TOO_WIDE, Browser
from factories import CRASHED, RAISED, failed_benchmark, failed_test
from recorded import earlier, entry_for, renamed, run, run_id, store

from harness.board import leaderboard, reports
from harness.board.entries import Board, Entry
from harness.core.checkout import ROOT, Checkout
from harness.report import page
from harness.report.page_data import Page, page_of
from harness.serve.contests import Contests
from harness.serve.live import Live
from harness.serve.store import Store

pytestmark = pytest.mark.xdist_group("page of twenty")  # one browser, and each page made once
needs_browser = pytest.mark.skipif(bool(MISSING), reason=MISSING)
MADE_AT = "2026-06-20T12:00:00+00:00"
LONG = "a-very-long-team-name-of-a-university-group"
AUTHORS = ("alice", "bob", LONG, "\u63d0\u51fa\u8005", *(f"author{number}" for number in range(5, 21)))
OPEN_ALL = "for (const one of document.querySelectorAll('details')) one.open = true"
# Cells of charts' tables, but for names, that take more than one line; and texts of which a part is not shown.
WRAPPED = """
const lines = (one) => {
  const range = document.createRange();
  range.selectNodeContents(one);
  return new Set([...range.getClientRects()].map((rect) => Math.round(rect.top))).size;
};
return [...document.querySelectorAll("figure .table :is(td, th):not(.text)")]
  .filter((one) => one.getClientRects().length && lines(one) > 1)
  .map((one) => one.textContent);
"""
CUT = """
return [...document.querySelectorAll(".tiles dd small, .entries .mark, .overview td")]
  .filter((one) => one.getClientRects().length && one.scrollHeight > one.clientHeight + 2)
  .map((one) => one.textContent);
"""
WORDS = "return [...document.querySelectorAll('.overview td:first-child a')].map((one) => one.getClientRects().length)"


@pytest.fixture(scope="module")
def twenty(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """Twenty entries, one of them the source of another, half with their reports; two of alice's runs failed."""
    root = tmp_path_factory.mktemp("twenty")
    for part in ("reference", "shapes"):
        (root / part).symlink_to(ROOT / part)
    entries: list[Entry] = []
    for index, author in enumerate(AUTHORS):
        named = renamed(f"submissions/gemm_rs/{('ring', 'tiles_v2_final_really_final')[index % 2]}_{index}.py")
        if index == 7:
            named = replace(named, sha256=entries[2].sha256)
        one = run(1 + index, 1 + 0.13 * index, author=author, submission=named)
        if index < 10:
            store(root, one)
        entries.append(entry_for(one, (earlier(1, 0.02),) if index == 0 else ()))
    for number, failed in ((30, failed_test(RAISED)), (31, failed_benchmark(CRASHED))):
        store(root, replace(failed, run_id=run_id(number), started_at=f"2026-06-{number - 20}T10:00:00+00:00"))
    recorded, unreadable = reports.load_all(root)
    return page_of(Board(entries=tuple(entries)), recorded, unreadable, root, root, MADE_AT)


@pytest.fixture(scope="module")
def clone() -> Page:
    """The page that a fresh clone makes: of leaderboard.yaml alone."""
    return page_of(leaderboard.load(ROOT / "leaderboard.yaml"), (), (), ROOT, ROOT / "build", MADE_AT)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


@needs_browser
@pytest.mark.parametrize(("width", "phone"), [(1280, False), (390, True)])
@pytest.mark.parametrize("name", ["clone", "twenty"])
def test_everything_fits_and_nothing_is_cut(
    name: str, width: int, phone: bool, browser: Browser, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    made: Page = request.getfixturevalue(name)
    (tmp_path / "page.html").write_text(page.html(made), encoding="utf-8")
    to = os.environ.get("SCREENSHOTS")
    for theme in ("dark", "light") if to else ("light",):
        browser.emulate(width, 900, theme, phone=phone)
        browser.open(tmp_path / "page.html")
        if to:
            browser.emulate(width, min(6000, browser.js("return document.documentElement.scrollHeight")), theme, phone)
            browser.screenshot(Path(to) / f"{name}-{width}-{theme}.png")
    assert all(lines == 1 for lines in browser.js(WORDS)), "a problem's name is not broken"
    assert browser.js(CUT) == []
    if name == "clone":  # the charts of one board stand for all
        browser.js("location.hash = '#problem=gemm_rs&machine=4x+NVIDIA+H200'")
        browser.until("return document.querySelectorAll('.board').length", 1)
    browser.js(OPEN_ALL)
    browser.until("return document.querySelectorAll('figure svg').length > 3", True)
    browser.js(OPEN_ALL)  # the tables of charts that were drawn since
    assert browser.js(TOO_WIDE) == []
    assert browser.js(WRAPPED) == []
    assert browser.complaints() == []


@needs_browser
def test_failed_runs_say_why_and_what_became_of_the_file(browser: Browser, twenty: Page, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page.html(twenty), encoding="utf-8")
    browser.emulate(1280, 900)
    browser.open(tmp_path / "page.html")
    browser.js(OPEN_ALL)
    text = browser.js("return document.querySelector('#failed').innerText")
    assert "gemm_rs, alice, submission.py 2026-06-11 10:00: fail: crashed in benchmark" in text
    assert "about to touch what is not mine" in text
    assert "history of this file: 06-10 10:00 fail, 06-11 10:00 fail" in text
    assert browser.js("return document.querySelectorAll('#failed details').length") == 2
    new_parts = CONTRAST.replace('"body *"', '"#failed *, .mark"')
    for theme in ("light", "dark"):
        browser.emulate(1280, 900, theme)
        read = browser.js(new_parts)
        assert len(read) > 10
        assert [text for contrast, text in read if contrast < 4.5] == []
    browser.open(tmp_path / "page.html", "#q=bob")
    assert browser.js("return document.querySelector('#failed').children.length") == 0, "the filter is for them too"


@needs_browser
def test_no_roofline_is_drawn_where_intensities_coincide(browser: Browser, twenty: Page, tmp_path: Path) -> None:
    """Points above one another say no more than the chart of shapes; their figures stay as a table."""
    (board,) = twenty.boards

    def alike(entry):  # type: ignore[no-untyped-def]
        cost = entry.cases[0].cost
        return replace(entry, cases=tuple(replace(case, cost=cost) for case in entry.cases))

    same = replace(twenty, boards=(replace(board, entries=tuple(map(alike, board.entries))),))
    drawn = []
    for made in (twenty, same):
        (tmp_path / "page.html").write_text(page.html(made), encoding="utf-8")
        browser.emulate(1280, 900)
        browser.open(tmp_path / "page.html")
        browser.until("return document.querySelectorAll('figure svg').length > 3", True)
        figure = "[...document.querySelectorAll('figure')].find((one) => one.innerText.startsWith('Roofline'))"
        drawn.append(browser.js(f"const one = {figure}; return [!!one.querySelector('svg'), one.innerText]"))
    assert [svg for svg, _ in drawn] == [True, False]
    assert "No plot: all shapes do about" in drawn[1][1]
    assert "as a table" in drawn[1][1]


def test_a_servers_page_has_no_failed_runs(tmp_path: Path) -> None:
    """What a submission printed is its owner's."""
    store(tmp_path, failed_test(RAISED))
    queue = Store(tmp_path / "queue.sqlite3")
    checkout = Checkout(tmp_path)
    none = Contests((), checkout, lambda: datetime.now(UTC))
    _, made = Live(queue, None, checkout, none, {}).page()  # type: ignore[arg-type]
    queue.close()
    assert made.failed == ()
    assert page_of(Board(), reports.load_all(tmp_path)[0], (), tmp_path, tmp_path, MADE_AT).failed != ()


def test_the_page_has_the_latest_failed_runs_newest_first(twenty: Page) -> None:
    newest, other = twenty.failed
    assert (newest.run_id, other.run_id) == (run_id(31), run_id(30))
    assert newest.verdict.startswith("fail: crashed in benchmark")
    assert "the end of rank 5's log:" in newest.lines
    assert other.lines[0] == "IndexError: index 7 is out of bounds"
    assert [one.status for one in newest.history] == ["fail", "fail"]
    assert newest.links is not None
    assert newest.links.folder.endswith(f"runs/{run_id(31)}/")
    assert all("\x1b" not in line for line in page.data(twenty)["failed"][0]["lines"])
