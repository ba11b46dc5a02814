"""What is on the page: the board's entries, and of their runs' reports what the charts need.

Figures are those that the board and the reports store, and the board's estimates over all launches of a source: nothing
is computed here that could contradict them. An entry whose report is gone is shown with what the board knows of it.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from harness.board import reports
from harness.board.entries import Board, Entry, EntryCase, Group, short_file
from harness.board.judgements import entry_cases, group_of
from harness.board.places import By, groups, limited, limits_of, machines, ranking
from harness.board.runs import FOLDER
from harness.core.checkout import Checkout
from harness.core.curve import Curve
from harness.core.decode import part
from harness.core.errors import HarnessError
from harness.core.records import Case, Cost, EvalReport, Measured
from harness.evaluation.roofline import board_limit
from harness.judging.scoring import SCORINGS, Scoring
from harness.judging.verdict import first_failure, measured_cases, message, status
from harness.judging.warnings import text_of
from harness.problems.problem import Problem
from harness.problems.shape_file import communication_words, find, short_names
from harness.report import history
from harness.report.board_view import held_line, notes
from harness.report.document import plain
from harness.report.evaluation import letters_text
from harness.report.failures import evidence
from harness.report.summary import verdict_text

# Of the data in the page. 1: first, with records of its own. 2: the board's entries, and parts of the reports. 3: all
# figures are the entries'; one limit a board. 4: places as ranges, and what a board is ranked by. 5: `failed`, curves.
# 6: the product that a case's points are. 7: `copy_of` in place of `same_as`.
PAGE_SCHEMA = 7
FAILED_RUNS, FAILED_LINES, FAILED_HISTORY = 20, 60, 8  # that are shown
Lines = Mapping[tuple[Group, str, str], history.Line]  # by group, author and file


@dataclass(frozen=True, kw_only=True)
class Product:
    value: float
    factors: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class CaseOnPage:
    """A case of an entry. `limit` is its bound on the scale of its value, None where none is known for that metric. The
    cost is a rank's, None where the problem is not there to ask. The curve is of the first run, None where the values
    of a case do not move while a submission runs. The product is None where the contest's score is none. Both are None
    where the entry's report is gone."""

    figures: EntryCase
    limit: float | None
    cost: Cost | None
    curve: Curve | None = None
    product: Product | None = None


@dataclass(frozen=True, kw_only=True)
class Links:
    """Where the run's files are, from where the page lies."""

    report: str
    source: str | None
    folder: str


@dataclass(frozen=True, kw_only=True)
class RunOnPage:
    notes: tuple[str, ...]
    links: Links | None


@dataclass(frozen=True, kw_only=True)
class EntryOnPage:
    """An entry of the board with its place, its history (oldest first, itself last) and its run, if that is there.
    `reference` says where that stands on the scale of its score, None where it has no place there. `bounded` names the
    metric that the entry's fraction of the limit is of: the device clock on GPUs, whichever clock ranks."""

    place: int
    last_place: int  # more than `place` where the measurements do not tell entries apart
    copy_of: str | None  # whose the code was before, and in which file
    file: str  # without the problem's folder
    entry: Entry  # without what stands beside it here
    reference: float | None
    bounded: str
    cases: tuple[CaseOnPage, ...]
    history: tuple[history.Run, ...]
    run: RunOnPage | None


@dataclass(frozen=True, kw_only=True)
class BoardOnPage:
    """What is ranked together, best first, and the figure that it is ranked by. `id` is its address in the page.
    `limit` is the best score that the machine's peaks allow, None where that is not known or the score is no time.
    `communication`: how it is shown for the problem (`delay, data`), empty if its files do not say. `machines`: how
    many it mixes, as far as that is known. `notes`: which orders are settled, and how others can be."""

    id: str
    by: By
    machines: int
    notes: tuple[str, ...]
    limit: float | None
    communication: str
    entries: tuple[EntryOnPage, ...]


@dataclass(frozen=True, kw_only=True)
class FailedRun:
    """A run of this checkout that did not pass: what it came to in a line, what happened and the end of the log, line
    by line, and the runs of the same file in that group, oldest first, itself included."""

    run_id: str
    date: str  # ISO 8601, UTC
    problem: str
    suite: str
    machine_class: str
    author: str
    file: str  # without the problem's folder
    verdict: str
    lines: tuple[str, ...]
    history: tuple[history.Run, ...]
    links: Links | None


@dataclass(frozen=True, kw_only=True)
class Page:
    """All of it. `failed`: the latest runs that did not pass, newest first. `unreadable`: a message for each report
    that could not be read. `legend` says what short parameter names stand for."""

    schema: int
    made_at: str  # ISO 8601, UTC
    boards: tuple[BoardOnPage, ...]
    failed: tuple[FailedRun, ...]
    held: tuple[str, ...]  # a line for each evaluation that is right but not believed: on no board
    unreadable: tuple[str, ...]
    legend: str


# ---- what is on it -----------------------------------------------------------------------------------------------
def page_of(
    found: Board, recorded: Sequence[EvalReport], unreadable: Sequence[str], root: Path, folder: Path, made_at: str
) -> Page:
    """The page's data. Links are relative to `folder`, where the page will lie; `root` is the checkout."""
    by_id = {report.run_id: report for report in recorded}
    lines = {(line.group, line.author, line.file): line for line in history.lines(found, recorded)}
    shapes = [result.case for report in recorded for result in report.results]
    boards, used = [], set[str]()
    for group in groups(found):
        shapes += _shapes(found, group, Checkout(root))
        problem = _problem(group[0], root)
        how = communication_words(group[0], Checkout(root))
        limits = limits_of(found, group)
        entries = []
        rows = ranking(found, group)
        for row in rows:
            entry = replace(row.entry, score=row.score, fraction=row.fraction)
            if row.ratio:
                entry = replace(entry, ratio=row.ratio.value, ratio_ci=row.ratio.ci)
            report = _own(entry, by_id.get(entry.run_id))
            if report:  # to which an older harness left these
                entry = replace(entry, peaks=report.peaks, phases_s=report.phases_s)
            is_time = entry.score.unit == "s"
            cases = tuple(limited(one, limits) for one in _cases(entry, report))
            entries.append(
                EntryOnPage(
                    place=row.place.place,
                    last_place=row.place.last,
                    copy_of=f"{row.copy_of.author}'s {row.copy_of.file}" if row.copy_of else None,
                    file=short_file(entry),
                    entry=replace(entry, cases=(), history=(), holds=()),
                    reference=entry.score.value * entry.ratio if is_time and entry.ratio else None,
                    bounded=_bounded(cases, entry.device),
                    cases=tuple(_case(entry, one, problem, report) for one in cases),
                    history=lines[entry.identity].runs,
                    run=_run(report, root, folder) if report else None,
                )
            )
        limits_us = [[one.limit if one.figures.unit == "us" else None for one in row.cases] for row in entries]
        limit = board_limit([row.entry for row in entries], limits_us, group, problem)
        boards.append(
            BoardOnPage(
                id=_slug(group, used),
                by=rows[0].by,
                machines=machines(found, group),
                notes=tuple(map(plain, notes(found, group, rows))),
                limit=limit,
                communication=how,
                entries=tuple(entries),
            )
        )
    newest = sorted(recorded, key=lambda report: (report.started_at, report.run_id), reverse=True)
    failed = [report for report in newest if status(report) != "pass"]
    return Page(
        schema=PAGE_SCHEMA,
        made_at=made_at,
        boards=tuple(boards),
        failed=tuple(_failed_run(report, lines, root, folder) for report in failed[:FAILED_RUNS]),
        held=tuple(f"{one.problem}, suite {one.suite}: {held_line(one)}" for one in found.held),
        unreadable=tuple(unreadable),
        legend=letters_text(shapes),
    )


def _failed_run(report: EvalReport, lines: Lines, root: Path, folder: Path) -> FailedRun:
    group = group_of(report)
    line = lines.get((group, report.author, report.submission.name))
    told: list[str] = []
    if (failure := first_failure(report)) is not None:
        told += message(failure.outcome).splitlines()
        for one in evidence(report, failure):
            told += ["", f"{plain(one.heading)}:", *one.lines]
    return part(
        report,
        FailedRun,
        date=report.started_at,
        machine_class=group[2],
        file=report.submission.name.removeprefix(f"submissions/{report.problem}/"),
        verdict=verdict_text(report),
        lines=tuple(told[:FAILED_LINES]),
        history=line.runs[-FAILED_HISTORY:] if line else (),
        links=_links(report, root, folder),
    )


def _shapes(found: Board, group: Group, checkout: Checkout) -> list[Case]:
    """The cases that the board keeps of a group's entries, with the short names that their labels have."""
    problem, _, _, world_size = group
    short = short_names(problem, checkout)
    shapes = (one.params for entry in found.entries if entry.group == group for one in entry.cases)
    return [Case(kind="benchmark", params=params, seed=0, world_size=world_size, short=short) for params in shapes]


def _own(entry: Entry, report: EvalReport | None) -> EvalReport | None:
    """The report if it is the entry's: of the same source and group, with figures for all that it measured."""
    measured = measured_cases(report) if report else ()
    if report is None or report.environment is None or not measured or len(entry_cases(report)) != len(measured):
        return None
    return report if (group_of(report), report.submission.sha256) == (entry.group, entry.sha256) else None


def _cases(entry: Entry, report: EvalReport | None) -> tuple[EntryCase, ...]:
    """The entry's cases with the board's figures. What an older harness did not record is the report's."""
    if report is None:
        return entry.cases
    known = entry_cases(report)
    if [one.params for one in entry.cases] != [one.params for one in known]:
        return known
    return tuple(one if one.series else _filled(one, more) for one, more in zip(entry.cases, known, strict=True))


def _filled(one: EntryCase, more: EntryCase) -> EntryCase:
    names = ("samples", "bounded", "bound", "series", "rank_ends_us")
    return replace(one, **{name: getattr(more, name) for name in names})


def _bounded(cases: Sequence[EntryCase], device: str) -> str:
    """The metric that a fraction of the bound is of. An older harness did not record it, and knew two."""
    return next((one.bounded for one in cases if one.bounded), "wall" if device == "cpu" else "device")


def _case(entry: Entry, figures: EntryCase, problem: Problem | None, report: EvalReport | None) -> CaseOnPage:
    limit = None
    units = {one.metric: one.unit for one in figures.series}
    if figures.bound is not None and units.get(figures.bounded) == figures.unit:
        limit = figures.bound.value  # of one unit: what is no faster on its own clock is none on another
    elif figures.bound is None and entry.device == "cpu" and figures.metric == "wall" and figures.fraction:
        limit = figures.value * figures.fraction  # the only clock there is: the fraction is of this one
    cases = measured_cases(report) if report else ()
    measured = next((one for result, one in cases if result.case.params == figures.params), None)
    return CaseOnPage(
        figures=figures,
        limit=limit,
        cost=_cost(figures, entry.world_size, problem),
        curve=measured.curves[0] if measured and measured.curves else None,
        product=_product(SCORINGS[report.ranking_by], measured) if report and measured else None,
    )


def _product(scoring: Scoring, measured: Measured) -> Product | None:
    factors = scoring.factors(measured)
    return Product(value=scoring.case(measured), factors=factors) if factors else None


def _cost(figures: EntryCase, world_size: int, problem: Problem | None) -> Cost | None:
    """What a case costs a rank; nothing where the problem, or this shape of it, is not known here, or where the case's
    value is no time, which the cost would be held against."""
    if figures.unit != "us":
        return None
    try:
        case = Case(kind="benchmark", params=figures.params, seed=0, world_size=world_size)
        return problem.cost(case) if problem else None
    except (HarnessError, TypeError, ValueError):  # it says no cost; parameters of an earlier form of the problem
        return None


def _problem(name: str, root: Path) -> Problem | None:
    """The problem, or None: an entry outlives it."""
    try:
        return find(name, Checkout(root))
    except HarnessError:
        return None


def _run(report: EvalReport, root: Path, folder: Path) -> RunOnPage:
    machine = (f"{one.status}: {one.check}: {one.found}" for one in report.machine_state)
    return RunOnPage(notes=(*map(text_of, report.warnings), *machine), links=_links(report, root, folder))


def _links(report: EvalReport, root: Path, folder: Path) -> Links:
    run = root / FOLDER / report.run_id
    source = run / "submission.py"
    return Links(
        report=_href(run / reports.FILE, folder),
        source=_href(source, folder) if source.is_file() else None,
        folder=_href(run, folder) + "/",
    )


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
