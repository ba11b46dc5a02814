"""The verb `page`: the leaderboard and what lies behind each entry as one HTML file that needs nothing else.

Knows what is on the page (plain values out of leaderboard.yaml and runs/*/report.json) and how the file is put
together; how it looks is in harness/assets/. An entry whose report is gone is shown with what the board knows of it.

Charts: Observable Plot 0.6.17 on D3 7.9.2 (ISC, 490 kB together, in harness/assets/ as npm publishes them). They draw
SVG: it takes its colours from CSS, so that light and dark need no second drawing, can be read out, and is sharp on
every screen. Logarithmic axes, facets and rules at a value, which is most of what is shown here, are one line each.
uPlot (50 kB) and Chart.js (200 kB) draw on a canvas, which has none of that; ECharts and Plotly's basic bundle do, in
1 MB or more.

Names and messages are whatever somebody wrote. They reach the page as JSON in which no `<` stands for itself, the
script puts them there as text, never as HTML, and a Content-Security-Policy lets only the scripts of this file run and
nothing be fetched.
"""

import base64
import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from harness.board import reports
from harness.board.entries import Board, Entry, Group
from harness.board.places import groups, ranked
from harness.board.reports import Report, ReportCase, Samples, Times, times
from harness.board.runs import FOLDER
from harness.core.checkout import Checkout
from harness.core.decode import encode
from harness.core.records import Case, Cost, HarnessError, Peaks
from harness.core.stats import geomean, median, speedup
from harness.core.words import clean_line, letters_text
from harness.problems.problem import Problem
from harness.problems.shape_file import find
from harness.report import history
from harness.report.board_view import held_line
from harness.report.history import Line, Run

ASSETS = Path(__file__).resolve().parent / "assets"
SCRIPTS = ("d3-7.9.2.min.js", "plot-0.6.17.umd.min.js", "text.js", "charts.js", "page.js")  # in this order
LIVE_SCRIPT, LIVE_STYLE, LIVE_PART = "live.js", "live.css", "live.html"  # of the page that `serve` shows
PAGE_SCHEMA = 1  # of the data in the page; 1: first
CostOf = Callable[[ReportCase], Cost | None]


@dataclass(frozen=True, kw_only=True)
class PageClock:
    """Submission and reference on one clock, and what an empty call reads on it: nothing shorter is seen."""

    clock: str
    time: Times
    ref: Times
    speedup: float
    empty_us: float | None


@dataclass(frozen=True, kw_only=True)
class PageCase:
    """A timed shape. `clocks` begins with the wall clock, which ranks; `roof_us` is the median on the clock that
    rooflines are held against. The cost is a rank's, None where the problem is not there to ask."""

    label: str
    clocks: tuple[PageClock, ...]
    roof_us: float
    rank_ends_us: tuple[float, ...]
    bound_us: float | None
    bound_by: str | None
    published_us: float | None
    cost: Cost | None


@dataclass(frozen=True, kw_only=True)
class PageRun:
    """What the report of an entry's run adds. `*_us` are geometric means over shapes, of medians."""

    cases: tuple[PageCase, ...]
    time_us: float
    ref_us: float
    bound_us: float | None
    peaks: Peaks | None
    phases_s: dict[str, float]
    notes: tuple[str, ...]
    report_href: str | None
    source_href: str | None
    folder_href: str | None  # of a run: there are also the submission's other modules and the ranks' logs


@dataclass(frozen=True, kw_only=True)
class PageEntry:
    """An entry of a board with its place, its history (oldest first, itself last) and its run, if that is there.
    `status` is ranked or verified."""

    place: int
    status: str
    author: str
    file: str
    score_s: float
    geomean_speedup: float | None
    geomean_speedup_ci: tuple[float, float] | None
    roofline_fraction: float | None
    date: str
    run_id: str
    sha256: str
    versions: str
    history: tuple[Run, ...]
    run: PageRun | None


@dataclass(frozen=True, kw_only=True)
class PageBoard:
    """What is ranked together, best first. `id` is its address in the page."""

    id: str
    problem: str
    suite: str
    machine_class: str
    world_size: int
    device: str
    entries: tuple[PageEntry, ...]


@dataclass(frozen=True, kw_only=True)
class Page:
    """All of it. `unreadable`: a message for each report that could not be read. `legend` says what short parameter
    names stand for."""

    schema: int
    made_at: str  # ISO 8601, UTC
    boards: tuple[PageBoard, ...]
    held: tuple[str, ...]  # a line for each evaluation that is right but not believed: on no board
    unreadable: tuple[str, ...]
    legend: str


# ---- what is on it -----------------------------------------------------------------------------------------------
def page_of(
    found: Board, recorded: Sequence[Report], unreadable: Sequence[str], root: Path, folder: Path, made_at: str
) -> Page:
    """The page's data. Links are relative to `folder`, where the page will lie; `root` is the checkout."""
    by_id = {report.run_id: report for report in recorded}
    told = {(line.group, line.author, line.file): line for line in history.lines(found, recorded)}
    boards, used = [], set[str]()
    for group in groups(found):
        cost_of = _costs(group[0], root)
        entries = tuple(
            _entry(place, entry, told[entry.identity], _run(entry, by_id.get(entry.run_id), cost_of, root, folder))
            for place, entry in ranked(found, group)
        )
        problem, suite, machine_class, world_size = group
        boards.append(
            PageBoard(
                id=_slug(group, used),
                problem=clean_line(problem),
                suite=clean_line(suite),
                machine_class=clean_line(machine_class),
                world_size=world_size,
                device=clean_line(ranked(found, group)[0][1].device),
                entries=entries,
            )
        )
    return Page(
        schema=PAGE_SCHEMA,
        made_at=made_at,
        boards=tuple(boards),
        held=tuple(f"{one.problem}, suite {one.suite}: {clean_line(held_line(one))}" for one in found.held),
        unreadable=tuple(map(clean_line, unreadable)),
        legend=letters_text(case.case for report in recorded for case in report.cases),
    )


def _entry(place: int, entry: Entry, line: Line, run: PageRun | None) -> PageEntry:
    versions = entry.versions
    software = {"python": versions.python, "torch": versions.torch, "triton": versions.triton}
    return PageEntry(
        place=place,
        status=entry.status,
        author=clean_line(entry.author),
        file=clean_line(entry.file.removeprefix(f"submissions/{entry.problem}/")),
        score_s=entry.score_s,
        geomean_speedup=entry.geomean_speedup,
        geomean_speedup_ci=entry.geomean_speedup_ci,
        roofline_fraction=entry.roofline_fraction,
        date=clean_line(entry.date),
        run_id=clean_line(entry.run_id),
        sha256=clean_line(entry.sha256),
        versions=clean_line(", ".join(f"{name} {version}" for name, version in software.items() if version)),
        history=line.runs,
        run=run,
    )


def _run(entry: Entry, report: Report | None, cost_of: CostOf, root: Path, folder: Path) -> PageRun | None:
    """The entry's run; None without a report, or with one of another source or group than the entry's."""
    if report is None or not report.timed or report.environment is None:
        return None
    group = (report.problem, report.suite, report.environment.machine_class, report.world_size)
    if (group, report.submission.sha256) != (entry.group, entry.sha256):
        return None
    cases = tuple(_case(case, report, cost_of) for case in report.timed)
    bounds = [case.bound_us for case in cases if case.bound_us is not None]
    runs = root / FOLDER / report.run_id
    source = runs / "submission.py"
    return PageRun(
        cases=cases,
        time_us=geomean([case.clocks[0].time.median_us for case in cases]),
        ref_us=geomean([case.clocks[0].ref.median_us for case in cases]),
        bound_us=geomean(bounds) if len(bounds) == len(cases) else None,
        peaks=report.peaks,
        phases_s=report.phases_s,
        notes=tuple(map(clean_line, (*report.warnings, *report.machine_state))),
        report_href=_href(runs / reports.FILE, folder),
        source_href=_href(source, folder) if source.is_file() else None,
        folder_href=_href(runs, folder) + "/",
    )


def _case(case: ReportCase, report: Report, cost_of: CostOf) -> PageCase:
    names = ["wall", *(name for name in case.clocks if name != "wall")]
    return PageCase(
        label=case.label,
        clocks=tuple(_clock(name, case.clocks[name], report.empty_call_samples_us.get(name, ())) for name in names),
        roof_us=median(case.roofline_samples_us),
        rank_ends_us=case.rank_ends_us,
        bound_us=case.bound_us,
        bound_by=case.bound_by,
        published_us=case.published_us,
        cost=cost_of(case),
    )


def _clock(name: str, samples: Samples, empty_us: Sequence[float]) -> PageClock:
    return PageClock(
        clock=clean_line(name),
        time=times(samples.samples_us),
        ref=times(samples.ref_samples_us),
        speedup=speedup(samples),
        empty_us=median(empty_us) if empty_us else None,
    )


def _costs(name: str, root: Path) -> CostOf:
    """What a case of that problem costs a rank; nothing where the problem, or this shape of it, is not known here."""
    try:
        problem: Problem = find(name, Checkout(root))
    except HarnessError:  # an entry outlives its problem
        return lambda case: None

    def cost(case: ReportCase) -> Cost | None:
        try:
            return problem.cost(Case(kind=case.kind, params=case.params, seed=0, world_size=case.world_size))
        except (TypeError, ValueError):  # parameters of an earlier form of the problem
            return None

    return cost


def _href(path: Path, folder: Path) -> str:
    return quote(os.path.relpath(path, folder))


def _slug(group: Group, used: set[str]) -> str:
    """An address for the group out of letters, digits and dashes; the same today and tomorrow unless two collide."""
    slug = base = re.sub(r"[^a-z0-9]+", "-", " ".join(map(str, group)).lower()).strip("-")
    number = 1
    while slug in used:
        number += 1
        slug = f"{base}-{number}"
    used.add(slug)
    return slug


# ---- the file ----------------------------------------------------------------------------------------------------
def html(page: Page, live: str = "") -> str:
    """The whole file: the template with style, data and scripts in their places. `live` is the version of the boards
    on a page that a server keeps up to date; only that one may fetch, and from its server alone."""
    scripts = [_asset(name) for name in (*SCRIPTS, *([LIVE_SCRIPT] if live else []))]
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {' '.join(map(_hash, scripts))}"
    parts = {
        "policy": f"{policy}; connect-src 'self'" if live else policy,
        "style": _asset("page.css") + (_asset(LIVE_STYLE) if live else ""),
        "live": _asset(LIVE_PART).replace("{{version}}", live) if live else "",
        "data": script_json(encode(page)),
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    # one pass over the template, so that a part that has such a word in it stays as it is
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("page.html"))


def script_json(value: object) -> str:
    """JSON that can stand inside <script>: no `<`, `>` or `&` in it, so that nothing in a text ends the script or
    begins a comment."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII: U+2028 is escaped too
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """The script's name in a Content-Security-Policy. https://www.w3.org/TR/CSP3/#grammardef-hash-source"""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
