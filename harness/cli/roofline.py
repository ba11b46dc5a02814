"""The verb `roofline`: the bound of every shape of a problem."""

import argparse
import json
from typing import get_args

from rich.console import Console

from harness.core.records import Exit, UsageError
from harness.kinds.registry import find
from harness.kinds.settings import MAX_RANKS
from harness.problems.problem import OFFICIAL
from harness.report.roofline import Format, peaks_of, roofline, show, to_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb `roofline`."""
    parser.add_argument("problem", help="its name (see `problems`), or GPU MODE's name for it")
    parser.add_argument("--suite", default=OFFICIAL, metavar="S", help="which shapes (default: %(default)s)")
    parser.add_argument("--hardware", metavar="NAME", help="mi300x, h200, ... (default: this machine's own GPU)")
    parser.add_argument("--ranks", type=int, metavar="N", help="how many GPUs (default: as the shapes say, 8)")
    parser.add_argument("--format", default="table", choices=get_args(Format))


def run(options: argparse.Namespace) -> Exit:
    """`roofline`: prints the bound of every benchmark shape."""
    problem = find(options.problem)
    suite = problem.suite(options.suite)
    if options.ranks is not None:
        if not 1 <= options.ranks <= MAX_RANKS:
            raise UsageError(f"--ranks {options.ranks}: 1 to {MAX_RANKS} ranks can be asked for")
        suite = problem.with_world_size(suite, options.ranks)
    name, peaks = peaks_of(options.hardware)
    found = roofline(problem, suite, name, peaks)
    if options.format == "json":
        print(json.dumps(to_json(found), indent=2))
    else:
        show(found, Console())
    return Exit.OK
