"""Shapes that a run draws from its secret near a suite's benchmarks, so that knowing the benchmarks is not enough.

A problem's params.py says what a shape near another one is: `near(params, world_size, draw)` returns Params whose sizes
came from `draw(size)`, or `draw(size, multiple)` where a size has to be divided. A test may draw in another way.
"""

import math
import random
from dataclasses import replace
from typing import Any

from harness.core.decode import DecodeError
from harness.core.records import Case
from harness.problems.problem import MAX_INT, NearOf, Problem, Suite, check_ranks

LEAST = 0.75  # of a published size; none is larger than that, so that memory and time for it suffice
ALIGNED = 128  # the largest power of 2 that a drawn size shares with the published one: kernels' tiles
TRIES = 64  # to draw a shape that can be, and is none of the benchmarks


def choices(size: int, multiple: int = 1) -> list[int]:
    """From three quarters of `size` up to below it, what is a multiple of `multiple` and as even as `size` is, up to
    ALIGNED and an eighth of it; `size` itself where there is nothing."""
    even = min(size & -size, ALIGNED)
    while even > 1 and 8 * even > size:
        even //= 2
    step = math.lcm(even, multiple)
    return list(range(math.ceil(LEAST * size / step) * step, size, step)) or [size]


def drawn_cases(problem: Problem, suite: Suite, secret: str) -> tuple[Case, ...]:
    """As many cases as the suite says, each near another benchmark while there are enough; fewer where the benchmarks
    are so small that nothing is near them. The same secret draws the same ones."""
    near_of = problem.near_of
    if near_of is None or not suite.drawn:
        return ()
    dice, found = random.Random(secret), list[Case]()
    numbers = dice.sample(range(len(suite.benchmarks)), len(suite.benchmarks))
    for number in numbers * suite.drawn:
        taken = [case.params for case in (*suite.benchmarks, *found)]
        made = _near(problem, near_of, suite.benchmarks[number], dice, taken)
        if made is not None and len(found) < suite.drawn:
            found.append(replace(made, near=number, seed=dice.randrange(MAX_INT)))
    return tuple(found)


def _near(problem: Problem, near_of: NearOf, case: Case, dice: random.Random, taken: list[Any]) -> Case | None:
    params = problem.params_type(**case.params)

    def draw(size: int, multiple: int = 1) -> int:
        return dice.choice(choices(size, multiple))

    for _ in range(TRIES):
        try:
            with problem.own_code(f"near() of {case.label}"):
                made = near_of(params, case.world_size, draw)
                check_ranks(made, case.world_size, problem.multi_gpu, "")
        except DecodeError:  # sizes that do not go together
            continue
        values = {name: getattr(made, name) for name in case.params}
        if values not in taken:
            return replace(case, kind="drawn", params=values, published_us=None)
    return None
