"""What was measured beside the metric that ranks, and what a score that is a product is the product of: two tables, a
row a case, for contests that score so."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from harness.core.metric_words import words_of
from harness.core.metrics import MEMORY
from harness.core.records import CaseResult, EvalReport, Measured
from harness.core.words import case_label, clean_line, percent_text, plain_table, times_text
from harness.judging.figures import series_figures
from harness.judging.scoring import SCORINGS

LEGEND = (
    "x is how many times as good as the reference in the same run, % what part of the limit; ttft is the time to first "
    "token, step that of a later one."
)


def measured_in(report: EvalReport) -> list[tuple[CaseResult, Measured]]:
    """The measured cases, if the contest's score is a product; none otherwise."""
    factors = SCORINGS[report.ranking_by].factors
    cases = [(one, one.outcome) for one in report.results if isinstance(one.outcome, Measured)]
    return [(one, measured) for one, measured in cases if factors(measured)]


def metrics_table(cases: Sequence[tuple[CaseResult, Measured]]) -> Table:
    """Every further metric but memory, which has a table of its own: its value, its ratio to the reference, and the
    fraction of its limit where it has one."""
    further = (series for _, measured in cases for series in measured.series[1:])
    shown = dict.fromkeys(series.metric.name for series in further if series.metric.name != MEMORY.name)
    headers = [header for name in shown for header in _headers(name, [measured for _, measured in cases])]
    table = plain_table("prompt", *headers)
    for result, measured in cases:
        cells = [cell for name in shown for cell in _cells(measured, name, any(name in one.bounds for _, one in cases))]
        table.add_row(Text(case_label(result)), *cells)
    return table


def _headers(name: str, cases: Sequence[Measured]) -> list[str]:
    series = next(one.by_name[name] for one in cases if name in one.by_name)
    return [f">{name} {series.metric.unit}", ">x", *([">%"] if any(name in one.bounds for one in cases) else [])]


def _cells(measured: Measured, name: str, with_limit: bool) -> list[str]:
    figures = series_figures(measured, name)
    if figures is None:
        return ["-"] * (3 if with_limit else 2)
    words = words_of(measured.by_name[name].metric)
    cells = [words.value(figures.value), times_text(figures.ratio) if figures.ratio else "-"]
    if with_limit:
        cells.append(percent_text(figures.fraction) if figures.fraction else "-")
    return cells


def points_table(report: EvalReport, cases: Sequence[tuple[CaseResult, Measured]]) -> Table:
    """What each case's value is the product of."""
    columns, rows = points_cells(report, cases)
    table = plain_table(*columns)
    for *cells, label in rows:
        table.add_row(*cells, Text(label))
    return table


def points_cells(report: EvalReport, cases: Sequence[tuple[CaseResult, Measured]]) -> tuple[list[str], list[list[str]]]:
    """That table's columns and rows. The share of own kernels, a claim, is no factor."""
    scoring = SCORINGS[report.ranking_by]
    names = scoring.factors(cases[0][1])
    columns = [f">{scoring.unit}", *(f">{name}" for name in names), ">claims own kernels", "prompt"]
    rows = []
    for result, measured in cases:
        factors = scoring.factors(measured).values()
        cells = [f"{'x ' if index else ''}{factor:.4g}" for index, factor in enumerate(factors)]
        claimed = "-" if measured.own_kernels is None else percent_text(measured.own_kernels)
        rows.append([f"{scoring.case(measured):.4g} =", *cells, claimed, case_label(result)])
    return columns, rows


def kernels_table(cases: Sequence[tuple[CaseResult, Measured]]) -> Table | None:
    """The kernels and operators that a share of own kernels is made of; None where none was measured."""
    table = plain_table(">of the time", "kernel or operator", "prompt")
    for result, measured in cases:
        for name, part in measured.kernels.items():
            table.add_row(percent_text(part), Text(clean_line(name)), Text(case_label(result)))
    return table if table.row_count else None
