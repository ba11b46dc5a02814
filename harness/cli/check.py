"""The verb `check`: the tests of a suite, without timing."""

import argparse

from harness.cli import options
from harness.cli.eval import LINES, Options, evaluate
from harness.core.checkout import Checkout
from harness.core.errors import Exit

DESCRIPTION = "Is it right? Runs the tests only; nothing is timed or recorded."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `check`."""
    options.add_file(parser)
    options.add_setting(parser, cpu_suite="quick")
    options.add_evaluator(parser)
    options.add_unconfined(parser)
    options.add_quiet(parser, LINES)


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`check`: tests the submission and shows the report."""
    order = Options(asked=options.asked(namespace), mode="test", quiet=namespace.quiet, json=namespace.json)
    return evaluate(order, checkout)
