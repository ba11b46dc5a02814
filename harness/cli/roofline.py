"""Print the limit of every benchmark shape (its roofline). It is computed; nothing is run."""

from dataclasses import dataclass

from harness.cli import options, result_files
from harness.cli.declare import option
from harness.core.checkout import Checkout
from harness.core.decode import encode
from harness.core.errors import Exit, UsageError
from harness.evaluation.roofline import peaks_of, roofline
from harness.kinds.registry import find
from harness.kinds.settings import MAX_RANKS
from harness.machine import peaks_cache
from harness.problems.problem import OFFICIAL
from harness.report.roofline import document_of

JSON_SCHEMA = 1  # of --json; 1: first


@dataclass(frozen=True, kw_only=True)
class RooflineOrder(result_files.WithFiles):
    problem: str = options.problem(options.NAMED, options.WHICH)
    suite: str = option(OFFICIAL, "which shapes (default: %(default)s)", metavar="S")
    hardware: str | None = option(
        None, "mi300x, h200, ... (default: this machine's GPU, or its CPU as `eval` measured it)", metavar="NAME"
    )
    ranks: int | None = option(None, "how many GPUs (default: as the shapes say, 8)")
    format: str | None = result_files.old_format("json")


def run(order: RooflineOrder, checkout: Checkout) -> Exit:
    problem = find(order.problem, checkout)
    suite = problem.suite(order.suite)
    if order.ranks is not None:
        if not 1 <= order.ranks <= MAX_RANKS:
            raise UsageError(f"--ranks {order.ranks}: 1 to {MAX_RANKS} ranks can be asked for")
        suite = problem.with_world_size(suite, order.ranks)
    problem.cost(suite.benchmarks[0])  # which is refused before a GPU is asked for, where nothing says what calls cost
    cached = peaks_cache.path(checkout.root, "cpu", suite.benchmarks[0].world_size)
    name, peaks = peaks_of(order.hardware, peaks_cache.load(cached))
    found = roofline(problem, suite, name, peaks)
    return result_files.tell(order, document_of(found), json=lambda: {"schema": JSON_SCHEMA} | encode(found))
