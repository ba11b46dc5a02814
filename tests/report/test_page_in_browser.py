"""The page as a reader meets it, in headless Chromium: on a desk and a phone, light and dark, by mouse and keyboard.

SCREENSHOTS=folder pytest writes there what it looks like.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import CONTRAST, MISSING, TOO_WIDE, Browser
from factories import entry, report
from recorded import SCRIPT, checkout, entry_for, of_points, renamed, run, run_id, store

from harness.board import reports
from harness.board.entries import Board, EntryCase
from harness.core.checkout import ROOT
from harness.core.curve import Curve, Point
from harness.core.records import Score
from harness.report import page
from harness.report.page_data import page_of

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
    pytest.mark.xdist_group("page"),  # one browser, and each page made once
]

GEMM = "gemm-rs-cpu-2-cores-of-example-cpu-2-00ghz-8"
TIMES = "\u00d7"
AUTHORS = f"return [...document.querySelectorAll('#{GEMM} .who a')].map((one) => one.textContent)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("checkout")
    found = checkout(root)
    recorded, unreadable = reports.load_all(root)
    for name, board in (("page", found), ("empty", Board())):
        made = page_of(board, recorded, unreadable, root, root, "2026-05-20T12:00:00+00:00")
        (root / f"{name}.html").write_text(page.html(made), encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture
def browser(started: Browser) -> Iterator[Browser]:
    """The browser; whatever a test does there, no script fails and nothing is fetched."""
    started.emulate(1280, 900)
    started.complaints(), started.requests()
    yield started
    assert started.complaints() == []
    assert [url for url in started.requests() if not url.startswith(("file://", "about:"))] == []
    started.js("localStorage.clear()")


@pytest.fixture
def opened(browser: Browser, folder: Path) -> Browser:
    """The browser with the page open."""
    browser.open(folder / "page.html")
    return browser


def charts(browser: Browser, within: str) -> list[str]:
    """The titles of the figures that are drawn."""
    found = browser.js(
        "return [...document.querySelectorAll(arguments[0] + ' figure')].filter((one) => one.querySelector('svg'))"
        ".map((one) => one.querySelector('h3').textContent)",
        within,
    )
    assert isinstance(found, list)
    return found


def shown(browser: Browser, name: str) -> None:
    """Writes what the whole page looks like, where it is asked for."""
    if to := os.environ.get("SCREENSHOTS"):
        browser.emulate(1280, browser.js("return document.documentElement.scrollHeight"))
        browser.screenshot(Path(to) / f"{name}.png")


# ---- at first sight --------------------------------------------------------------------------------------------------


def test_at_first_sight_is_who_leads_by_how_much_and_how_far_from_the_limit(opened: Browser) -> None:
    text = opened.js(f"return document.querySelector('#{GEMM} .tiles').innerText")
    assert re.sub(r"\s+", " ", text).startswith(f"leads alice 7.593 ms, submission.py ahead of the next by 1.25{TIMES}")
    assert f"as fast as the reference 1.56{TIMES}" in re.sub(r"\s+", " ", text)
    of_limit = rf"of the limit\s+[\d.]+ %\s+by the device clock; the score is [\d.]+{TIMES} the limit of [\d.]+ ms"
    assert re.search(of_limit, text)
    assert opened.js(f"return document.querySelector('#{GEMM} .tiles').getBoundingClientRect().bottom") < 900


def test_the_page_opens_with_a_row_for_every_board(opened: Browser) -> None:
    """Who leads, by how much, how many times the reference, and how far from the limit by which clock."""
    rows = opened.js(
        "return [...document.querySelectorAll('.overview tbody tr')].map((one) => "
        "[...one.cells].map((cell) => cell.textContent))"
    )
    assert [row[0] for row in rows] == ["a2a", "gemm_rs", "retired"]
    assert rows[1][2] == "alice submission.py, 7.593 ms"
    assert rows[1][3] == f"1.25{TIMES}"
    assert rows[1][4].startswith(f"1.56{TIMES} 1.45 to 1.68")
    assert re.fullmatch(r"[\d.]+ % device clock", rows[1][5])
    assert (rows[0][3], rows[2][5]) == ("alone", "\u2013")
    assert opened.js("return document.querySelectorAll('.overview tbody tr:nth-child(2) .spark i').length") == 3
    assert opened.js("return document.querySelector('.overview').getBoundingClientRect().top") < 250
    assert opened.js("return document.querySelectorAll('.board > details.alone:not([open])').length") == 2
    opened.click(".overview tbody tr:nth-child(2) td:nth-child(4)")
    opened.until("return location.hash", f"#board={GEMM}")
    assert len(charts(opened, f"#{GEMM}")) == 6


def test_markup_in_names_stays_text(opened: Browser, folder: Path) -> None:
    """A script that ran would have opened an alert, which fails every command after it; and the policy would object."""
    assert SCRIPT in opened.js(AUTHORS)
    opened.open(folder / "page.html", f"#run={run_id(5)}")
    assert charts(opened, f"#{GEMM}") != []
    assert opened.js("return document.querySelectorAll('main script, main img').length") == 0
    assert SCRIPT in opened.js(f"return document.querySelector('#{GEMM} .about h3').textContent")
    assert "onerror=alert" in opened.js(f"return document.querySelector('#{GEMM} .about h3').textContent")


def test_the_policy_lets_no_other_script_run(started: Browser, folder: Path) -> None:
    """The second wall: were a text ever to become markup, it still would not run."""
    started.open(folder / "page.html")
    started.complaints()
    started.js("document.body.insertAdjacentHTML('beforeend', '<img src=\"x.png\" onerror=\"window.ran = 1\">')")
    started.js("const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s)")
    assert started.js("return window.ran ?? null") is None
    assert any("Content Security Policy" in text for text in started.complaints())


def test_an_empty_board_says_how_to_begin(browser: Browser, folder: Path) -> None:
    browser.open(folder / "empty.html")
    assert "make eval PROBLEM=a2a makes the first entry" in browser.js(
        "return document.querySelector('main').innerText"
    )


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve entries, 24 ranks, names without a place to break."""
    root = tmp_path_factory.mktemp("crowded")
    runs = [
        run(
            number,
            1 + 0.07 * number,
            ranks=24,
            author=f"{'W' * 60}{number}",
            submission=renamed(f"{'m' * 90}{number}.py"),
        )
        for number in range(1, 13)
    ]
    for one in runs:
        store(root, one)
    board = Board(entries=tuple(map(entry_for, runs)))
    found = page_of(board, *reports.load_all(root), root, root, "2026-05-20T12:00:00+00:00")
    (root / "page.html").write_text(page.html(found), encoding="utf-8")
    return root / "page.html"


@pytest.mark.parametrize("width", [1280, 390])
def test_a_crowded_board_of_long_names_fits(browser: Browser, crowded: Path, width: int) -> None:
    browser.emulate(width, 900, phone=width < 500)
    browser.open(crowded, f"#run={run_id(12)}")
    assert browser.js("return document.documentElement.scrollWidth") == width
    assert browser.js(TOO_WIDE) == []
    assert "12. WW" in browser.js("return document.querySelector('.about h3').textContent")
    keys = browser.js("return [...document.querySelector('.keys').children].map((one) => one.textContent.slice(0, 3))")
    assert keys == ["1 W", "2 W", "3 W", "4 W", "5 W", "12 ", "lim", "ref"]
    if to := os.environ.get("SCREENSHOTS"):
        browser.emulate(width, browser.js("return document.documentElement.scrollHeight"), phone=width < 500)
        browser.screenshot(Path(to) / f"crowded-{width}.png")


# ---- charts ----------------------------------------------------------------------------------------------------------


def test_a_board_has_all_its_charts_each_with_words_and_a_table(browser: Browser, folder: Path) -> None:
    browser.open(folder / "page.html", f"#board={GEMM}")
    assert charts(browser, f"#{GEMM}") == [
        "Each shape: how far from the limit",
        "Roofline, of one rank",
        "Score history",
        "Clocks, and what they can resolve",
        "Ranks: who ends late",
        "Where the evaluation's time went",
    ]
    labels = browser.js("return [...document.querySelectorAll('figure svg[role=img]')].map((one) => one.ariaLabel)")
    assert len(labels) == 6
    assert all(len(label) > 40 for label in labels)
    rows = browser.js("return [...document.querySelectorAll('figure tbody')].map((one) => one.rows.length)")
    assert rows == [9, 9, 5, 9, 3, 6]
    assert "An empty call reads wall 20.0 us, device 2.05 us, gpumode 41.0 us" in labels[3]
    assert "NaN" not in browser.js("return document.querySelector('main').innerHTML")


def test_the_roofline_is_drawn_against_memory_and_links(browser: Browser, folder: Path) -> None:
    browser.open(folder / "page.html", f"#board={GEMM}")
    label = f"return document.querySelector('#{GEMM} .choose').closest('figure').querySelector('svg').textContent"
    assert "flop per byte over memory" in browser.js(label)
    browser.js(
        "const s = document.querySelector('.choose select'); s.value = 'link'; s.dispatchEvent(new Event('change'))"
    )
    assert "flop per byte over links" in browser.js(label)


def test_an_entry_without_its_report_has_its_history_and_says_what_is_missing(browser: Browser, folder: Path) -> None:
    browser.open(folder / "page.html", f"#run={run_id(9)}")
    within = "section[id^='a2a']"
    assert charts(browser, within) == ["Score history"]
    assert "Its report is not in runs/" in browser.js(f'return document.querySelector("{within} .about").innerText')


def test_a_fresh_clone_has_all_charts(browser: Browser, folder: Path, tmp_path: Path) -> None:
    """There is no runs/, and the page says what the board keeps of the evaluation."""
    (tmp_path / "reference").symlink_to(ROOT / "reference")
    (tmp_path / "shapes").symlink_to(ROOT / "shapes")
    bare = page_of(Board(entries=(entry_for(run(3)),)), (), (), tmp_path, tmp_path, "2026-05-20T12:00:00+00:00")
    (tmp_path / "page.html").write_text(page.html(bare), encoding="utf-8")
    browser.open(folder / "page.html", f"#run={run_id(3)}")
    whole = charts(browser, f"#{GEMM}")
    browser.open(tmp_path / "page.html", f"#board={GEMM}")
    assert charts(browser, f"#{GEMM}") == whole
    assert len(whole) == 6


def test_an_entry_without_its_report_has_the_shapes_that_the_board_keeps(browser: Browser, tmp_path: Path) -> None:
    """Of an older harness's entry that is all there is."""
    whole = entry_for(report())
    old = replace(whole, phases_s={}, cases=tuple(replace(case, bound=None, series=()) for case in whole.cases))
    bare = page_of(Board(entries=(old,)), (), (), tmp_path, tmp_path, "2026-05-20T12:00:00+00:00")
    (tmp_path / "page.html").write_text(page.html(bare), encoding="utf-8")
    browser.open(tmp_path / "page.html", f"#board={GEMM}")
    assert charts(browser, f"#{GEMM}") == ["Each shape: how far from the limit", "Score history"]
    cells = browser.js("return [...document.querySelector('figure tbody').rows[0].cells].map((one) => one.textContent)")
    assert cells[0] == "m 64 n 7168 k 18432"
    assert re.fullmatch(r"\d+ us", cells[2])
    assert cells[5:] == ["121 us", "14.8 %"]
    shown(browser, "board-only")


def test_units_are_those_of_the_data(browser: Browser, tmp_path: Path) -> None:
    """A contest whose score is points, more of which are better, over cases that have a cost."""
    cost: dict[str, Any] = {"metric": "cost", "unit": "km", "ratio_ci": None, "fraction_ci": None}
    cost |= {"ratio": 1.6, "fraction": 0.8}
    cases = tuple(
        EntryCase(label=f"cities {n}", params={"cities": n}, value=12.5 * n, baseline=20.0 * n, **cost)
        for n in (100, 2000)
    )
    of: dict[str, Any] = {"problem": "tour", "file": "submissions/tour/submission.py", "cases": cases}
    of |= {"ratio": 1.6, "ratio_ci": None, "fraction": 0.8}
    scores = {"ada": 1.875, "bob": 1.5}
    entries = tuple(  # of two sources: one source has one score
        entry(
            author=author,
            run_id=author,
            sha256=author[0] * 64,
            score=Score(value=value, unit="points", better="more"),
            **of,
        )
        for author, value in scores.items()
    )
    made = page_of(Board(entries=entries), (), (), tmp_path, tmp_path, "2026-05-20T12:00:00+00:00")
    (tmp_path / "page.html").write_text(page.html(made), encoding="utf-8")
    browser.open(tmp_path / "page.html", f"#board={made.boards[0].id}")
    text = re.sub(r"\s+", " ", browser.js("return document.querySelector('main').innerText"))
    assert f"leads ada 1.875 points, submission.py ahead of the next by 1.25{TIMES} 1.5 points" in text
    assert f"as good as the reference 1.60{TIMES}" in text
    assert "Higher is better." in text
    figures = browser.js("return document.querySelector('.figures').textContent")
    assert "1,250 km" in figures
    assert "cost, km" in figures
    assert "score, points" in figures
    assert not re.search(r"[0-9] (us|ms|s)\b", figures)
    shown(browser, "points")


@pytest.mark.parametrize("width", [1280, 390])
def test_points_show_their_factors_on_desk_and_phone(browser: Browser, tmp_path: Path, width: int) -> None:
    """Every prompt's, in a table that needs no click and no scrolling."""
    one = of_points(3)
    store(tmp_path, one)
    runs = [one, of_points(4, (1.2, 1.1), author="bob", submission=renamed("submissions/llama/gone.py"))]
    board = Board(entries=tuple(map(entry_for, runs)))
    found = page_of(board, *reports.load_all(tmp_path), tmp_path, tmp_path, "2026-05-20T12:00:00+00:00")
    (tmp_path / "page.html").write_text(page.html(found), encoding="utf-8")
    browser.emulate(width, 900, phone=width < 500)
    browser.open(tmp_path / "page.html", f"#board={found.boards[0].id}")
    figure = "[...document.querySelectorAll('figure')].find((one) => one.textContent.includes('the product of'))"
    text = browser.js(f"return {figure}.innerText")
    assert "the score is the mean over these; the reference has 1. The least are those of model llama31_8b" in text
    rows = browser.js(
        f"return [...{figure}.querySelectorAll('tr')].map((one) => [...one.cells].map((x) => x.textContent))"
    )
    assert rows[0] == ["prompt", "points", "accuracy", "first token", "tokens/s"]
    assert rows[1][1:] == ["20.0 =", "1.00", f"{TIMES} 10.0", f"{TIMES} 2.00"]
    assert rows[2][1:] == ["15.0 =", "1.00", f"{TIMES} 10.0", f"{TIMES} 1.50"]
    assert browser.js(f"const one = {figure}.querySelector('.table'); return one.scrollWidth <= one.clientWidth")
    assert browser.js(TOO_WIDE) == []
    assert browser.js("return document.documentElement.scrollWidth") == width
    if to := os.environ.get("SCREENSHOTS"):
        browser.emulate(width, browser.js("return document.documentElement.scrollHeight"), phone=width < 500)
        browser.screenshot(Path(to) / f"product-{width}.png")
    browser.open(tmp_path / "page.html", f"#run={run_id(4)}")
    told = browser.js("return document.querySelector('.figures').innerText")
    assert "Points, and what they are the product of" in told
    assert "The board does not keep this of entries of older harnesses, and no report is in runs/." in told


def test_what_answers_had_cost_over_time_is_drawn_beside_the_reference(browser: Browser, tmp_path: Path) -> None:
    """A panel a case; a case whose values do not move has none, and another entry's line is drawn too."""
    cost: dict[str, Any] = {"metric": "cost", "unit": "cost", "ratio_ci": None, "fraction_ci": None}
    cost |= {"ratio": 2.0, "fraction": 0.8, "value": 100.0, "baseline": 200.0}
    cases = tuple(EntryCase(label=label, params={"n": label}, **cost) for label in ("small", "still", "silent"))
    of: dict[str, Any] = {"problem": "tour", "file": "submissions/tour/submission.py", "cases": cases}
    entries = tuple(
        entry(author=author, run_id=author, score=Score(value=value, unit="points", better="more"), **of)
        for author, value in (("ada", 1.875), ("bob", 1.5))
    )
    made = page_of(Board(entries=entries), (), (), tmp_path, tmp_path, "2026-05-20T12:00:00+00:00")
    points = tuple(Point(at_s=at_s, value=value) for at_s, value in ((0.5, 400.0), (2.0, 100.0)))
    curves = {"small": Curve(limit_s=3.0, own=points, baseline=points[:1]), "silent": Curve(limit_s=3.0, own=())}
    [board] = made.boards
    with_curves = tuple(
        replace(one, cases=tuple(replace(case, curve=curves.get(case.figures.label)) for case in one.cases))
        for one in board.entries
    )
    made = replace(made, boards=(replace(board, entries=with_curves),))
    (tmp_path / "page.html").write_text(page.html(made), encoding="utf-8")
    browser.open(tmp_path / "page.html", f"#board={board.id}")
    figure = "[...document.querySelectorAll('figure')].find((one) => one.textContent.includes('Cost over time'))"
    text = browser.js(f"return {figure}.textContent")
    assert "small: first answer after 0.50 s; silent: no answer" in text
    rows = browser.js(
        f"return [...{figure}.querySelectorAll('tbody tr')].map((one) => [...one.cells].map((x) => x.textContent))"
    )
    assert rows[0] == ["small", "ada, submission.py", "0.50 s", "\u2013", "400", "400", "100"]
    assert rows[2] == ["small", "reference", "0.50 s", "\u2013", "400", "400", "400"]
    assert rows[3][2:] == ["none", "\u2013", "\u2013", "\u2013", "\u2013"]
    assert browser.js(f"return {figure}.querySelectorAll('svg > svg').length") == 2
    assert (
        browser.js(f"return {figure}.querySelectorAll('svg > svg:nth-of-type(1) [aria-label=line] path').length") == 3
    )
    shown(browser, "curves")


def test_links_lead_to_files_that_are_there(browser: Browser, folder: Path) -> None:
    browser.open(folder / "page.html", f"#run={run_id(4)}")
    links = browser.js(
        f"return [...document.querySelectorAll('#{GEMM} .about a')].map((one) => one.getAttribute('href'))"
    )
    assert links == [f"runs/{run_id(4)}/report.json", f"runs/{run_id(4)}/submission.py", f"runs/{run_id(4)}/"]
    assert all((folder / link).exists() for link in links)


# ---- sorting, filtering, links ---------------------------------------------------------------------------------------


def test_a_column_sorts_up_then_down_and_says_so(opened: Browser) -> None:
    state = f"return document.querySelector('#{GEMM} th.speedup').ariaSort"
    opened.click(f"#{GEMM} th.speedup button")
    opened.until(state, "ascending")
    assert opened.js(AUTHORS) == [SCRIPT, "bob", "alice"]
    opened.click(f"#{GEMM} th.speedup button")
    opened.until(state, "descending")
    assert opened.js(AUTHORS) == ["alice", "bob", SCRIPT]


def test_filters_narrow_the_boards_and_are_part_of_the_address(opened: Browser, folder: Path) -> None:
    opened.js("const q = document.querySelector('[name=q]'); q.value = 'BOB ring'; q.dispatchEvent(new Event('input'))")
    assert opened.js("return document.getElementById('count').textContent") == "1 board, 1 entry"
    assert opened.js("return location.hash") == "#q=BOB+ring"
    opened.open(folder / "page.html", "#problem=retired")
    assert opened.js("return [...document.querySelectorAll('.board')].map((one) => one.id.split('-')[0])") == [
        "retired"
    ]
    assert opened.js("return document.querySelector('[name=problem]').value") == "retired"
    opened.click("#filters button[type=reset]")
    opened.until("return document.getElementById('count').textContent", "3 boards, 5 entries")
    opened.open(folder / "page.html", "#q=nobody")
    assert "No entry matches." in opened.js("return document.querySelector('main').innerText")


def test_an_address_leads_to_its_entry_and_a_bad_one_to_the_whole_page(browser: Browser, folder: Path) -> None:
    browser.open(folder / "page.html", f"#run={run_id(4)}")
    assert browser.js("return document.querySelector('tr[aria-current] .who a').textContent") == "bob"
    assert abs(browser.js(f"return document.getElementById('{GEMM}').getBoundingClientRect().top")) < 100
    for bad in ("#run=nothing&board=none&sort=strip", "#%E0%A4%A", "#sort=constructor&problem="):
        browser.open(folder / "page.html", bad)
        assert browser.js("return document.querySelectorAll('.board').length") == 3


def test_everything_is_reached_by_keyboard(opened: Browser) -> None:
    opened.press("Tab")
    opened.until("return document.activeElement.className", "skip")
    opened.press("Enter")
    opened.until("return location.hash !== '' || document.activeElement.className !== 'skip'", True)
    opened.press("Tab")
    opened.until("return document.activeElement.closest('.board, .overview') !== null", True)
    opened.js(f"document.querySelector('#{GEMM} th.score button').focus()")
    opened.press("Enter")
    opened.until("return document.activeElement.textContent", "score")  # sorting keeps the place
    opened.js(f"document.querySelectorAll('#{GEMM} .who a')[1].focus()")
    opened.press("Enter")
    opened.until("return document.querySelector('tr[aria-current] .who a').textContent", "bob")
    assert len(charts(opened, f"#{GEMM}")) == 6


# ---- looks -----------------------------------------------------------------------------------------------------------


TIPS = {  # the ground and the text of what a pointer calls up
    "light": ["rgb(245, 246, 248)", "rgb(22, 25, 31)"],
    "dark": ["rgb(27, 32, 41)", "rgb(232, 235, 241)"],
}


def test_what_a_pointer_calls_up_can_be_read(browser: Browser, folder: Path) -> None:
    browser.emulate(1280, 1600)
    browser.open(folder / "page.html", f"#problem=gemm_rs&run={run_id(4)}")
    x, y = browser.js(
        "const r = document.querySelector('figure svg').getBoundingClientRect(); return [r.x + 300, r.y + 40]"
    )
    browser.point(x, y)
    browser.js("return new Promise((done) => setTimeout(done, 200))")
    tip = "const tip = document.querySelector('[aria-label=tip]');"
    assert "alice, submission.py" in browser.js(f"{tip} return tip.textContent")
    fills = "return ['path', 'text'].map((tag) => getComputedStyle(tip.querySelector(tag)).fill)"
    for theme, colours in TIPS.items():
        browser.emulate(1280, 1600, theme)
        assert browser.js(tip + fills) == colours


@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_and_can_be_read_on_desk_and_phone_light_and_dark(browser: Browser, folder: Path, width: int) -> None:
    """The page is drawn once for both themes: the charts' colours are CSS's too."""
    browser.emulate(width, 900, phone=width < 500)
    browser.open(folder / "page.html", f"#board={GEMM}")
    for theme, ground in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(18, 21, 27)")):
        browser.emulate(width, 900, theme, phone=width < 500)
        assert browser.js("return document.documentElement.scrollWidth") == width
        assert browser.js(TOO_WIDE) == []
        assert browser.js("return getComputedStyle(document.body).backgroundColor") == ground
        found = browser.js(CONTRAST)
        assert len(found) > 100
        assert [one for one in found if one[0] < 4.5] == []
        if to := os.environ.get("SCREENSHOTS"):
            browser.emulate(width, browser.js("return document.documentElement.scrollHeight"), theme, phone=width < 500)
            browser.screenshot(Path(to) / f"page-{width}-{theme}.png")


def test_the_toggle_goes_from_the_systems_theme_to_light_and_dark_and_is_kept(opened: Browser, folder: Path) -> None:
    opened.emulate(1280, 900, "dark")
    seen = []
    for _ in range(4):
        seen.append(opened.js("return [document.getElementById('theme').textContent, document.body.matches('body') && "
                               "getComputedStyle(document.body).backgroundColor]"))  # fmt: skip
        opened.click("#theme")
    dark, light = "rgb(18, 21, 27)", "rgb(255, 255, 255)"
    assert seen == [["theme: system", dark], ["theme: light", light], ["theme: dark", dark], ["theme: system", dark]]
    opened.open(folder / "page.html")
    assert opened.js("return document.getElementById('theme').textContent") == "theme: light"


def test_charts_follow_the_window(browser: Browser, folder: Path) -> None:
    browser.open(folder / "page.html", f"#board={GEMM}")
    browser.emulate(390, 900, phone=True)
    browser.js("return new Promise((done) => setTimeout(done, 300))")
    assert (
        browser.js("return Math.max(...[...document.querySelectorAll('figure svg')].map((one) => one.clientWidth))")
        < 390
    )
