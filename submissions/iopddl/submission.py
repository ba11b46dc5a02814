"""A solver for iopddl: `python submission.py instance.json limit_s`.

The work is done by ./solver, which build.sh makes of the C++ files here: see search.hpp. Where there is no compiler,
a descent in numpy stands in: every node takes its least usage, and then, in random order, the cheapest strategy that
fits beside its neighbours, with now and then a worse one, until the time is up.
"""

import json
import math
import os
import random
import sys
import time
from pathlib import Path

SOLVER = Path(__file__).resolve().parent / "solver"


def main(path: str, limit: str) -> None:
    """Becomes the solver, or stands in for it."""
    if SOLVER.is_file():
        os.execv(SOLVER, [str(SOLVER), path, limit])
    descend(path, float(limit))


def descend(path: str, limit_s: float) -> None:
    """Annealing of single nodes, in numpy."""
    import numpy as np

    deadline = time.monotonic() + 0.9 * limit_s - 0.3
    chance = random.Random(int(os.environ.get("KERNEL_EVAL_SEED", "1")))
    problem = json.loads(Path(path).read_text())["problem"]
    intervals = problem["nodes"]["intervals"]
    costs = [np.array(row, dtype=np.float64) for row in problem["nodes"]["costs"]]
    usages = [np.array(row, dtype=np.int64) for row in problem["nodes"]["usages"]]
    links: list[list] = [[] for _ in costs]
    for (u, v), row in zip(problem["edges"]["nodes"], problem["edges"]["costs"], strict=True):
        table = np.array(row, dtype=np.float64).reshape(len(costs[u]), len(costs[v]))
        links[u].append((v, table))
        links[v].append((u, table.T))
    times = sorted({lo for lo, hi in intervals if lo < hi})
    live = [slice(*np.searchsorted(times, pair)) if pair[0] < pair[1] else slice(0, 0) for pair in intervals]
    chosen = [int(usage.argmin()) for usage in usages]
    room = np.full(len(times), problem["usage_limit"], dtype=np.int64)
    for node, strategy in enumerate(chosen):
        room[live[node]] -= usages[node][strategy]
    print(chosen, flush=True)
    free = [node for node, cost in enumerate(costs) if len(cost) > 1]
    total = least = 0.0
    while free and (now := time.monotonic()) < deadline:
        heat = 10 ** (6 - 5 * (1 - (deadline - now) / limit_s))
        before = least
        for node in chance.sample(free, min(len(free), 500)):
            cost = costs[node] + sum(table[:, chosen[other]] for other, table in links[node])
            more = usages[node] - usages[node][chosen[node]]
            spare = room[live[node]].min(initial=2**62)
            cost = np.where(more <= spare, cost - cost[chosen[node]], math.inf)
            noise = -heat * np.log([chance.random() + 1e-300 for _ in cost])
            noise[chosen[node]] = 0
            best = int(np.argmin(cost + noise))
            if best != chosen[node]:
                room[live[node]] -= more[best]
                total += cost[best]
                chosen[node] = best
            least = min(least, total)
        if least < before and total == least:
            print(chosen, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
