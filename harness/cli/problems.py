"""The verb `problems`: what can be evaluated."""

import argparse

from rich.console import Console

from harness.core.checkout import Checkout
from harness.core.errors import Exit
from harness.problems.shape_file import find, problem_names
from harness.report import terminal

DESCRIPTION = "List the problems and their suites."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `problems`: none."""


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`problems`: prints a row for each."""
    found = [find(name, checkout) for name in problem_names(checkout)]
    rows = [(problem.name, problem.leaderboard, problem.description, list(problem.suites)) for problem in found]
    Console().print(terminal.problems_table(rows))
    return Exit.OK
