"""List the problems and their suites: this checkout's, or the problem folders and files below PATH, good ones first
and then what is wrong with the others. Below 120 columns a problem takes one line; --json has everything."""

import functools
import os
import re
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
        "a problem folder with KernelBot's task.yml, a problem file of another benchmark, or a folder that has such",
        metavar="path",
        default=None,
    )


def run(order: ProblemsOrder, checkout: Checkout) -> Exit:
    """`problems`: shows those that can be read, then what is wrong with each of the others. Returns the first bad
    one's exit code."""
    readers: list[Callable[[], Problem]]
    if order.path is None:
        readers = [functools.partial(registry.named, name, checkout) for name in problem_names(checkout)]
    else:
        places = [str(place.resolve()) for place in problems_below(order.path)]
        readers = [functools.partial(registry.find, place, checkout) for place in places]
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


def set_members(name: str) -> list[Path] | None:
    """The problems of the set at that path; None where it is one problem, or a problem's name. Raises UsageError for a
    folder without any."""
    path = Path(name).expanduser()
    return problems_below(path) if path.is_dir() and not registry.is_problem(path) else None


def problems_below(path: Path) -> list[Path]:
    """The problem folders and the problem files at and below the path, in order, numbers by their value; hidden ones
    are left out. Raises UsageError if there is none."""
    if registry.is_problem(path) and path.is_file():
        return [path]
    if not path.is_dir():
        what = "a file" if path.exists() else "no such folder"
        raise UsageError(
            f"{path}: {what}; name a folder with problem folders (task.yml), or problem files of another benchmark, in "
            "or below it. The problems of a competition file are listed by `python -m harness competition FILE --list`"
        )
    found: list[Path] = []
    for folder, names, files in os.walk(path):
        names[:] = sorted((name for name in names if not name.startswith(".")), key=_in_order)
        if FILE in files:
            found.append(Path(folder))
        else:
            inside = [Path(folder, name) for name in sorted(files, key=_in_order) if not name.startswith(".")]
            found += filter(registry.is_problem, inside)
    if not found:
        raise UsageError(
            f"{path}: nothing at or below it is a problem: no folder has a {FILE}, and no file is a problem of "
            "KernelBench, ParallelKernelBench or FlashInfer-Trace"
        )
    return found


def _in_order(name: str) -> list[tuple[int, str]]:
    """A key by which `9_x` comes before `10_x`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
