"""The verb `history`: how the score of each author's file moved, run by run.

Knows recorded runs (runs/, reports) and the leaderboard, which still has the scores of runs whose folder is gone.
Compares only what is ranked together: the same problem, suite, machine and rank count. A run that failed is shown,
since it is part of the story, but has no score.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.board.entries import Board, Earlier, Entry, Group
from harness.core.decode import did_you_mean
from harness.core.errors import UsageError
from harness.core.records import EvalReport
from harness.core.words import clean_line, seconds_text
from harness.judging import verdict

BAR_CHARS = 24
BAR_WIDTH = 76 + BAR_CHARS  # columns from which on there is room for a bar
UNKNOWN_MACHINE = "an unknown machine"  # a run that ended before its machine was looked at


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
    """The runs of one author's file in one group, oldest first, each run once."""

    group: Group
    author: str
    file: str
    runs: tuple[Run, ...]

    @property
    def scores(self) -> tuple[float, ...]:
        """The scores of the runs that have one."""
        return tuple(run.score for run in self.runs if run.score is not None)


def lines(found: Board, recorded: Iterable[EvalReport]) -> tuple[Line, ...]:
    """Every line that the board and the reports tell of, by group, author and file. Where both know a run the board
    speaks, so that a score is the same number everywhere."""
    runs: dict[tuple[Group, str, str], dict[str, Run]] = {}
    for report in recorded:
        machine_class = report.environment.machine_class if report.environment else UNKNOWN_MACHINE
        group = (report.problem, report.suite, machine_class, report.world_size)
        runs.setdefault((group, report.author, report.submission.name), {})[report.run_id] = Run(
            run_id=report.run_id,
            date=report.started_at,
            sha256=report.submission.sha256,
            status=verdict.status(report),
            score=report.figures.score.value if report.figures else None,
            ratio=report.figures.ratio.value if report.figures and report.figures.ratio else None,
        )
    for entry in found.entries:
        known = runs.setdefault(entry.identity, {})
        told: tuple[Entry | Earlier, ...] = (entry, *entry.history)
        for one in reversed(told):  # a run that was judged again from its report stands in both: the entry speaks
            known[one.run_id] = Run(
                run_id=one.run_id,
                date=one.date,
                sha256=one.sha256,
                status="pass",
                score=one.score.value if isinstance(one, Entry) else one.score,
                ratio=one.ratio,
            )
    return tuple(
        Line(
            group=group,
            author=author,
            file=file,
            runs=tuple(sorted(known.values(), key=lambda run: (run.date, run.run_id))),
        )
        for (group, author, file), known in sorted(runs.items())
    )


def chosen(found: Sequence[Line], problem: str | None, author: str | None) -> tuple[Line, ...]:
    """The lines of that problem and author. Raises UsageError for an author who has none anywhere."""
    authors = sorted({line.author for line in found})
    if author is not None and author not in authors:
        known = f" (known: {', '.join(map(clean_line, authors))})" if authors else "; nothing is recorded yet"
        raise UsageError(f"no run by '{author}' is recorded{did_you_mean(author, authors)}{known}")
    return tuple(line for line in found if problem in (None, line.group[0]) and author in (None, line.author))


def change(earlier_s: float, later_s: float) -> float:
    """By how much of the earlier score the later one differs: -0.25 is a quarter less time."""
    return later_s / earlier_s - 1


def show(found: Sequence[Line], console: Console) -> None:
    """Prints each line: what became of its score in a sentence, then a row a run."""
    if not found:
        console.print("No such run is recorded yet: `make eval PROBLEM=a2a` makes the first.", highlight=False)
    for index, line in enumerate(found):
        problem, suite, machine_class, world_size = line.group
        name = f"  {line.file.removeprefix(f'submissions/{problem}/')} by {line.author}"
        console.print(Text.assemble("\n" if index else "", (problem, "bold"), clean_line(name)), soft_wrap=True)
        console.print(Text(clean_line(f"suite {suite}, {world_size} ranks, {machine_class}")), soft_wrap=True)
        console.print(Text(summary(line)), soft_wrap=True)
        console.print()
        console.print(_table(line, wide=console.width >= BAR_WIDTH), highlight=False)


def summary(line: Line) -> str:
    """What became of the score, in a sentence."""
    scores = line.scores
    if not scores:
        return f"{len(line.runs)} runs, none of them scored" if len(line.runs) > 1 else "1 run, not scored"
    if len(scores) == 1:
        return f"1 score: {seconds_text(scores[0])}"
    best = "now at its best" if scores[-1] == min(scores) else f"best {seconds_text(min(scores))}"
    moved = f"{seconds_text(scores[0])} to {seconds_text(scores[-1])} ({change(scores[0], scores[-1]):+.1%})"
    return f"{len(scores)} scores: {moved}, {best}"


def _table(line: Line, wide: bool) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in ("date", ">score", ">change", ">speedup", "source", "run", *(["score, from 0"] if wide else [])):
        right = name.startswith(">")
        table.add_column(name.removeprefix(">"), justify="right" if right else "left", no_wrap=True)
    most = max(line.scores, default=0.0)
    before_s: float | None = None
    source: str | None = None
    for run in line.runs:
        cells = [run.date[:16].replace("T", " "), run.status, "", ""]
        bar = ""
        if run.score is not None:
            moved = f"{change(before_s, run.score):+.1%}" if before_s is not None else ""
            speedup = f"{run.ratio:.3g}x" if run.ratio is not None else ""
            cells[1:] = [seconds_text(run.score), moved, speedup]
            bar = "#" * max(1, round(BAR_CHARS * run.score / most))
            before_s = run.score
        same = "same" if run.sha256 == source else run.sha256[:7]
        source = run.sha256
        cells += [same, run.run_id, *([bar] if wide else [])]
        best = run.score is not None and run.score == min(line.scores)
        table.add_row(*(Text(clean_line(cell)) for cell in cells), style="bold" if best else "")
    return table
