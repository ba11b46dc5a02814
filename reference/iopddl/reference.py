"""The reference solver: `python reference.py instance.json limit_s`.

First a greedy answer: every node takes the strategy that uses least, which fits whenever anything does strategy by
strategy, and then the cheapest one that fits beside its neighbours, in sweeps, until nothing changes. Each better
answer is printed. Where the instance is small enough, scipy's milp (HiGHS) takes the rest of the time; it proves its
answer best where it comes to an end.
"""

import math
import sys
import time
from pathlib import Path

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array
from task import Instance, cost, load

FORBIDDEN = 10**17  # from here on a pair is not permitted
MOST_PAIRS = 250_000  # pair variables that HiGHS takes
MOST_ENTRIES = 3_000_000  # of the usage constraints
MARGIN = 0.85  # of the limit, after which nothing is begun
Answer = list[int]


class Greedy:
    """An answer that fits, and its usage at each of the time points at which something begins."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        count = len(instance.widths)
        self.times = np.unique(instance.lo)
        self.begins = np.searchsorted(self.times, instance.lo)
        self.ends = np.where(instance.lo < instance.hi, np.searchsorted(self.times, instance.hi), self.begins)
        ends = instance.first + instance.widths
        self.costs = [instance.costs[a:b] for a, b in zip(instance.first, ends, strict=True)]
        self.usages = [instance.usages[a:b] for a, b in zip(instance.first, ends, strict=True)]
        self.links: list[list[tuple[int, np.ndarray]]] = [[] for _ in range(count)]  # neighbour, costs [own, its]
        for (u, v), at in zip(instance.pairs.tolist(), instance.first_pair.tolist(), strict=True):
            table = instance.pair_costs[at : at + instance.widths[u] * instance.widths[v]].reshape(
                instance.widths[u], instance.widths[v]
            )
            self.links[u].append((v, table))
            self.links[v].append((u, table.T))
        self.answer = [int(np.argmin(usage)) for usage in self.usages]
        self.used = np.zeros(len(self.times), dtype=np.float64)
        for node, strategy in enumerate(self.answer):
            self.used[self.begins[node] : self.ends[node]] += self.usages[node][strategy]

    def sweep(self, deadline: float) -> bool:
        """Each node takes its cheapest strategy that fits; whether anything changed before the deadline."""
        changed = False
        for node, links in enumerate(self.links):
            if node % 256 == 0 and time.monotonic() > deadline:
                return False
            if len(self.costs[node]) == 1:
                continue
            own = self.costs[node].astype(np.float64)
            for other, table in links:
                own += table[:, self.answer[other]]
            now = self.answer[node]
            live = slice(self.begins[node], self.ends[node])
            peak = self.used[live].max(initial=0.0)
            fits = self.usages[node] - self.usages[node][now] <= self.instance.limit - peak
            best = int(np.argmin(np.where(fits | (np.arange(len(own)) == now), own, np.inf)))
            if own[best] < own[now]:
                self.used[live] += self.usages[node][best] - self.usages[node][now]
                self.answer[node] = best
                changed = True
        return changed


def by_milp(instance: Instance, seconds: float) -> tuple[Answer | None, float] | None:
    """The answer that HiGHS finds in that time, if any, and its lower bound; None for instances that are too large.

    Variables: x[node, strategy], and y[edge, pair] of permitted pairs, which sum up to x along either side.
    """
    x_count = len(instance.costs)
    permitted = np.flatnonzero(instance.pair_costs < FORBIDDEN)
    if len(permitted) > MOST_PAIRS:
        return None
    usage = _usage_rows(instance)
    if usage is None:
        return None
    edge = np.searchsorted(instance.first_pair, permitted, side="right") - 1
    inside = permitted - instance.first_pair[edge]
    u, v = instance.pairs[edge, 0], instance.pairs[edge, 1]
    s, t = inside // instance.widths[v], inside % instance.widths[v]
    y = x_count + np.arange(len(permitted))
    columns = x_count + len(permitted)
    constraints = [LinearConstraint(usage_matrix(usage, columns), -np.inf, float(instance.limit))]
    nodes = np.repeat(np.arange(len(instance.widths)), instance.widths)
    one = coo_array((np.ones(x_count), (nodes, np.arange(x_count))), shape=(len(instance.widths), columns))
    constraints.append(LinearConstraint(one, 1, 1))
    for node, strategy in ((u, s), (v, t)):
        # a row for each (edge, strategy of this side): the sum of y is x
        keys, rows = np.unique(edge * 2**20 + strategy, return_inverse=True)
        sides = instance.pairs[keys >> 20, 0 if node is u else 1]
        x = instance.first[sides] + (keys & (2**20 - 1))
        values = np.concatenate([np.ones(len(y)), -np.ones(len(keys))])
        places = (np.concatenate([rows, np.arange(len(keys))]), np.concatenate([y, x]))
        constraints.append(LinearConstraint(coo_array((values, places), shape=(len(keys), columns)), 0, 0))
    costs = np.concatenate([instance.costs, instance.pair_costs[permitted]]).astype(np.float64)
    upper = np.ones(columns)
    upper[:x_count][_without_partner(instance, edge, s, t)] = 0
    upper[:x_count][instance.costs >= FORBIDDEN] = 0
    integrality = np.zeros(columns)
    integrality[:x_count] = 1
    costs[:x_count][instance.costs >= FORBIDDEN] = 0  # excluded, and a number that large would spoil the others
    options = {"time_limit": seconds, "mip_rel_gap": 0.0}
    found = milp(costs, integrality=integrality, bounds=Bounds(0, upper), constraints=constraints, options=options)
    least = -np.inf if found.mip_dual_bound is None else float(found.mip_dual_bound)
    if found.x is None:
        return None, least
    ends = instance.first + instance.widths
    return [int(np.argmax(found.x[a:b])) for a, b in zip(instance.first, ends, strict=True)], least


def _usage_rows(instance: Instance) -> tuple[np.ndarray, np.ndarray, np.ndarray, int] | None:
    """(rows, columns, values, count) of the usage constraints, one for each time point at which something begins and
    that is followed by an end; None where there are too many."""
    lives = np.flatnonzero(instance.lo < instance.hi)
    times = np.unique(instance.lo[lives])
    next_begin = np.append(times[1:], np.iinfo(np.int64).max)
    ends = np.unique(instance.hi[lives])
    followed = np.searchsorted(ends, times, side="right") < np.searchsorted(ends, next_begin, side="right")
    times = times[followed]
    begins, stops = np.searchsorted(times, instance.lo[lives]), np.searchsorted(times, instance.hi[lives])
    if int(((stops - begins) * instance.widths[lives]).sum()) > MOST_ENTRIES:
        return None
    rows, columns, values = [], [], []
    for node, begin, stop in zip(lives.tolist(), begins.tolist(), stops.tolist(), strict=True):
        at = np.arange(instance.first[node], instance.first[node] + instance.widths[node])
        rows.append(np.repeat(np.arange(begin, stop), len(at)))
        columns.append(np.tile(at, stop - begin))
        values.append(np.tile(instance.usages[at], stop - begin))
    return np.concatenate(rows), np.concatenate(columns), np.concatenate(values), len(times)


def usage_matrix(usage: tuple[np.ndarray, np.ndarray, np.ndarray, int], columns: int) -> coo_array:
    """The constraints as a sparse matrix."""
    rows, at, values, count = usage
    return coo_array((values.astype(np.float64), (rows, at)), shape=(count, columns))


def _without_partner(instance: Instance, edge: np.ndarray, s: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The strategies that some neighbour permits none of its own beside."""
    lacking = []
    for side, strategy in ((0, s), (1, t)):
        nodes = instance.pairs[:, side]
        seen = np.zeros((len(nodes), int(instance.widths.max(initial=1))), dtype=bool)
        seen[edge, strategy] = True
        exists = np.arange(seen.shape[1]) < instance.widths[nodes][:, None]
        at_edge, at = np.nonzero(exists & ~seen)
        lacking.append(instance.first[nodes[at_edge]] + at)
    return np.unique(np.concatenate(lacking))


def worth(instance: Instance, answer: Answer) -> float:
    """What it costs; infinite for one that is not right."""
    try:
        return cost(instance, str(answer))
    except ValueError:
        return math.inf


def show(answer: Answer) -> None:
    """Prints an answer at once."""
    print(answer, flush=True)


def main(path: str, limit_s: float) -> None:
    """Solves the instance."""
    deadline = time.monotonic() + MARGIN * limit_s
    instance = load(Path(path).read_bytes())
    greedy = Greedy(instance)
    show(greedy.answer)
    is_small = len(instance.pair_costs) <= 4 * MOST_PAIRS
    sweeps_end = time.monotonic() + (deadline - time.monotonic()) * (0.2 if is_small else 1.0)
    while greedy.sweep(sweeps_end):
        show(greedy.answer)
    show(greedy.answer)
    left_s = deadline - time.monotonic()
    if is_small and left_s > 0:
        found = by_milp(instance, left_s)
        # its time may be up at an answer that is worse, or that is not one: it rounds
        if found is not None and found[0] is not None and worth(instance, found[0]) < worth(instance, greedy.answer):
            show(found[0])


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
