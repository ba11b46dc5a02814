"""The verb `history`: how the score of each author's file moved, run by run.

Knows recorded runs (runs/, reports) and the leaderboard, which still has the scores of runs whose folder is gone.
Compares only what is ranked together: the same problem, suite, machine and rank count. A run that failed is shown,
since it is part of the story, but has no score.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from harness.board.entries import Board, Earlier, Entry, Group
from harness.board.judgements import group_of
from harness.core.decode import did_you_mean, part
from harness.core.errors import UsageError
from harness.core.metrics import unit_of
from harness.core.records import EvalReport, Score
from harness.core.words import clean_line, count_text, times_text
from harness.judging import verdict
from harness.report.document import Block, Document, Heading, Styled, Table, UntrustedText, Words, column, prose

BAR_CHARS = 24
BAR_WIDTH = 76 + BAR_CHARS  # columns from which on there is room for a bar


@dataclass(frozen=True, kw_only=True)
class Run:
    """One evaluation of one file. The figures are None where it did not pass, or timed nothing."""

    run_id: str
    date: str  # ISO 8601, UTC
    sha256: str
    status: str
    score: float | None
    ratio: float | None


@dataclass(frozen=True, kw_only=True)
class Line:
    """The runs of one author's file in one group, oldest first, each run once. `unit` is what was measured, of which
    ratios are; scores have a unit of their own."""

    group: Group
    author: str
    file: str
    runs: tuple[Run, ...]
    unit: str = "us"
    score_unit: str = "s"
    better: Literal["less", "more"] = "less"

    @property
    def scores(self) -> tuple[float, ...]:
        return tuple(run.score for run in self.runs if run.score is not None)

    @property
    def best(self) -> float | None:
        return (min if self.better == "less" else max)(self.scores, default=None)

    def text(self, score: float) -> str:
        return Score(value=score, unit=self.score_unit, better=self.better).text


def lines(found: Board, recorded: Iterable[EvalReport]) -> tuple[Line, ...]:
    """Every line that the board and the reports tell of, by group, author and file. Where both know a run the board
    speaks, so that a score is the same number everywhere."""
    runs: dict[tuple[Group, str, str], dict[str, Run]] = {}
    measured: dict[tuple[Group, str, str], tuple[str, Score]] = {}  # the unit, and any of the scores
    for report in recorded:
        identity = (group_of(report), report.author, report.submission.name)
        if report.figures is not None:
            unit = next(one.figures.metric.unit for one in report.results if one.figures is not None)
            measured[identity] = (unit, report.figures.score)
        runs.setdefault(identity, {})[report.run_id] = Run(
            run_id=report.run_id,
            date=report.started_at,
            sha256=report.submission.sha256,
            status=verdict.status(report),
            score=report.figures.score.value if report.figures else None,
            ratio=report.figures.ratio.value if report.figures and report.figures.ratio else None,
        )
    for entry in found.entries:
        known = runs.setdefault(entry.identity, {})
        measured[entry.identity] = (entry.cases[0].unit if entry.cases else "us", entry.score)
        told: tuple[Entry | Earlier, ...] = (entry, *entry.history)
        for one in reversed(told):  # a run that was judged again from its report stands in both: the entry speaks
            value = one.score.value if isinstance(one, Entry) else one.score
            known[one.run_id] = part(one, Run, status="pass", score=value)
    found_lines = []
    for (group, author, file), known in sorted(runs.items()):
        by_date = tuple(sorted(known.values(), key=lambda run: (run.date, run.run_id)))
        line = Line(group=group, author=author, file=file, runs=by_date)
        if (told_of := measured.get((group, author, file))) is not None:
            unit, score = told_of
            line = replace(line, unit=unit, score_unit=score.unit, better=score.better)
        found_lines.append(line)
    return tuple(found_lines)


def chosen(found: Sequence[Line], problem: str | None, author: str | None) -> tuple[Line, ...]:
    """The lines of that problem and author. Raises UsageError for an author who has none anywhere."""
    authors = sorted({line.author for line in found})
    if author is not None and author not in authors:
        known = f" (known: {', '.join(map(clean_line, authors))})" if authors else "; nothing is recorded yet"
        raise UsageError(f"no run by '{author}' is recorded{did_you_mean(author, authors)}{known}")
    return tuple(line for line in found if problem in (None, line.group[0]) and author in (None, line.author))


def change(earlier: float, later: float) -> float:
    """By how much of the earlier score the later one differs: -0.25 is a quarter less."""
    return later / earlier - 1


def document_of(found: Sequence[Line], unread: Sequence[str] = ()) -> Document:
    """Each line: what became of its score in a sentence, then a row a run; and what could not be read."""
    blocks: list[Block] = []
    if not found:
        blocks.append(prose("No such run is recorded yet: `make eval PROBLEM=a2a` makes the first."))
    for line in found:
        problem, suite, machine_class, world_size = line.group
        name = f"  {line.file.removeprefix(f'submissions/{problem}/')} by {line.author}"
        where = UntrustedText(f"suite {suite}, {count_text(world_size, 'rank')}, {machine_class}")
        heading = Heading((UntrustedText(problem), Styled(UntrustedText(name), "")))
        blocks += [heading, prose(where, summary(line), whole=True), _table(line)]
    if unread:
        blocks.append(prose(*(UntrustedText(f"left out: {message}") for message in unread), whole=True))
    return Document(blocks=tuple(blocks))


def summary(line: Line) -> str:
    scores = line.scores
    if not scores:
        return f"{len(line.runs)} runs, none of them scored" if len(line.runs) > 1 else "1 run, not scored"
    if len(scores) == 1:
        return f"1 score: {line.text(scores[0])}"
    assert line.best is not None
    best = "now at its best" if scores[-1] == line.best else f"best {line.text(line.best)}"
    moved = f"{line.text(scores[0])} to {line.text(scores[-1])} ({change(scores[0], scores[-1]):+.1%})"
    return f"{len(scores)} scores: {moved}, {best}"


def _table(line: Line) -> Table:
    bars = column("score, from 0", least=BAR_WIDTH)
    columns = ("=date", ">score", ">change", f">{unit_of(line.unit).ratio}", "=source", "=run", bars)
    most = max(line.scores, default=0.0)
    before: float | None = None
    source: str | None = None
    rows: list[list[Words]] = []
    styles = {}
    for run in line.runs:
        cells = [run.status, "", ""]
        bar = ""
        if run.score is not None:
            moved = f"{change(before, run.score):+.1%}" if before is not None else ""
            speedup = times_text(run.ratio) if run.ratio is not None else ""
            cells = [line.text(run.score), moved, speedup]
            bar = "#" * max(1, round(BAR_CHARS * run.score / most))
            before = run.score
        same = "same" if run.sha256 == source else run.sha256[:7]
        source = run.sha256
        if run.score is not None and run.score == line.best:
            styles[len(rows)] = "bold"
        date = UntrustedText(run.date[:16].replace("T", " "))
        rows.append([date, *cells, UntrustedText(same), UntrustedText(run.run_id), bar])
    return Table(columns, rows, styles=styles)
