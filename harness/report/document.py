"""What is shown, on whatever it is shown: a Document of tables, facts, prose and evidence. report.render shows it.

A text is ours, a str in which `backticks` mark what can be typed, or it is Untrusted: what a submission, an author, the
name of a file or a log says. `spans` makes either safe to show, and nothing else does. Renderers show what is Untrusted
literally: it can neither style a terminal nor format Markdown, nor pass for our words.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from harness.core.words import clean, clean_line, excerpt
from harness.judging.verdict import Ending
from harness.report.bars import Times

WIDEST = 100_000  # columns of a console; more than any has
FOLDED_CHARS = 12  # what a column that may be folded needs at least


@dataclass(frozen=True)
class UntrustedText:
    """A text that somebody else wrote. It is shown on one line."""

    text: str


@dataclass(frozen=True)
class Styled:
    """A text in a terminal's style (`bold`, `dim`, `bold red`)."""

    words: "Words"
    style: str


Words = str | UntrustedText | Styled | tuple["Words", ...]


@dataclass(frozen=True)
class Span:
    """A piece of text that is safe to show."""

    text: str
    style: str = ""
    is_ours: bool = True


def spans(words: Words, style: str = "") -> Iterator[Span]:
    """The pieces of a text, safe to show: here, and only here, control characters and escape sequences go."""
    if isinstance(words, str):
        yield Span(clean(words), style)
    elif isinstance(words, UntrustedText):
        yield Span(clean_line(words.text), style, is_ours=False)
    elif isinstance(words, Styled):
        yield from spans(words.words, words.style)
    else:
        for part in words:
            yield from spans(part, style)


def plain(words: Words) -> str:
    return "".join(span.text for span in spans(words))


@dataclass(frozen=True, kw_only=True)
class Block:
    """A part of a document. `close`: it stands directly under the one before."""

    close: bool = False


@dataclass(frozen=True)
class Heading(Block):
    words: Words


@dataclass(frozen=True)
class Prose(Block):
    """Lines of text, which are wrapped unless they are `whole`."""

    lines: tuple[Words, ...]
    style: str = ""
    whole: bool = field(default=False, kw_only=True)
    indent: int = field(default=0, kw_only=True)


def prose(*lines: Words, style: str = "", whole: bool = False, close: bool = False, indent: int = 0) -> Prose:
    return Prose(lines, style, whole=whole, close=close, indent=indent)


@dataclass(frozen=True)
class Facts(Block):
    """Names with what is said of each, one below the other. Lines are wrapped unless they are `whole`."""

    rows: tuple[tuple[Words, Words], ...]
    whole: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class EvidenceBlock(Block):
    """Lines that a process left behind, its first `head` and its last ones, under a heading if there is one."""

    heading: Words
    text: str
    head: int = 0

    @property
    def lines(self) -> list[str]:
        """Those that are shown, safe to show."""
        return excerpt(self.text, self.head)


@dataclass(frozen=True)
class Figure(Block):
    """A drawing of ours as SVG, for formats that have drawings, and what it shows."""

    svg: str
    caption: str


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column. Numbers are aligned `right` and never wrapped; what is `whole` (ids, hashes, paths) is never broken;
    names of files and authors `folds` behind their parts at that many characters; what is `cut` ends where the terminal
    does. It is shown on terminals `least` to `most` columns wide; for want of room, the lowest `drop` goes first."""

    name: str
    right: bool = False
    whole: bool = False
    cut: bool = False
    folds: int = 0
    least: int = 0
    most: int = WIDEST
    drop: int = 0


def column(name: str, **options: Any) -> Column:
    """A column by its name: > before it aligns right, = keeps it whole, | cuts it at the end of the line."""
    text = name.lstrip(">=|")
    marks = name.removesuffix(text) if text else name
    return Column(name=text, right=">" in marks, whole="=" in marks, cut="|" in marks, **options)


def cells(*texts: str) -> list[Words]:
    """A row of texts that somebody else wrote."""
    return [UntrustedText(text) for text in texts]


@dataclass(frozen=True, kw_only=True)
class Bars:
    """What is drawn beside rows, by their numbers: how far submission and reference are from the limit."""

    rows: Mapping[int, Times]
    limit: str
    better: str
    note: str = ""


@dataclass(frozen=True)
class Table(Block):
    """Columns, by their names with `column`'s marks or as they are, and rows of cells. `styles` are of rows, by their
    numbers. `legend` says what columns mean, each behind its name (empty: whichever columns are shown); `letters`
    stands above it. `gap` is the space between columns."""

    columns: Sequence[str | Column]
    rows: Sequence[Sequence[Words]]
    styles: Mapping[int, str] = field(default_factory=dict, kw_only=True)
    legend: Sequence[tuple[str, str]] = field(default=(), kw_only=True)
    letters: str = field(default="", kw_only=True)
    bars: Bars | None = field(default=None, kw_only=True)
    gap: int = field(default=2, kw_only=True)

    @cached_property
    def laid(self) -> tuple[Column, ...]:
        made = tuple(one if isinstance(one, Column) else column(one) for one in self.columns)
        assert all(len(row) == len(made) for row in self.rows)
        return made

    @property
    def wide(self) -> list[int]:
        return [index for index, one in enumerate(self.laid) if one.most == WIDEST]


@dataclass(frozen=True, kw_only=True)
class TestCase:
    """A case for a test runner: `message` says in a line why it did not pass, `said` is what it printed."""

    __test__ = False  # it is no test of ours
    suite: str
    name: str
    ending: Ending = "passed"
    kind: str = ""
    message: str = ""
    text: str = ""
    said: str = ""
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Document:
    """What a verb shows: blocks in their order, or further documents. The `summary` ends it on a terminal, and begins
    it elsewhere, below its first heading. `cases` are for test runners, and `said` is what these print; `properties`
    name the run, and `started_at` (ISO 8601) says when it began."""

    blocks: tuple["Block | Document", ...]
    summary: Facts | Prose | None = None
    cases: tuple[TestCase, ...] = ()
    said: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    started_at: str = ""

    @property
    def flat(self) -> Iterator["Block | None"]:
        """All blocks in their order, those of further documents among them, each document's summary behind its own."""
        for one in (*self.blocks, self.summary):
            yield from one.flat if isinstance(one, Document) else (one,)
