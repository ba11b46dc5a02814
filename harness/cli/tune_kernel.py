"""The verb `tune-kernel`: finds a submission's blocks for the GPU at hand."""

import argparse
import sys

from harness.cli import options
from harness.core.checkout import Checkout
from harness.core.errors import Exit, UsageError
from harness.kinds.registry import find
from harness.problems.problem import OFFICIAL
from harness.report.console import new_console
from harness.report.kernel_tuning import show
from harness.tuning import tuner
from harness.tuning.records import PAUSE
from harness.tuning.tuner import PREDICTED, TuneRequest

DESCRIPTION = """Find the blocks of a submission's kernels for the GPU at hand. The submission's space.py names the rows
to try. Rows that are predicted to be slow (by their operations, bytes, and how their tiles fill the chip) are pruned,
the rest are compiled, checked and measured, the best prediction first, until nothing better comes for a while or the
time is over. Calls come one at a time with pauses, as in evaluations. The best rows are measured in turn with the
problem's reference. What was measured is kept under .cache/tune, so that the next run goes on from there."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb `tune-kernel`."""
    options.add_problem(parser, "its name (see `problems`)")
    parser.add_argument("--suite", default=OFFICIAL, metavar="S", help="whose benchmarks (default: %(default)s)")
    parser.add_argument(
        "--shapes", type=int, nargs="+", default=[], metavar="I", help="which of them, from 0 (default: all)"
    )
    parser.add_argument(
        "--seconds", type=float, default=600.0, metavar="S", help="stop after so many seconds (default: %(default)g)"
    )
    parser.add_argument(
        "--at-most", type=int, default=24, metavar="N", help="measure at most N rows a shape (default: %(default)s)"
    )
    parser.add_argument(
        "--pause",
        type=float,
        default=PAUSE,
        metavar="X",
        help="let the GPU rest before each call, X times as long as the call before took, so that it is as cool as in "
        "evaluations (default: %(default)g); 0: calls follow each other at once",
    )
    parser.add_argument(
        "--write", action="store_true", help="write the best rows into the tuning table (default: only show them)"
    )
    parser.add_argument(
        "--predict",
        choices=sorted(PREDICTED),
        default="",
        metavar="CHIP",
        help=f"show what would be measured on that chip ({', '.join(sorted(PREDICTED))}); needs no GPU",
    )


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`tune-kernel`: measures, shows, writes; Exit.INVALID where a shape has no right row."""
    named = options.problem_of(namespace)
    if named is None:
        raise UsageError("which problem? name it (`python -m harness problems` lists them)")
    if not 0 < namespace.seconds < 1e6:
        raise UsageError(f"--seconds {namespace.seconds:g}: a number above 0 is needed")
    if namespace.at_most < 1:
        raise UsageError(f"--at-most {namespace.at_most}: 1 or more rows can be measured")
    if not 0 <= namespace.pause < 1e3:
        raise UsageError(f"--pause {namespace.pause:g}: 0 or a number above it is needed")
    problem = find(named, checkout)
    asked = TuneRequest(
        suite=namespace.suite,
        places=tuple(namespace.shapes),
        seconds=namespace.seconds,
        at_most=namespace.at_most,
        pause=namespace.pause,
        chip=namespace.predict,
        write=namespace.write,
    )
    found = tuner.tune(problem, asked, checkout, lambda text: print(text, file=sys.stderr, flush=True))
    show(found, problem.short, new_console())
    return Exit.OK if all(case.best for case in found.cases) else Exit.INVALID
