"""Find the blocks of a submission's kernels for the GPU at hand. The submission's space.py names the rows
to try. Rows that are predicted to be slow (by their operations, bytes, and how their tiles fill the chip) are pruned,
the rest are compiled, checked and measured, the best prediction first, until nothing better comes for a while or the
time is over. Calls come one at a time with pauses, as in evaluations. The best rows are measured in turn with the
problem's reference. What was measured is kept under .cache/tune, so that the next run goes on from there."""

import sys
from dataclasses import dataclass

from harness.cli import options
from harness.cli.declare import option
from harness.core.checkout import Checkout
from harness.core.decode import part
from harness.core.errors import Exit, UsageError
from harness.kinds.registry import find
from harness.problems.problem import OFFICIAL
from harness.report.console import new_console
from harness.report.kernel_tuning import document_of
from harness.report.render import terminal
from harness.tuning import tuner
from harness.tuning.records import PAUSE
from harness.tuning.tuner import PREDICTED, TuneRequest


@dataclass(frozen=True, kw_only=True)
class TuneKernelOrder:
    problem: str = options.problem("its name (see `problems`)", options.WHICH)
    suite: str = option(OFFICIAL, "whose benchmarks (default: %(default)s)", metavar="S")
    places: tuple[int, ...] = option((), "which of them, from 0 (default: all)", "--shapes", nargs="+", metavar="I")
    seconds: float = option(600.0, "stop after so many seconds (default: %(default)g)", metavar="S")
    at_most: int = option(24, "measure at most N rows a shape (default: %(default)s)")
    pause: float = option(
        PAUSE,
        "let the GPU rest before each call, X times as long as the call before took, so that it is as cool as in "
        "evaluations (default: %(default)g); 0: calls follow each other at once",
        metavar="X",
    )
    write: bool = option(False, "write the best rows into the tuning table (default: only show them)")
    chip: str = option(
        "",
        f"show what would be measured on that chip ({', '.join(sorted(PREDICTED))}); needs no GPU",
        "--predict",
        choices=sorted(PREDICTED),
        metavar="CHIP",
    )


def run(order: TuneKernelOrder, checkout: Checkout) -> Exit:
    """`tune-kernel`: measures, shows, writes; Exit.INVALID where a shape has no right row."""
    if not 0 < order.seconds < 1e6:
        raise UsageError(f"--seconds {order.seconds:g}: a number above 0 is needed")
    if order.at_most < 1:
        raise UsageError(f"--at-most {order.at_most}: 1 or more rows can be measured")
    if not 0 <= order.pause < 1e3:
        raise UsageError(f"--pause {order.pause:g}: 0 or a number above it is needed")
    problem = find(order.problem, checkout)
    found = tuner.tune(
        problem, part(order, TuneRequest), checkout, lambda text: print(text, file=sys.stderr, flush=True)
    )
    terminal.show(document_of(found, problem.short), new_console())
    return Exit.OK if all(case.best for case in found.cases) else Exit.INVALID
