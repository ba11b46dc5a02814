"""The verb `roofline`: the limit of every shape of a problem."""

import argparse

from harness.cli import options, result_files
from harness.core.checkout import Checkout
from harness.core.errors import Exit, UsageError
from harness.evaluation.roofline import peaks_of, roofline
from harness.kinds.registry import find
from harness.kinds.settings import MAX_RANKS
from harness.machine import peaks_cache
from harness.problems.problem import OFFICIAL
from harness.report.console import new_console
from harness.report.render import terminal
from harness.report.roofline import document_of, to_json

DESCRIPTION = "Print the limit of every benchmark shape (its roofline). It is computed; nothing is run."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb `roofline`."""
    options.add_problem(parser, "its name (see `problems`), or GPU MODE's name for it")
    parser.add_argument("--suite", default=OFFICIAL, metavar="S", help="which shapes (default: %(default)s)")
    parser.add_argument(
        "--hardware",
        metavar="NAME",
        help="mi300x, h200, ... (default: this machine's GPU, or its CPU as `eval` measured it)",
    )
    parser.add_argument("--ranks", type=int, metavar="N", help="how many GPUs (default: as the shapes say, 8)")
    result_files.add_json(parser)
    result_files.add_old_format(parser, "json")


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`roofline`: prints the limit of every benchmark shape."""
    named = options.problem_of(namespace)
    files = result_files.of(namespace)
    if named is None:
        raise UsageError("which problem? name it (`python -m harness problems` lists them)")
    problem = find(named, checkout)
    suite = problem.suite(namespace.suite)
    if namespace.ranks is not None:
        if not 1 <= namespace.ranks <= MAX_RANKS:
            raise UsageError(f"--ranks {namespace.ranks}: 1 to {MAX_RANKS} ranks can be asked for")
        suite = problem.with_world_size(suite, namespace.ranks)
    cached = peaks_cache.path(checkout.root, "cpu", suite.benchmarks[0].world_size)
    name, peaks = peaks_of(namespace.hardware, peaks_cache.load(cached))
    found = roofline(problem, suite, name, peaks)
    if files.json:
        files.json.write(to_json(found))
    if not files.take_stdout:
        terminal.show(document_of(found), new_console())
    return Exit.OK
