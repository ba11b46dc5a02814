"""Results as Markdown, for a pull request's comment or the page of a CI job.

What a submission chose (its name, its author, what it printed) stands in code spans and fences alone: there it can
neither format the text nor mention anybody.
"""

import re
from collections.abc import Sequence

from harness.board.entries import Board
from harness.board.places import Place
from harness.core.errors import Exit
from harness.core.metric_words import words_of, words_of_results
from harness.core.records import EvalReport
from harness.core.words import case_label, clean, clean_line, count_text, literal
from harness.evaluation.compare import Comparison, rule
from harness.judging import verdict
from harness.judging.warnings import text_of
from harness.report.comparison import summary_text, table_of
from harness.report.failures import evidence
from harness.report.metrics import measured_in, points_cells
from harness.report.summary import summary_lines
from harness.report.terminal import mean_row, times_row


def evaluation_text(report: EvalReport, board: Board | None, place: Place | None) -> str:
    """An evaluation: its verdict, the table of shapes, and of a failure what happened."""
    title = f"{_code(report.submission.name)} on {_code(report.problem)}"
    device = f"{count_text(report.world_size, 'rank')} on {report.device}, suite {_code(report.suite)}"
    where = f", {_code(report.environment.machine_class)}" if report.environment else ""
    lines = [f"### {title}", "", f"{device}{where}, run {_code(report.run_id)}, by {_code(report.author)}", ""]
    lines += [f"- **{label}** {_code(text)}" for label, text in summary_lines(report, board, place)]
    benchmarks = [result for result in report.results if result.case.kind == "benchmark"]
    if any(result.figures is not None for result in benchmarks):
        words = words_of_results(benchmarks)
        rows = [times_row(result, words) for result in benchmarks]
        if len(benchmarks) > 1 and (mean := mean_row(benchmarks, report.figures, words)) is not None:
            rows.append(mean)
        lines += ["", *table_lines(words.columns, [[cell.plain for cell in row] for row in rows])]
    if products := measured_in(report):
        lines += ["", *table_lines(*points_cells(report, products))]
    if (failed := verdict.first_failure(report)) is not None:
        lines += ["", f"{failed.case.kind} {literal(case_label(failed))}:", ""]
        parts = [clean(verdict.message(failed.outcome))]
        parts += ["\n".join([f"{heading}:", *text]) for heading, text in evidence(report, failed)]
        lines += _fenced("\n\n".join(parts))
    lines += _warnings([text_of(one) for one in report.warnings])
    return "\n".join(lines) + "\n"


def comparison_text(found: Sequence[Comparison]) -> str:
    """Comparisons: a table of shapes each, and the word that sums it up."""
    lines: list[str] = []
    for one in found:
        lines += [f"### {_code(one.problem)}: is B as fast as A?", ""]
        lines += [f"- **{label}** {_code(side.name)}" for label, side in (("A", one.a), ("B", one.b))]
        lines += [f"- **summary** {summary_text(one)}", ""]
        lines += [*table_lines(*table_of(one)), ""]
        told = rule(one.margin, words_of(one.metric))
        lines += [f"{count_text(one.world_size, 'rank')} on {one.device}, suite {_code(one.suite)}. {told}"]
        lines += [*_warnings([text_of(warning, "A") for warning in one.warnings]), ""]
    return "\n".join(lines[:-1]) + "\n"


def error_text(message: str, code: Exit) -> str:
    """The error that ended a verb."""
    return "\n".join([f"**error** (exit {int(code)})", "", *_fenced(clean(message))]) + "\n"


def _warnings(texts: Sequence[str]) -> list[str]:
    return ["", *(f"- **warning** {_code(text)}" for text in texts)] if texts else []


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A column whose name starts with > is aligned right."""
    marks = ["---:" if column.startswith(">") else "---" for column in columns]
    names = [column.removeprefix(">") for column in columns]
    return [f"| {' | '.join(cells)} |" for cells in (names, marks, *([*map(literal, row)] for row in rows))]


def _code(text: str) -> str:
    """A code span of text from anywhere. The ticks around it are more than any in it."""
    line = clean_line(text)
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    space = " " if "`" in line else ""
    return f"{ticks}{space}{line}{space}{ticks}" if line else "-"


def _fenced(text: str) -> list[str]:
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=2))
    return [f"{ticks}text", text, ticks]
