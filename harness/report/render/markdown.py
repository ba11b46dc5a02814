"""A document as Markdown, for a pull request's comment or the page of a CI job.

What is Untrusted stands in code spans and fences, and literally in tables: there it can neither format the text nor
mention anybody.
"""

import re
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter

from harness.core.words import clean_line, literal
from harness.report.document import Document, EvidenceBlock, Facts, Figure, Heading, Prose, Table, Words, plain, spans

TYPED = re.compile(r"(`[^`]*`)")  # in a text of ours


def text(found: Document) -> str:
    """The document; its summary stands below its first heading and the lines under that, its properties at the end."""
    lines = [*_lines(found), *(f"- {name} {code(clean_line(value))}" for name, value in found.properties.items())]
    return "\n".join(lines).strip("\n") + "\n"


def _lines(found: Document) -> Iterator[str]:
    blocks = list(found.blocks)
    head = next((index for index, one in enumerate(blocks) if not isinstance(one, Heading | Prose)), len(blocks))
    head = min(head, 2 if isinstance(blocks[0], Heading) else 0) if blocks else 0
    for block in (*blocks[:head], *([found.summary] if found.summary else []), *blocks[head:]):
        yield from _lines(block) if isinstance(block, Document) else _block(block)


def _block(block: object) -> Iterator[str]:
    match block:
        case Figure() | None:
            return
        case Heading(words=words):
            yield f"### {_words(words)}"
        case Prose(lines=lines):
            yield from ["  \n".join(map(_words, lines))] if lines else []
        case Facts(rows=rows):
            yield from (f"- **{_words(name)}** {_words(words)}" for name, words in rows)
        case EvidenceBlock(heading=heading):
            yield from [f"{_words(heading)}:", ""] if heading else []
            yield from fenced("\n".join(block.lines))
        case Table():
            yield from _table(block)
    yield ""


def _table(found: Table) -> Iterator[str]:
    """As for a terminal that is as wide as can be."""
    columns = [found.laid[index] for index in found.wide]
    yield f"| {' | '.join(literal(one.name) for one in columns)} |"
    yield f"| {' | '.join('---:' if one.right else '---' for one in columns)} |"
    for row in found.rows:
        yield f"| {' | '.join(literal(plain(row[index])) for index in found.wide)} |"
    if found.letters or found.legend:
        said = f"{'; '.join(part for _, part in found.legend)}." if found.legend else ""
        yield ""
        yield "  \n".join(literal(one) for one in (found.letters, said) if one)


def _words(words: Words) -> str:
    runs = groupby(spans(words), attrgetter("is_ours"))
    parts = ((is_ours, "".join(span.text for span in run)) for is_ours, run in runs)
    return "".join(_ours(part) if is_ours else code(part) for is_ours, part in parts)


def _ours(text: str) -> str:
    """Our own text: what stands in backticks is code, and all else is literal."""
    return "".join(part if TYPED.fullmatch(part) else literal(part) for part in TYPED.split(text))


def code(line: str) -> str:
    """A code span. The ticks around it are more than any in it."""
    ticks = _ticks(line, 1)
    space = " " if "`" in line else ""
    return f"{ticks}{space}{line}{space}{ticks}" if line else "-"


def fenced(text: str) -> list[str]:
    """A block of text in a fence of more ticks than any in it."""
    ticks = _ticks(text, 3)
    return [f"{ticks}text", text, ticks]


def _ticks(text: str, least: int) -> str:
    return "`" * max(least, 1 + max(map(len, re.findall("`+", text)), default=0))
