"""The clocks of a report in words: the host's time of a call beside the device's, all clocks side by side, and how
sharp each of them is."""

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from harness.core.metrics import HOST
from harness.core.records import CaseResult, EvalReport, Measured
from harness.core.stats import median
from harness.core.words import case_label, plain_table, us_text

HOST_COLUMN = "host us"
HOST_LEGEND = (
    f"{HOST_COLUMN} is what the caller's thread says that it needs to queue a call (* more than the call takes)"
)
TEXTS = {
    "device": "device: from the word that lets the devices go to the last one's that it is done; empty calls differ by "
    "{} us",
    "wall": "wall: first start to last end over ranks; an empty call reads {} us",
}


def host_cell(result: CaseResult) -> str:
    """What the caller's thread needs to queue a call, where that was measured; marked if it is more than the call
    takes on its device."""
    series = result.outcome.by_name.get(HOST.name) if isinstance(result.outcome, Measured) else None
    if series is None or result.figures is None:
        return ""
    host_us = median(series.own)
    return us_text(host_us) + ("*" if host_us > result.figures.value else "")


def clocks_table(report: EvalReport, benchmarks: Sequence[CaseResult]) -> Table:
    """Reference and submission on every clock side by side, and what an empty call reads: the resolution."""
    names = list(report.empty_call_samples_us)
    table = plain_table("reference us -> submission us", *(f">{name}" for name in names))
    for result in benchmarks:
        if isinstance(result.outcome, Measured):
            by_name = result.outcome.by_name
            cells = [
                f"{us_text(median(by_name[name].baseline))} -> {us_text(median(by_name[name].own))}" for name in names
            ]
            table.add_row(Text(case_label(result)), *cells)
    table.add_row("an empty call", *(us_text(median(report.empty_call_samples_us[name])) for name in names))
    return table


def clock_texts(report: EvalReport) -> Iterator[str]:
    """A line for each clock of the report."""
    for name, text in TEXTS.items():
        if samples := report.empty_call_samples_us.get(name):
            yield text.format(us_text(median(samples)))
