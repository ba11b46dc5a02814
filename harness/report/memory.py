"""Peak memory beside time: a table of a run's shapes, and a line of a board's entries."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from harness.board.places import Ranked
from harness.core import metrics
from harness.core.metric_words import MEMORY
from harness.core.records import CaseResult, Measured
from harness.core.stats import geomean
from harness.core.words import case_label, percent_text, plain_table, times_text
from harness.judging.figures import series_figures

METRIC = metrics.MEMORY.name
COLUMNS = ("shape", "ref", "own", "ratio", "least", "fraction")


def memory_table(results: Sequence[CaseResult]) -> Table | None:
    """Medians of either side, their ratio, and the least that a call must hold. None where no memory was measured."""
    table = plain_table(*MEMORY.columns[: len(COLUMNS)])
    for result in results:
        one = series_figures(result.outcome, METRIC) if isinstance(result.outcome, Measured) else None
        if one is None or one.baseline is None or one.ratio is None:
            continue
        bound = (MEMORY.value(one.bound), percent_text(one.fraction)) if one.bound and one.fraction else ("-", "-")
        values = (MEMORY.value(one.baseline), MEMORY.value(one.value), times_text(one.ratio))
        table.add_row(Text(case_label(result)), *values, *bound)
    return table if table.row_count else None


def memory_notes(rows: Sequence[Ranked]) -> list[str]:
    """For each entry whose memory was measured in all cases: its geometric mean, the reference's and the least."""
    told = []
    for row in rows:
        found = [one for case in row.entry.cases for one in case.series if one.metric == METRIC and one.value]
        refs = [one.baseline for one in found if one.baseline]
        if not found or len(found) != len(row.entry.cases) or len(refs) != len(found):
            continue
        least = [one.least for one in found if one.least]
        text = f"{MEMORY.value(geomean([one.value for one in found if one.value]))}"
        text += f", reference {MEMORY.value(geomean(refs))}"
        text += f", least {MEMORY.value(geomean(least))}" if len(least) == len(found) else ""
        told.append(
            f"peak memory of {row.entry.file.rpartition('/')[2]} by {row.entry.author}: {text} (geometric means)"
        )
    return told
