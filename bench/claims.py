"""What claims gain, by the rules of harness/ranks/witness.py, on calls that this machine has just timed.

    python bench/claims.py [--problem a2a] [--ranks 2] [--seconds 2] [--times 3]

Evaluates the reference against itself on CPU ranks and keeps what the parent saw of each timed call. What was seen does
not depend on what is claimed, so claims of any pattern can be put in the place of the ranks' own. Each shape is drawn
anew many times, as a shape of 16, 32 or 64 calls.
"""

import argparse
import math
import random
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from unittest import mock

from figures import ROOT, Cell, Figures, add_data_argument
from trust import HOSTILE, evaluated

from harness.core.checkout import Checkout
from harness.core.records import Measured
from harness.kinds.registry import find
from harness.machine import host
from harness.problems.submission import read_submission
from harness.ranks.clocks import Samples
from harness.ranks.wire import CallSample
from harness.ranks.witness import EachCall, Turn, wall_us

DRAWS = 40  # of each shape
CALLS = (16, 32, 64)
LEAST_US, LEFT_US = 1.0, 20.0  # a call claims at least so much, and leaves so much of its turn unclaimed

# What call number `at` claims, of one that takes `true_us` in a turn of `seen_us`.
CLAIMS: dict[str, Callable[[int, float, float], float]] = {
    "the truth": lambda at, true_us, seen_us: true_us,
    "nine tenths": lambda at, true_us, seen_us: 0.9 * true_us,
    "a quarter": lambda at, true_us, seen_us: 0.25 * true_us,
    "a twentieth in two of three": lambda at, true_us, seen_us: true_us if at % 3 == 2 else true_us / 20,
    "0.7 and 1.3 by turns": lambda at, true_us, seen_us: (0.7, 1.3)[at % 2] * true_us,
    "0.5 and 1.5 by turns": lambda at, true_us, seen_us: (0.5, 1.5)[at % 2] * true_us,
    "0.1 and 1.9 by turns": lambda at, true_us, seen_us: (0.1, 1.9)[at % 2] * true_us,
    "0.05, and all of the turn, by turns": lambda at, true_us, seen_us: (true_us / 20, seen_us)[at % 2],
}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The turns of one shape, and of the idle calls beside them."""

    own: list[Turn]
    ref: list[Turn]
    idle: list[Turn]


@contextmanager
def kept(shapes: list[Shape]) -> Iterator[None]:
    """Keeps the turns of each shape that is measured within."""
    measured = Samples.measured

    def keeping(samples: Samples) -> Measured:
        witness = samples.witnesses["wall"]
        shapes.append(Shape(own=witness.own, ref=witness.ref, idle=witness.idle))
        return measured(samples)

    with mock.patch.object(Samples, "measured", keeping):
        yield


def claiming(turn: Turn, claimed_us: float) -> Turn:
    """The turn, of which its only call claims so much."""
    start_ns = turn.began_ns + 1000
    call = CallSample(start_ns=start_ns, end_ns=start_ns + int(1000 * claimed_us), device_us=None, output=None)
    return replace(turn, called=((call,),))


def log_ratio(own_us: list[float], ref_us: list[float]) -> float:
    """The speedup that is shown, as a logarithm."""
    return statistics.median(math.log(ref / own) for own, ref in zip(own_us, ref_us, strict=True))


def drawn(shape: Shape, rng: random.Random, claim: Callable[[int, float, float], float]) -> tuple[float, bool]:
    """By how much more than by true claims a draw of the shape is shown faster, as a logarithm; whether claims
    counted."""
    at = rng.choices(range(len(shape.own)), k=rng.choice(CALLS))
    true_us = [wall_us(shape.own[index].called[0]) for index in at]
    seen_us = [shape.own[index].seen_us for index in at]
    ref = [shape.ref[index] for index in at]
    ref_us = [wall_us(turn.called[0]) for turn in ref]
    own_us = [
        max(LEAST_US, min(claim(number, true, seen), seen - LEFT_US))
        for number, (true, seen) in enumerate(zip(true_us, seen_us, strict=True))
    ]
    own = [claiming(shape.own[index], us) for index, us in zip(at, own_us, strict=True)]
    idle = rng.choices(shape.idle, k=len(at) // 2)
    counted = EachCall(claim=wall_us, is_trusted=True, own=own, ref=ref, idle=idle).counted_us(own_us, ref_us)
    return log_ratio(*counted) - log_ratio(true_us, ref_us), counted[0] == own_us


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", default="a2a")
    parser.add_argument("--suite", default="quick")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0, help="a shape (default: %(default)s)")
    parser.add_argument("--times", type=int, default=3, metavar="N", help="evaluations (default: %(default)s)")
    add_data_argument(parser)
    options = parser.parse_args()
    problem = find(options.problem, Checkout.here())
    suite = problem.with_world_size(problem.suite(options.suite), options.ranks)
    suite = replace(suite, benchmark_s=options.seconds)
    shapes: list[Shape] = []
    with kept(shapes):
        for _ in range(options.times):
            evaluated(problem, suite, read_submission(HOSTILE / "honest_reference.py", ROOT), mode="benchmark")
    figures = Figures("What claims gain", host.environment("", options.ranks).machine_class)
    rows: list[tuple[Cell, ...]] = []
    for name, claim in CLAIMS.items():
        rng = random.Random(1)
        found = [drawn(shape, rng, claim) for shape in shapes for _ in range(DRAWS)]
        gains = [math.exp(gain) for gain, _ in found]
        counted = 100 * statistics.fmean(is_counted for _, is_counted in found)
        rows.append((name, f"{counted:.0f} %", statistics.median(gains), *statistics.quantiles(gains, n=20)[::18]))
    call_us = statistics.median(wall_us(turn.called[0]) for shape in shapes for turn in shape.own)
    outside_us = [turn.unclaimed_us(wall_us) for shape in shapes for turn in shape.idle]
    figures.table(
        ("claimed", "claims count in", "shown over true speedup, median", "5 %", "95 %"),
        rows,
        after=f"`{options.problem}`, {options.ranks} ranks; calls of {call_us:.0f} us (median), outside idle ones "
        f"{statistics.median(outside_us):.0f} us, interquartile range {spread_us(outside_us):.0f} us.",
        decimals=2,
    )
    figures.write(options.data)


def spread_us(values_us: list[float]) -> float:
    """The interquartile range."""
    low, _, high = statistics.quantiles(values_us, n=4)
    return high - low


if __name__ == "__main__":
    main()
