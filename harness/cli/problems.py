"""The verb `problems`: what can be evaluated."""

import argparse
import functools
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.cli import result_files
from harness.cli.result_files import JsonFile
from harness.core.checkout import Checkout
from harness.core.errors import Exit, HarnessError, UsageError
from harness.core.words import clean
from harness.gpumode.folder import FILE
from harness.kinds import registry
from harness.problems.problem import Problem
from harness.problems.shape_file import problem_names
from harness.report.console import new_console
from harness.report.problems import show

DESCRIPTION = """List the problems and their suites: this checkout's, or the problem folders below PATH, good ones first
and then what is wrong with the others. Below 120 columns a problem takes one line; --json has everything."""
JSON_SCHEMA = 1  # of --json; 1: first


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `problems`."""
    parser.add_argument(
        "path",
        nargs="?",
        type=Path,
        help="a problem folder with KernelBot's task.yml, a "
        "problem file of another benchmark, or a folder that has such below",
    )
    result_files.add_json(parser)


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`problems`: prints a row for each."""
    if namespace.path is None:
        return _list(
            [functools.partial(registry.named, name, checkout) for name in problem_names(checkout)], namespace.json
        )
    places = [str(place.resolve()) for place in problems_below(namespace.path)]
    return _list([functools.partial(registry.find, place, checkout) for place in places], namespace.json)


def _list(readers: Sequence[Callable[[], Problem]], json: JsonFile | None) -> Exit:
    """Shows the problems that can be read, then what is wrong with each of the others. Returns the first bad one's
    exit code."""
    good: list[Problem] = []
    bad: list[HarnessError] = []
    for read in readers:
        try:
            good.append(read())
        except HarnessError as error:
            bad.append(error)
    code = bad[0].exit_code if bad else Exit.OK
    if json:
        json.write(to_json(good, bad))
        if json.is_stdout:
            return code
    if good:
        show(good, new_console())
    if good and bad:
        print()
    for wrong in bad:
        print(f"bad      {clean(str(wrong))}")
    return code


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
