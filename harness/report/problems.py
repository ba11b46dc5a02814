"""The list of problems on a terminal."""

import re
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from harness.core.words import clean_line, cut_line, plain_table, print_all
from harness.problems.problem import Problem

WIDE = 120  # columns from which on there is room for more than a line a problem
SHOWN_CHARS = 200  # of a description: those of KernelBot's folders are pages
FIRST = re.compile(r"\S.*?\.(?=\s|$)")  # sentence


def show(problems: Sequence[Problem], console: Console) -> None:
    """Prints what there is: where it is narrow, a line each."""
    if console.width < WIDE:
        chars = max(len(one.name) for one in problems)
        for one in problems:
            name = clean_line(one.name).ljust(chars)
            print_all(console, Text(f"{name}  {cut_line(first_sentence(one.description), console.width - chars - 2)}"))
        return
    table = plain_table("=problem", "leaderboard", "suites", "what it is")
    for one in problems:
        what = cut_line(one.description, SHOWN_CHARS)
        cells = (one.name, one.leaderboard, ", ".join(one.suites), what)
        table.add_row(*(Text(clean_line(text)) for text in cells))
    print_all(console, table)


def first_sentence(text: str) -> str:
    """As far as its first full stop, without that; all of it where there is none."""
    line = clean_line(" ".join(text.split()))
    found = FIRST.match(line)
    return found[0][:-1] if found else line
