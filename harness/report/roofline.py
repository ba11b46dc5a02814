"""The verb `roofline` as a document and as JSON; harness.evaluation.roofline computes what it shows."""

from harness.core.records import Case
from harness.core.words import count_text, rate_text
from harness.evaluation.roofline import Roofline, Shape
from harness.report.document import Document, Heading, Styled, Table, UntrustedText, Words, prose
from harness.report.evaluation import letters_text


def document_of(found: Roofline) -> Document:
    title = (f"  suite {found.suite}, {count_text(found.world_size, 'rank')} on ", UntrustedText(found.hardware))
    published = any(row.published_us is not None for row in found.rows)
    rows: list[list[Words]] = []
    for row in found.rows:
        cells = [_us(value) for value in (row.flops_us, row.hbm_us, row.link_us, row.bound_us)]
        cells += [row.bound_by, _intensity(row.flop_per_byte)]
        if published:
            cells.append(_us(row.published_us) + (" *" if row.note else "  ") if row.published_us is not None else "-")
        rows.append([UntrustedText(_case_of(row, found).title), *cells])
    styles = {}
    if len(rows) > 1:
        styles[len(rows)] = "bold"
        rows.append(["geometric mean", "", "", "", _us(found.geomean_bound_us), "", "", *([""] if published else [])])
    names = ("shape", ">flops", ">hbm", ">link", ">limit", "by", ">flop/B", *([">published"] if published else []))
    heading = Heading((found.problem, Styled(title, "")))
    return Document(blocks=(heading, Table(names, rows, styles=styles, close=True, gap=1), prose(*_legend(found))))


def _legend(found: Roofline) -> list[Words]:
    peaks = found.peaks
    ridge = peaks.flops_per_s / peaks.hbm_bytes_per_s
    letters = letters_text(_case_of(row, found) for row in found.rows)
    lines: list[Words] = [f"{letters}."] if letters else []
    rates = f"{rate_text(peaks.flops_per_s)}FLOP/s, {rate_text(peaks.hbm_bytes_per_s)}B/s memory, "
    lines += [
        "Times in us; the limit is the longest of arithmetic, memory and links. flop/B is arithmetic a byte of memory "
        f"traffic; memory binds it below {ridge:,.0f}.",
        (f"One rank: {rates}{rate_text(peaks.link_bytes_per_s)}B/s links, ", UntrustedText(peaks.source), "."),
    ]
    if any(row.published_us is not None for row in found.rows):
        lines.append(UntrustedText(f"published: {found.published_by} for {found.published_on}."))
    above = [row.published_ratio for row in found.rows if row.published_ratio is not None and row.note]
    if above:
        times = ", ".join(f"{ratio:.2f}" for ratio in above)
        lines.append(f"* no limit: {times} times ours; a kernel can be faster.")
    return lines


def _case_of(row: Shape, found: Roofline) -> Case:
    return Case(kind="benchmark", params=row.params, seed=0, world_size=found.world_size, short=found.short)


def _intensity(flop_per_byte: float | None) -> str:
    if flop_per_byte is None:
        return "-"
    return f"{flop_per_byte:,.0f}" if flop_per_byte >= 10 else f"{flop_per_byte:.1f}"


def _us(value_us: float) -> str:
    """To two decimals below 1000, as the published tables have it."""
    return f"{value_us:.2f}" if value_us < 1000 else f"{value_us:,.0f}"
