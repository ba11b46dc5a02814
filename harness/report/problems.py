"""The list of problems."""

import re
from collections.abc import Sequence

from harness.core.words import clean_line, cut_line
from harness.problems.problem import Problem
from harness.report.document import Block, Document, Table, UntrustedText, cells, column, prose

WIDE = 120  # columns from which on there is room for more than a line a problem
SHOWN_CHARS = 200  # of a description: those of KernelBot's folders are pages
FIRST = re.compile(r"\S.*?\.(?=\s|$)")  # sentence


def document_of(problems: Sequence[Problem], bad: Sequence[Exception] = ()) -> Document:
    """What there is: where it is narrow, a line each; and what is wrong with others."""
    columns = ("=problem", column("|what it is", most=WIDE - 1), column("leaderboard", least=WIDE),
               column("suites", least=WIDE), column("what it is", least=WIDE))  # fmt: skip
    rows = []
    for one in problems:
        what = cut_line(one.description, SHOWN_CHARS)
        texts = (one.name, first_sentence(one.description), one.leaderboard, ", ".join(one.suites), what)
        rows.append(cells(*texts))
    blocks: list[Block] = [Table(columns, rows)] if rows else []
    blocks += [prose(*(UntrustedText(f"bad      {wrong}") for wrong in bad), whole=True)] if bad else []
    return Document(blocks=tuple(blocks))


def first_sentence(text: str) -> str:
    """As far as its first full stop, without that; all of it where there is none."""
    line = clean_line(" ".join(text.split()))
    found = FIRST.match(line)
    return found[0][:-1] if found else line
