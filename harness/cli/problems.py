"""The verb `problems`: what can be evaluated."""

import argparse
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.cli import result_files
from harness.cli.result_files import JsonFile
from harness.core.checkout import Checkout
from harness.core.errors import Exit, HarnessError, UsageError
from harness.gpumode.folder import FILE
from harness.kinds import registry
from harness.problems.problem import Problem
from harness.problems.shape_file import problem_names
from harness.report.console import new_console
from harness.report.problems import document_of
from harness.report.render import terminal

DESCRIPTION = """List the problems and their suites: this checkout's, or the problem folders below PATH, good ones first
and then what is wrong with the others. Below 120 columns a problem takes one line; --json has everything."""
JSON_SCHEMA = 1  # of --json; 1: first


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `problems`."""
    parser.add_argument(
        "path", nargs="?", type=Path, help="a problem folder with KernelBot's task.yml, or a folder that has such below"
    )
    result_files.add_json(parser)


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`problems`: prints a row for each."""
    if namespace.path is None:
        return _list(
            [functools.partial(registry.named, name, checkout) for name in problem_names(checkout)], namespace.json
        )
    folders = [str(folder.resolve()) for folder in folders_below(namespace.path)]
    return _list([functools.partial(registry.find, folder, checkout) for folder in folders], namespace.json)


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
    terminal.show(document_of(good, bad), new_console())
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
