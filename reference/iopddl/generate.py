"""Makes instances of the contest's structure: `python reference/iopddl/generate.py LAYERS WIDTH SEED > instance.json`.

--mesh gives the devices' axes and --moves how many of them an edge may move; more strategies and forbidden pairs:

| like | options | strategies a node | pairs forbidden |
| --- | --- | ---: | ---: |
| few nodes, many strategies | --mesh 2 4 4 --moves 2 | 24 | 40 to 50 % |
| many nodes, most pairs forbidden | --moves 1 | 8 | 50 to 65 % |

A chain of LAYERS blocks as in a transformer's training step, forwards and back. A block has a weight, which lives as
long as the program, a product that needs the weight and the chain's tensor, WIDTH elementwise operators that follow one
another, and a sum with the block's input (a skip edge). Backwards each block needs its forward tensors again, so these
live long. A strategy says how a tensor lies on a mesh of devices, 4 x 8 by default: each axis splits its rows,
its columns, or neither. Usage is the part of the tensor that a device holds; a node's cost is the work that is not
split away; an edge costs what moving from one layout to the other sends. Elementwise operators take only their
operand's layout: other pairs are forbidden (1e18), and so are pairs that differ in more axes than may move. The limit
is LIMIT times the least peak, so that memory decides everywhere.
"""

import argparse
import itertools
import json
import math
import random

MESH = (4, 8)
FORBIDDEN = 10**18
LIMIT = 1.1
Layout = tuple[
    int, int, tuple[int, ...]
]  # parts of rows, parts of columns, and what each axis splits: 1 rows, 2 columns


def layouts_of(mesh: tuple[int, ...]) -> list[Layout]:
    """Every layout on that mesh, those with fewer parts first."""
    every = itertools.product(range(3), repeat=len(mesh))
    return sorted(
        (*(math.prod(itertools.compress(mesh, (way == by for way in ways))) for by in (1, 2)), ways) for ways in every
    )


class Graph:
    """An instance in the making; time goes on with every node."""

    def __init__(self, seed: int, mesh: tuple[int, ...], moves: int) -> None:
        self.random = random.Random(seed)
        self.every_layout = layouts_of(mesh)
        self.moves = moves
        self.intervals: list[list[int]] = []
        self.costs: list[list[int]] = []
        self.usages: list[list[int]] = []
        self.layouts: list[list[Layout]] = []
        self.sizes: list[int] = []
        self.pairs: list[list[int]] = []
        self.pair_costs: list[list[int]] = []
        self.now = 0

    def node(self, size: int, work: int) -> int:
        """A tensor of `size` bytes, born now; its work is split as it is."""
        kept = [one for one in self.every_layout if self.random.random() < 0.9] or self.every_layout[:1]
        self.layouts.append(kept)
        self.sizes.append(size)
        self.costs.append(
            [work // (rows * columns) + self.random.randrange(work // 50 + 1) for rows, columns, _ in kept]
        )
        self.usages.append([size // (rows * columns) for rows, columns, _ in kept])
        self.intervals.append([self.now, self.now + 1])
        self.now += 1
        return len(self.costs) - 1

    def edge(self, u: int, v: int, follows: bool = False) -> None:
        """v reads u, which lives until now; where v `follows`, only in u's layout."""
        self.intervals[u][1] = max(self.intervals[u][1], self.now)
        self.pairs.append([u, v])
        both = itertools.product(self.layouts[u], self.layouts[v])
        self.pair_costs.append([self.moved(u, one, other, follows) for one, other in both])

    def moved(self, u: int, one: Layout, other: Layout, follows: bool) -> int:
        """The bytes that a device sends to bring u from one layout to the other."""
        if one == other:
            return 0
        if follows or sum(a != b for a, b in zip(one[2], other[2], strict=True)) > self.moves:
            return FORBIDDEN
        held = self.sizes[u] // (one[0] * one[1])
        gathered = one[0] // min(one[0], other[0]) * (one[1] // min(one[1], other[1]))
        return held * gathered // 2 if gathered > 1 else held // 8

    def follower(self, u: int) -> int:
        """An elementwise operator on u, with all of u's layouts."""
        v = self.node(self.sizes[u], self.sizes[u] // 8)
        self.layouts[v] = list(self.layouts[u])
        self.costs[v] = [self.sizes[u] // 8 // (rows * columns) for rows, columns, _ in self.layouts[v]]
        self.usages[v] = [self.sizes[u] // (rows * columns) for rows, columns, _ in self.layouts[v]]
        self.edge(u, v, follows=True)
        return v

    def document(self, name: str) -> dict[str, object]:
        """The instance in the contest's format."""
        change: dict[int, int] = {}
        for (lo, hi), usage in zip(self.intervals, self.usages, strict=True):
            change[lo] = change.get(lo, 0) + min(usage)
            change[hi] = change.get(hi, 0) - min(usage)
        peak = max(itertools.accumulate(change[time] for time in sorted(change)))
        nodes = {"intervals": self.intervals, "costs": self.costs, "usages": self.usages}
        edges = {"nodes": self.pairs, "costs": self.pair_costs}
        return {"problem": {"name": name, "nodes": nodes, "edges": edges, "usage_limit": int(LIMIT * peak)}}


def generate(
    layers: int, width: int, seed: int, name: str = "generated", mesh: tuple[int, ...] = MESH, moves: int | None = None
) -> dict[str, object]:
    """An instance of that many blocks, as json.dump takes it; the same for the same arguments."""
    graph = Graph(seed, mesh, len(mesh) if moves is None else moves)
    weights = [graph.node(graph.random.choice((8, 16, 32)) * 4096, 0) for _ in range(layers)]
    tensor = graph.node(32 * 4096, 64)
    kept: list[tuple[int, int]] = []
    for weight in weights:
        product = graph.node(graph.random.choice((32, 64)) * 4096, 1 << 20)
        graph.edge(tensor, product)
        graph.edge(weight, product)
        last = product
        for _ in range(width):
            last = graph.follower(last)
        joined = graph.node(32 * 4096, 4096)
        graph.edge(last, joined)
        graph.edge(tensor, joined)
        kept.append((tensor, product))
        tensor = joined
    for weight, (before, product) in zip(reversed(weights), reversed(kept), strict=True):
        gradient = graph.node(32 * 4096, 1 << 20)
        for needed in (tensor, before, product, weight):
            graph.edge(needed, gradient)
        update = graph.node(graph.sizes[weight], 4096)
        graph.edge(gradient, update)
        graph.edge(weight, update)
        tensor = gradient
    return graph.document(name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for argument in ("layers", "width", "seed"):
        parser.add_argument(argument, type=int)
    parser.add_argument("--mesh", type=int, nargs="+", default=MESH, metavar="DEVICES", help="along each axis")
    parser.add_argument("--moves", type=int, metavar="AXES", help="most that an edge may move; all by default")
    given = parser.parse_args()
    name = f"chain-{given.layers}-{given.width}-{given.seed}"
    made = generate(given.layers, given.width, given.seed, name, tuple(given.mesh), given.moves)
    print(json.dumps(made, separators=(",", ":")))
