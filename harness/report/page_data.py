"""What is on the page: the board's entries, and of their runs' reports what the charts need.

Figures are those that the board and the reports store: nothing is computed here that could contradict them. An entry
whose report is gone is shown with what the board knows of it.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from harness.board import reports
from harness.board.entries import Board, Entry, EntryCase, Group, short_file
from harness.board.judgements import entry_cases
from harness.board.places import groups, ranked
from harness.board.runs import FOLDER
from harness.core.checkout import Checkout
from harness.core.errors import HarnessError
from harness.core.machine_records import Peaks
from harness.core.records import Bound, Case, CaseResult, Cost, EvalReport, Measured, Metric, Params, Series
from harness.core.stats import geomean, median, quartiles
from harness.core.words import letters_text
from harness.judging.verdict import measured_cases
from harness.judging.warnings import text_of
from harness.problems.shape_file import communication_words, find, short_names
from harness.report import history
from harness.report.board_view import held_line

# Of the data in the page. 1: first, with records of its own. 2: the board's entries, and parts of the reports.
PAGE_SCHEMA = 2
CostOf = Callable[[Case], Cost | None]


@dataclass(frozen=True, kw_only=True)
class Quartiles:
    """Where the middle half of some samples lies, and their median."""

    low: float
    median: float
    high: float


@dataclass(frozen=True, kw_only=True)
class SeriesPart:
    """One metric of a case without its samples. A side is None where it has none. `empty` is the median of empty calls:
    nothing smaller is seen."""

    metric: Metric
    own: Quartiles | None
    baseline: Quartiles | None
    empty: float | None


@dataclass(frozen=True, kw_only=True)
class CasePart:
    """What the report adds to a case of the board. `series` begins with the metric that ranks; the bound is one of the
    metric named `bounded`. The cost is a rank's, None where the problem is not there to ask."""

    series: tuple[SeriesPart, ...]
    bounded: str
    bound: Bound | None
    rank_ends_us: tuple[float, ...]
    cost: Cost | None


@dataclass(frozen=True, kw_only=True)
class CaseOnPage:
    """A case of an entry. `limit` is its bound on the scale of its value, None where none is known for that metric."""

    figures: EntryCase
    limit: float | None
    run: CasePart | None


@dataclass(frozen=True, kw_only=True)
class Links:
    """Where the run's files are, from where the page lies. The folder also has the submission's other modules and what
    the ranks printed."""

    report: str
    source: str | None
    folder: str


@dataclass(frozen=True, kw_only=True)
class RunOnPage:
    """What the report of an entry's run adds."""

    peaks: Peaks | None
    phases_s: dict[str, float]
    notes: tuple[str, ...]
    links: Links | None


@dataclass(frozen=True, kw_only=True)
class EntryOnPage:
    """An entry of the board with its place, its history (oldest first, itself last) and its run, if that is there.
    `reference` and `limit` say where these stand on the scale of its score, None where they have no place there."""

    place: int
    file: str  # without the problem's folder
    entry: Entry  # without what stands beside it here
    reference: float | None
    limit: float | None
    cases: tuple[CaseOnPage, ...]
    history: tuple[history.Run, ...]
    run: RunOnPage | None


@dataclass(frozen=True, kw_only=True)
class BoardOnPage:
    """What is ranked together, best first. `id` is its address in the page. `communication`: how it is shown for the
    problem (`delay, data`), empty if its files do not say."""

    id: str
    communication: str
    entries: tuple[EntryOnPage, ...]


@dataclass(frozen=True, kw_only=True)
class Page:
    """All of it. `unreadable`: a message for each report that could not be read. `legend` says what short parameter
    names stand for."""

    schema: int
    made_at: str  # ISO 8601, UTC
    boards: tuple[BoardOnPage, ...]
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
        cost_of = _costs(group[0], root)
        how = communication_words(group[0], Checkout(root))
        entries = []
        for place, entry in ranked(found, group):
            report = _own(entry, by_id.get(entry.run_id))
            cases = _cases(entry, report, cost_of)
            entries.append(
                EntryOnPage(
                    place=place,
                    file=short_file(entry),
                    entry=replace(entry, cases=(), history=(), holds=()),
                    reference=_reference(entry),
                    limit=_limit(entry, cases),
                    cases=cases,
                    history=lines[entry.identity].runs,
                    run=_run(report, root, folder) if report else None,
                )
            )
        boards.append(BoardOnPage(id=_slug(group, used), communication=how, entries=tuple(entries)))
    return Page(
        schema=PAGE_SCHEMA,
        made_at=made_at,
        boards=tuple(boards),
        held=tuple(f"{one.problem}, suite {one.suite}: {held_line(one)}" for one in found.held),
        unreadable=tuple(unreadable),
        legend=letters_text(shapes),
    )


def _shapes(found: Board, group: Group, checkout: Checkout) -> list[Case]:
    """The cases that the board keeps of a group's entries, with the short names that their labels have."""
    problem, _, _, world_size = group
    short = short_names(problem, checkout)
    shapes = (one.params for _, entry in ranked(found, group) for one in entry.cases)
    return [Case(kind="benchmark", params=params, seed=0, world_size=world_size, short=short) for params in shapes]


def _own(entry: Entry, report: EvalReport | None) -> EvalReport | None:
    """The report if it is the entry's: of the same source and group, with figures for all that it measured."""
    measured = measured_cases(report) if report else ()
    if report is None or report.environment is None or not measured or len(entry_cases(report)) != len(measured):
        return None
    group = (report.problem, report.suite, report.environment.machine_class, report.world_size)
    return report if (group, report.submission.sha256) == (entry.group, entry.sha256) else None


def _reference(entry: Entry) -> float | None:
    """A score that is a time is the reference's as many times over as the ratio says; others have scales of their
    own."""
    return entry.score.value * entry.ratio if entry.score.unit == "s" and entry.ratio else None


def _limit(entry: Entry, cases: Sequence[CaseOnPage]) -> float | None:
    """The limit on the scale of a score that is a time. On GPUs the board's fraction is one of the device clock and
    says nothing of a score on the wall clock: there it takes the limit of every case."""
    if entry.score.unit != "s":
        return None
    if entry.device == "cpu":
        return entry.score.value * entry.fraction if entry.fraction else None
    parts = [one.limit / one.figures.value for one in cases if one.limit is not None]
    return entry.score.value * geomean(parts) if parts and len(parts) == len(cases) else None


def _cases(entry: Entry, report: EvalReport | None, cost_of: CostOf) -> tuple[CaseOnPage, ...]:
    """The entry's cases with the board's figures, and what the report adds to them. An entry that an older harness
    recorded has no cases: then the figures are the report's."""
    if report is None:
        return tuple(_case(entry, one, None) for one in entry.cases)
    known = entry_cases(report)
    figures = entry.cases if _params(entry.cases) == _params(known) else known
    pairs = zip(figures, measured_cases(report), strict=True)
    return tuple(_case(entry, one, _part(result, found, report, cost_of)) for one, (result, found) in pairs)


def _params(cases: Sequence[EntryCase]) -> list[Params]:
    return [one.params for one in cases]


def _case(entry: Entry, figures: EntryCase, run: CasePart | None) -> CaseOnPage:
    limit = None
    if run is None and entry.device == "cpu" and figures.metric == "wall" and figures.fraction:
        limit = figures.value * figures.fraction  # the only clock there is: the fraction is of this one
    elif run is not None and run.bound is not None:
        units = {one.metric.name: one.metric.unit for one in run.series}
        limit = run.bound.value if units.get(run.bounded) == figures.unit else None
    return CaseOnPage(figures=figures, limit=limit, run=run)


def _part(result: CaseResult, found: Measured, report: EvalReport, cost_of: CostOf) -> CasePart:
    return CasePart(
        series=tuple(_series(one, report.empty_call_samples_us) for one in found.series),
        bounded=found.against_bound.metric.name,
        bound=result.bound,
        rank_ends_us=found.rank_ends_us,
        cost=cost_of(result.case),
    )


def _series(one: Series, empty: dict[str, tuple[float, ...]]) -> SeriesPart:
    samples = empty.get(one.metric.name, ())
    return SeriesPart(
        metric=one.metric,
        own=quartiles_of(one.own) if one.own else None,
        baseline=quartiles_of(one.baseline) if one.baseline else None,
        empty=median(samples) if samples else None,
    )


def quartiles_of(samples: Sequence[float]) -> Quartiles:
    """Of samples, of which there must be one at least."""
    low, high = quartiles(samples)
    return Quartiles(low=low, median=median(samples), high=high)


def _run(report: EvalReport, root: Path, folder: Path) -> RunOnPage:
    run = root / FOLDER / report.run_id
    source = run / "submission.py"
    machine = (f"{one.status}: {one.check}: {one.found}" for one in report.machine_state)
    return RunOnPage(
        peaks=report.peaks,
        phases_s=report.phases_s,
        notes=(*map(text_of, report.warnings), *machine),
        links=Links(
            report=_href(run / reports.FILE, folder),
            source=_href(source, folder) if source.is_file() else None,
            folder=_href(run, folder) + "/",
        ),
    )


def _costs(name: str, root: Path) -> CostOf:
    """What a case of that problem costs a rank; nothing where the problem, or this shape of it, is not known here."""

    def cost(case: Case) -> Cost | None:
        try:
            return problem.cost(case)
        except (HarnessError, TypeError, ValueError):  # it says no cost; parameters of an earlier form of the problem
            return None

    try:
        problem = find(name, Checkout(root))
    except HarnessError:  # an entry outlives its problem
        return lambda case: None
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
