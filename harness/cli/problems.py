"""List the problems and their suites: this checkout's, or the problem folders and files below PATH, good ones first
and then what is wrong with the others. Below 120 columns a problem takes one line; --json has everything."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.cli import result_files
from harness.cli.declare import argument
from harness.core.checkout import Checkout
from harness.core.errors import Exit, HarnessError
from harness.kinds.registry import find, named, problems_below
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
    """`problems`: shows what can be read, then what is wrong with the others. The first bad one's exit code."""
    readers: list[Callable[[], Problem]]
    if order.path is None:
        readers = [functools.partial(named, name, checkout) for name in problem_names(checkout)]
    else:
        places = [str(place.resolve()) for place in problems_below(order.path)]
        readers = [functools.partial(find, place, checkout) for place in places]
    good: list[Problem] = []
    bad: list[HarnessError] = []
    for read in readers:
        try:
            good.append(read())
        except HarnessError as error:
            bad.append(error)
    code = bad[0].exit_code if bad else Exit.OK
    return result_files.tell(order, document_of(good, bad), code, json=lambda: to_json(good, bad))


def to_json(good: Sequence[Problem], bad: Sequence[HarnessError]) -> dict[str, Any]:
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
