"""The live page as its reader meets it, in headless Chromium: what runs and waits, boards that change by themselves.

SCREENSHOTS=folder pytest writes there what it looks like.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from browser import CONTRAST, MISSING, TOO_WIDE, Browser
from recorded import checkout, entry_for, renamed, run, store
from serving import BOBS, MINE, SOURCE, Served, outcome, served, submit
from waiting import until

from harness.board import leaderboard
from harness.core.checkout import Checkout

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
    pytest.mark.xdist_group("live page"),  # one browser, one server
]

ROWS = (
    "return [...document.querySelectorAll('#live tbody tr')].map((row) => row.innerText.replace(/\\s+/g, ' ').trim())"
)
LEADER = "return document.querySelector('#gemm-rs-cpu-2-cores-of-example-cpu-2-00ghz-8 .tiles dd').innerText"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server over a checkout with boards; what ada submits sleeps until it is deleted."""
    root = tmp_path_factory.mktemp("live")
    found = checkout(root)
    for entry in found.entries:
        leaderboard.record(root / "leaderboard.yaml", entry)
    with served(root / "runs" / "serve") as server:
        server.service.live._checkout = Checkout(root)
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


@pytest.fixture
def clients(running: Served) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    with running.client(MINE) as mine, running.client(BOBS) as bobs:
        yield mine, bobs


def rows(browser: Browser) -> list[str]:
    found = browser.js(ROWS)
    assert isinstance(found, list)
    return found


def test_the_page_follows_the_queue_and_the_boards(
    browser: Browser, running: Served, clients: tuple[httpx.Client, httpx.Client]
) -> None:
    """Without a reload: what runs with its phase and case, what waits in its turn, a new leader when there is one."""
    mine, bobs = clients
    browser.open(running.url + "/")
    browser.complaints(), browser.requests()
    until(lambda: "Nothing was submitted" in browser.js("return document.querySelector('#live').innerText"))
    assert browser.js(LEADER).startswith("alice")
    browser.js("window.kept = true; location.hash = 'sort=score'")
    first, second = submit(mine, SOURCE + "# sleeps\n"), submit(bobs, name="other.py", mode="test")
    until(lambda: len(rows(browser)) == 2)
    until(lambda: "test 1/3 m 64 n 2880" in rows(browser)[0])
    assert rows(browser)[0].startswith(f"{first} gemm_rs, leaderboard ada, mine.py runs test 1/3")
    assert rows(browser)[1].startswith(f"{second} gemm_rs, test bob, other.py waits, 2")
    assert browser.js("return document.querySelector('#live-state').innerText") == "1 evaluation running, 1 waiting"
    shots(browser)
    mine.delete(f"/user/submissions/{first}")
    outcome(bobs, second)
    until(lambda: "passed" in rows(browser)[0])
    assert "bob, gemm_rs, test: passed." in browser.js("return document.querySelector('#live-news').textContent")
    root = running.service.live._checkout.root
    report = run(7, 0.5, author="zoe", submission=renamed("submissions/gemm_rs/fast.py"))
    store(root, report)
    leaderboard.record(root / "leaderboard.yaml", entry_for(report))
    until(lambda: browser.js(LEADER).startswith("zoe"))
    assert browser.js("return [window.kept, location.hash]") == [True, "#sort=score"], "it was not loaded again"
    assert browser.complaints() == []
    asked = {url.removeprefix(running.url) for url in browser.requests()}
    assert asked <= {"/", "/live/queue", "/live/boards", "about:blank"} | {f"{running.url}/"}


def test_nothing_on_it_leads_to_a_file(browser: Browser, running: Served) -> None:
    browser.open(running.url + "/")
    browser.js("document.querySelectorAll('details.more').forEach((one) => one.open = true)")
    until(lambda: browser.js("return document.querySelectorAll('.about').length") > 0)
    links = browser.js("return [...document.querySelectorAll('a')].map((one) => one.getAttribute('href'))")
    assert all(link.startswith("#") for link in links), links


def test_a_server_that_is_gone_is_said_to_be(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path) as short:
        browser.open(short.url + "/")
        until(lambda: "0 evaluations" in browser.js("return document.querySelector('#live-state').innerText"))
    until(lambda: "does not answer" in browser.js("return document.querySelector('#live-state').innerText"))
    browser.complaints()  # of the requests that failed


def shots(browser: Browser) -> None:
    """At both widths, light and dark: everything fits and can be read."""
    for name, width, height, phone in (("desk", 1280, 900, False), ("phone", 390, 844, True)):
        for theme in ("light", "dark"):
            browser.emulate(width, height, theme, phone=phone)
            assert browser.js(TOO_WIDE) == []
            faint = [text for contrast, text in browser.js(CONTRAST) if contrast < 4.5]
            assert faint == []
            if folder := os.environ.get("SCREENSHOTS"):
                browser.screenshot(Path(folder) / f"live-{name}-{theme}.png")
    browser.emulate(1280, 900)
