"""A document on a terminal, or in a log.

Everything reads at 80 columns and without colour: no boxes, no symbol outside ASCII of our own but for bars, which are
drawn where there is room, in ASCII where the console's encoding has no more. Where there is little room, columns are
left out. On a console that is no terminal, rich leaves colours out, and so it does where NO_COLOR is set.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from harness.core.words import cut_line, name_lines
from harness.report.bars import ASCII, UNICODE, Marks, Part, axis, parts
from harness.report.document import (
    FOLDED_CHARS,
    Bars,
    Column,
    Document,
    EvidenceBlock,
    Facts,
    Figure,
    Heading,
    Prose,
    Table,
    Words,
    plain,
    spans,
)

BAR_CHARS = (20, 40)  # columns of a bar, at least and at most
BAR_STYLES: dict[Part, str] = {"limit": "red", "line": "cyan", "own": "bold cyan", "both": "bold cyan"}


def show(found: Document, console: Console, quiet: bool = False) -> None:
    """Prints the document, with an empty line between blocks; where `quiet`, its summary alone."""
    for index, (block, is_close) in enumerate(_blocks(found, quiet)):
        if index and not is_close:
            console.print()
        _print(block, console)


def _blocks(found: Document, quiet: bool) -> Iterator[tuple[object, bool]]:
    """Every block in order, the summary last, and whether it stands close to the one before."""
    before: object = None
    for block in (*found.blocks, *([found.summary] if found.summary else [])):
        if isinstance(block, Document):
            for index, (inner, is_close) in enumerate(_blocks(block, quiet)):
                yield inner, quiet or (is_close and index > 0)
        elif isinstance(block, Figure) or (quiet and found.summary and block is not found.summary):
            continue
        else:
            yield block, block.close or isinstance(before, Heading) or isinstance(block, EvidenceBlock)
        before = block


def _print(block: object, console: Console) -> None:
    match block:
        case Heading(words=words):
            console.print(text_of(words, "bold"), highlight=False)
        case Prose(lines=lines, style=style, whole=True, indent=indent):
            for line in lines:
                _line(Text(" " * indent) + text_of(line, style), console)
        case Prose(lines=lines, style=style, indent=indent):
            for line in lines:
                console.print(Padding(text_of(line, style), (0, 0, 0, indent), expand=False), highlight=False)
        case Facts(rows=rows, whole=True):
            width = max((len(plain(name)) for name, _ in rows), default=0) + 2
            for name, words in rows:
                label = text_of(name, "bold")
                label.pad_right(width - label.cell_len)
                _line(label + text_of(words), console)
        case Facts(rows=rows):
            grid = Grid.grid(padding=(0, 2))
            grid.add_column(no_wrap=True)
            grid.add_column(overflow="fold")
            for name, words in rows:
                grid.add_row(text_of(name), text_of(words))
            console.print(grid, highlight=False)
        case EvidenceBlock(heading=heading, lines=lines):
            if heading:
                _line(Text.assemble("  ", text_of(heading), ":"), console)
            _line(Text("\n".join(f"  | {line}" for line in lines), style="dim"), console)
        case Table():
            _print_table(block, console)


def _line(text: Text, console: Console) -> None:
    console.print(text, highlight=False, soft_wrap=True)


def text_of(words: Words, style: str = "") -> Text:
    return Text.assemble(*((span.text, span.style) for span in spans(words, style)))


# ---- tables ----------------------------------------------------------------------------------------------------------
def _print_table(found: Table, console: Console) -> None:
    """Prints the columns for which there is room, with bars where there is more, and what is said below them."""
    fit = [index for index, one in enumerate(found.laid) if one.least <= console.width <= one.most]
    shown = _with_room(found, fit, console.width)
    columns = [found.laid[index] for index in shown]
    rows = [[_cell(row[index], found.laid[index]) for index in shown] for row in found.rows]
    for index, one in enumerate(columns):
        if one.cut:
            others = sum(_width(columns, rows, other) + found.gap for other in range(len(columns)) if other != index)
            for row in rows:
                row[index] = Text(cut_line(row[index].plain, max(console.width - others, FOLDED_CHARS)))
    drawn, said = _drawn(columns, rows, found), ""
    if found.bars and found.bars.rows and shown == fit:
        room = console.width - found.gap - Measurement.get(console, console.options.update(width=10_000), drawn).maximum
        if room >= BAR_CHARS[0]:
            name, bars = _bars(found.bars, min(room, BAR_CHARS[1]), len(rows), console)
            rows = [[*row, bar] for row, bar in zip(rows, bars, strict=True)]
            drawn, said = _drawn([*columns, Column(name=name, cut=True)], rows, found), _bars_said(found.bars, console)
    console.print(drawn, highlight=False, crop=not any(one.whole for one in columns))
    names = {one.name for one in columns}
    legend = "; ".join(text for name, text in found.legend if not name or name in names)
    if below := "\n".join(filter(None, (found.letters, f"{legend}." if legend else "", said))):
        console.print()
        console.print(text_of(below, "dim"), highlight=False)


def _with_room(found: Table, fit: Sequence[int], width: int) -> list[int]:
    """Those of the columns for which there is room; what says least goes first."""
    shown = list(fit)
    cells = [[_cell(cell, one) for cell, one in zip(row, found.laid, strict=True)] for row in found.rows]
    widths = [_width(found.laid, cells, index) for index in range(len(found.laid))]
    for index in sorted((index for index in fit if found.laid[index].drop), key=lambda at: found.laid[at].drop):
        if sum(widths[other] + found.gap for other in shown) - found.gap > width:
            shown.remove(index)
    return shown


def _width(columns: Sequence[Column], rows: Sequence[Sequence[Text]], index: int) -> int:
    """What a column takes; one that can be folded, at least."""
    lines = [line for row in rows for line in row[index].plain.split("\n")]
    width = max([len(columns[index].name), *map(cell_len, lines)])
    return width if columns[index].right or columns[index].whole else min(width, FOLDED_CHARS)


def _cell(words: Words, of: Column) -> Text:
    text = text_of(words)
    if of.folds:
        return Text("\n".join(name_lines(line, of.folds) for line in text.plain.split("\n")), text.style)
    return text


def _drawn(columns: Sequence[Column], rows: Sequence[Sequence[Text]], found: Table) -> Grid:
    """A table without lines. What is whole keeps its width, also beyond the terminal's."""
    drawn = Grid(box=None, padding=(0, found.gap, 0, 0), pad_edge=False, header_style="bold")
    for index, one in enumerate(columns):
        least = _width(columns, rows, index) if one.whole else None
        justify: Any = "right" if one.right else "left"
        name, is_whole = text_of(one.name), one.right or one.cut
        drawn.add_column(name, justify=justify, no_wrap=is_whole, overflow="fold", min_width=least)
    for index, row in enumerate(rows):
        drawn.add_row(*row, style=found.styles.get(index, ""))
    return drawn


# ---- bars ------------------------------------------------------------------------------------------------------------
def _bars(bars: Bars, width: int, count: int, console: Console) -> tuple[str, list[Text]]:
    """The name of the column, and a bar for each of `count` rows."""
    on, marks = axis(list(bars.rows.values()), width), _marks(console)
    drawn = [
        Text.assemble(*((marks[part], BAR_STYLES.get(part, "")) for part in parts(bars.rows[index], on)))
        if index in bars.rows
        else Text()
        for index in range(count)
    ]
    most = f"{on.most:,.1f}" if on.most < 9.95 else f"{on.most:,.0f}"
    return f"1x to {most}x the {bars.limit if on.of_bound else bars.better}", drawn


def _bars_said(bars: Bars, console: Console) -> str:
    marks = _marks(console)
    of_bound = all(one.bound is not None for one in bars.rows.values())
    limit = f"{marks['limit']} {bars.limit}, " if of_bound else ""
    told = f"{limit}{marks['own']} submission, {marks['ref']} reference, {marks['both']} both"
    return f"Bars, on a log axis{bars.note}: {told}; left is {bars.better}."


def _marks(console: Console) -> Marks:
    """Those that the console's encoding has."""
    try:
        "".join(UNICODE.values()).encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE
