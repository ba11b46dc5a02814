"""A contest's page in headless Chromium, frozen and open, at two widths, and its statistics.

SCREENSHOTS=folder pytest writes there what it looks like.
"""

import json
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from browser import MISSING, Browser
from contests import DAY, END, MINUTE, OPEN, REGISTRATION, contest, ranked, register, submit

from harness.board.entries import Board
from harness.contest import acts, statistics
from harness.contest.acts import Contest
from harness.contest.lifecycle import EvaluationFailed, EvaluationHeld
from harness.report import contest_page
from harness.report.contest_stats import duration_text

pytestmark = pytest.mark.xdist_group("contest page")  # one browser
HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Contest:
    """Three teams, two weeks, failures of two kinds, a later result behind the freeze."""
    made = contest(tmp_path_factory.mktemp("contest"))
    for team, member in (("owls", "ada"), ("cats", "cy"), ("dogs", "di")):
        register(made, team, member)
    ranked(made, "ada", 1.4, OPEN + MINUTE)
    wrong = submit(made, "cy", OPEN + timedelta(hours=5))
    acts.settle(
        made, EvaluationFailed(entry=wrong.number, kind="wrong", why=HOSTILE), OPEN + timedelta(hours=6), "harness"
    )
    ranked(made, "cy", 2.2, OPEN + 2 * DAY)
    held = submit(made, "di", OPEN + 3 * DAY)
    acts.settle(
        made, EvaluationHeld(entry=held.number, check="roofline", evidence="no", run_id="r"), OPEN + 3 * DAY, "harness"
    )
    ranked(made, "ada", 3.1, OPEN + 8 * DAY)
    ranked(made, "di", 2.0, OPEN + 9 * DAY, problem="ag_gemm")
    ranked(made, "cy", 4.0, END - MINUTE)  # behind the freeze
    return made


def test_statistics_answer_when_how_good_how_long_and_what_failed(found: Contest) -> None:
    told = statistics.full(found.rules, found.log.records(), END)
    assert [(day.day, day.submitted, day.passed, day.failed, day.held) for day in told.days][:3] == [
        ("2027-01-11", 2, 1, 1, 0),
        ("2027-01-13", 1, 1, 0, 0),
        ("2027-01-14", 1, 0, 0, 1),
    ]
    assert [(one.problem, one.team, one.entry) for one in told.best] == [
        ("ag_gemm", "dogs", 6),
        ("gemm_rs", "owls", 1),
        ("gemm_rs", "cats", 3),
        ("gemm_rs", "owls", 5),
        ("gemm_rs", "cats", 7),
    ]
    distances = [one.of_limit or 0 for one in told.best if one.problem == "gemm_rs"]
    assert distances == sorted(distances), "the best so far only comes nearer to the limit"
    first = {(one.problem, one.team): (one.seconds, one.submissions) for one in told.first_valid}
    assert first["gemm_rs", "owls"] == (60, 1)
    assert first["gemm_rs", "cats"] == (2 * 86400, 2)
    assert first["gemm_rs", "dogs"] == (None, 1)
    assert first["ag_gemm", "dogs"] == (2 * 86400, 1), "from the problem's own opening"
    assert {(one.kind, one.count) for one in told.failures} == {("wrong", 1), ("held: roofline", 1)}
    shape = next(one for one in told.shapes if one.problem == "gemm_rs")
    assert shape.count == 4
    assert shape.low <= shape.first_quartile <= shape.median <= shape.third_quartile <= shape.high


def test_frozen_statistics_are_those_of_the_freeze_and_hidden_ones_counts(found: Contest, tmp_path: Path) -> None:
    frozen = statistics.public(found.rules, found.log.records(), END)
    assert frozen.submissions == 6
    assert frozen.frozen_at == "2027-01-28T18:00:00.000+00:00"
    private = contest(tmp_path, found.file.read_text().replace("freeze: 2027-01-28 18:00", "private: true"))
    private.log.path.write_bytes(found.log.path.read_bytes())
    hidden = statistics.public(private.rules, private.log.records(), END)
    assert hidden.submissions == 7
    assert (hidden.best, hidden.first_valid, hidden.failures, hidden.shapes) == ((), (), (), ())


def test_without_a_submission_nothing_is_said(tmp_path: Path) -> None:
    made = contest(tmp_path)
    told = statistics.full(made.rules, made.log.records(), REGISTRATION)
    assert (told.submissions, told.days, told.best) == (0, (), ())


@pytest.mark.parametrize(("seconds", "text"), [(59, "00:00"), (3 * 3600 + 61, "03:01"), (2 * 86400 + 60, "2 d 00:01")])
def test_a_duration_is_days_hours_and_minutes(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_no_text_of_anybody_ends_the_pages_script(found: Contest) -> None:
    text = contest_page.html(contest_page.data(found, Board(), END, is_full=True) | {"description": HOSTILE})
    assert HOSTILE not in text
    assert json.dumps(HOSTILE).replace("<", "\\u003c").replace(">", "\\u003e") in text


# ---- as its reader meets it ------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("view", ["open", "frozen", "empty"])
def test_the_page_is_drawn_and_fits(view: str, width: int, found: Contest, browser: Browser, tmp_path: Path) -> None:
    shown, folder = contest(tmp_path) if view == "empty" else found, os.environ.get("SCREENSHOTS")
    file = tmp_path / "contest.html"
    file.write_text(contest_page.html(contest_page.data(shown, Board(), END, is_full=view == "open")))
    browser.emulate(width, 3200 if folder else 900)
    browser.open(file)
    if folder:
        browser.screenshot(Path(folder) / f"contest-{view}-{width}.png")
    assert browser.js("return document.documentElement.scrollWidth") <= width
    assert browser.js("return document.querySelector('h1').innerText") == "Kernel class 2027"
    first = browser.js("return document.querySelector('.standings tbody tr')?.innerText.split('\\t')[1] ?? ''")
    assert str(first).strip() == {"open": "cats", "frozen": "owls", "empty": ""}[view]
    charts = browser.js("return document.querySelectorAll('.charts figure svg').length")
    assert (int(str(charts)) >= 6) == (view != "empty")
    notice = str(browser.js("return document.querySelector('.notice')?.innerText ?? ''"))
    assert notice.startswith({"open": "For organisers", "frozen": "Frozen: this is how", "empty": "Frozen"}[view])
    assert browser.complaints() == []
