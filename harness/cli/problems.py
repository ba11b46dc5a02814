"""List the problems and their suites: this checkout's, or the problem folders below PATH, good ones first
and then what is wrong with the others. Below 120 columns a problem takes one line; --json has everything."""

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.cli import result_files
from harness.cli.declare import argument
from harness.core.checkout import Checkout
from harness.core.errors import Exit, HarnessError, UsageError
from harness.gpumode.folder import FILE
from harness.kinds import registry
from harness.problems.problem import Problem
from harness.problems.shape_file import problem_names
from harness.report.problems import document_of

JSON_SCHEMA = 1  # of --json; 1: first


@dataclass(frozen=True, kw_only=True)
class ProblemsOrder(result_files.WithFiles):
    """Where the problems are, None for the checkout's."""

    path: Path | None = argument(
        "a problem folder with KernelBot's task.yml, or a folder that has such below", metavar="path", default=None
    )


def run(order: ProblemsOrder, checkout: Checkout) -> Exit:
    """`problems`: shows those that can be read, then what is wrong with each of the others. Returns the first bad
    one's exit code."""
    readers: list[Callable[[], Problem]]
    if order.path is None:
        readers = [functools.partial(registry.named, name, checkout) for name in problem_names(checkout)]
    else:
        folders = [str(folder.resolve()) for folder in folders_below(order.path)]
        readers = [functools.partial(registry.find, folder, checkout) for folder in folders]
    good: list[Problem] = []
    bad: list[HarnessError] = []
    for read in readers:
        try:
            good.append(read())
        except HarnessError as error:
            bad.append(error)
    result_files.tell(order, document_of(good, bad), json=lambda: to_json(good, bad))
    return bad[0].exit_code if bad else Exit.OK


def to_json(good: Sequence[Problem], bad: Sequence[HarnessError]) -> dict[str, Any]:
    """The object of --json."""
    problems = [
        {
            "problem": one.name,
            "leaderboard": one.leaderboard,
            "description": one.description,
            "suites": {name: suite.description for name, suite in one.suites.items()},
        }
        for one in good
    ]
    return {"schema": JSON_SCHEMA, "problems": problems, "bad": [str(wrong) for wrong in bad]}


def folders_below(path: Path) -> list[Path]:
    """The folders with a task.yml at and below the path, in order; hidden ones are left out. Raises UsageError if there
    is none."""
    if not path.is_dir():
        what = "a file" if path.exists() else "no such folder"
        raise UsageError(
            f"{path}: {what}; name a folder with problem folders (task.yml) in or below it. The problems of a "
            "competition file are listed by `python -m harness competition FILE --list`"
        )
    found = []
    for folder, names, files in os.walk(path):
        names[:] = sorted(name for name in names if not name.startswith("."))
        if FILE in files:
            found.append(Path(folder))
    if not found:
        raise UsageError(f"{path}: no folder at or below it has a {FILE}, so there is no problem of KernelBot's format")
    return found
