"""The verb `roofline` on a terminal and as JSON; harness.evaluation.roofline computes what it shows."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.core.decode import encode
from harness.core.records import Case, CaseResult, NotRun
from harness.core.words import case_label, clean_line, count_text, letters_text, rate_text
from harness.evaluation.roofline import Roofline, Shape

ROOFLINE_SCHEMA = 1  # of --json; 1: first


def to_json(found: Roofline) -> dict[str, Any]:
    """The object of --json."""
    values: dict[str, Any] = encode(found)
    return {"schema": ROOFLINE_SCHEMA, **values}


def show(found: Roofline, console: Console) -> None:
    """Prints the table, what its columns are, and where the peaks come from; 80 columns do."""
    title = f"  suite {found.suite}, {count_text(found.world_size, 'rank')} on {clean_line(found.hardware)}"
    console.print(Text.assemble((found.problem, "bold"), title), highlight=False, soft_wrap=True)
    published = any(row.published_us is not None for row in found.rows)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("shape", overflow="fold")
    for name in ("flops", "hbm", "link", "limit", "by", "flop/B", *(["published"] if published else [])):
        table.add_column(name, justify="left" if name == "by" else "right", no_wrap=True)
    for row in found.rows:
        cells = [_us(value) for value in (row.flops_us, row.hbm_us, row.link_us, row.bound_us)]
        cells += [row.bound_by, _intensity(row.flop_per_byte)]
        if published:
            cells.append(_us(row.published_us) + (" *" if row.note else "  ") if row.published_us is not None else "-")
        table.add_row(Text(_label(_case_of(row, found))), *cells)
    if len(found.rows) > 1:
        table.add_row("geometric mean", "", "", "", _us(found.geomean_bound_us), style="bold")
    console.print(table, highlight=False)
    console.print()
    for line in _legend(found):
        console.print(Text(line), highlight=False)


def _legend(found: Roofline) -> list[str]:
    peaks = found.peaks
    ridge = peaks.flops_per_s / peaks.hbm_bytes_per_s
    letters = letters_text(_case_of(row, found) for row in found.rows)
    lines = [f"{letters}."] if letters else []
    lines += [
        "Times in us; the limit is the longest of arithmetic, memory and links. flop/B is",
        f"arithmetic a byte of memory traffic; memory binds it below {ridge:,.0f}.",
        f"One rank: {rate_text(peaks.flops_per_s)}FLOP/s, {rate_text(peaks.hbm_bytes_per_s)}B/s memory, "
        f"{rate_text(peaks.link_bytes_per_s)}B/s links,",
        f"{clean_line(peaks.source)}.",
    ]
    if any(row.published_us is not None for row in found.rows):
        lines.append(clean_line(f"published: {found.published_by} for {found.published_on}."))
    above = [row.published_ratio for row in found.rows if row.published_ratio is not None and row.note]
    if above:
        times = ", ".join(f"{ratio:.2f}" for ratio in above)
        lines += [f"* no limit there: {times} times ours.", "A fraction of it can pass 1."]
    return lines


def _case_of(row: Shape, found: Roofline) -> Case:
    return Case(kind="benchmark", params=row.params, seed=0, world_size=found.world_size, short=found.short)


def _label(case: Case) -> str:
    return case_label(CaseResult(case=case, outcome=NotRun()))


def _intensity(flop_per_byte: float | None) -> str:
    if flop_per_byte is None:
        return "-"
    return f"{flop_per_byte:,.0f}" if flop_per_byte >= 10 else f"{flop_per_byte:.1f}"


def _us(value_us: float) -> str:
    """To two decimals below 1000, as the published tables have it."""
    return f"{value_us:.2f}" if value_us < 1000 else f"{value_us:,.0f}"
