"""The task: choose one strategy for each node of a graph, at the least cost, within a memory limit at all times.

This is the problem of the ASPLOS / EuroSys 2025 contest on intra-operator parallelism for distributed deep learning
(google/iopddl), and its file format. Here are reading and checking, in whole numbers throughout: no float is involved,
and sums may exceed 64 bits. Trusted code; solvers do not get this file.

An instance: node i has K_i strategies, each with a cost and a usage, and lives in the half-open interval [lo, hi).
Edge (u, v) has a cost for each pair of strategies, K_u x K_v in row-major order; about 1e18 where a pair is not
permitted. An answer is a line `[s_0, s_1, ...]`: a strategy for each node. It is right if at every time point the
usages of the nodes that live there sum up to usage_limit at most. Its cost is the sum over all nodes and edges.
"""

import contextlib
import csv
import gzip
import hashlib
import itertools
import json
import os
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

HERE = Path(__file__).resolve().parent
FOLDER = "IOPDDL_DATA"  # the variable that names the folder with the contest's own instances
PREFIX = "asplos-2025-iopddl-"  # what their names begin with
CORES = 8  # of the contest's machine, as the next
MEMORY_BYTES = 32 << 30
LOW_BITS = 32
LOW = (1 << LOW_BITS) - 1


def grace_s(limit_s: float) -> float:
    """How long a solver may overrun its limit, for reading and writing: the contest's 10 s, less for short limits."""
    return min(10.0, 1.0 + 0.15 * limit_s)


@dataclass(frozen=True)
class Instance:
    """An instance in flat arrays of int64. Strategy s of node i is at `first[i] + s` of `costs` and `usages`; the pair
    (s, t) of edge e at `first_pair[e] + s * K_v + t` of `pair_costs`."""

    widths: np.ndarray  # K, [nodes]
    first: np.ndarray  # [nodes]
    costs: np.ndarray
    usages: np.ndarray
    lo: np.ndarray  # [nodes], as the next
    hi: np.ndarray
    pairs: np.ndarray  # [edges, 2]
    first_pair: np.ndarray  # [edges]
    pair_costs: np.ndarray
    limit: int


# ---- where instances and what is known of them lie -------------------------------------------------------------------
def find(name: str) -> Path:
    """The file of an instance: the project's own, or one of the folder that IOPDDL_DATA names, compressed or not.
    Raises ValueError, with what to do, where there is none."""
    own = HERE / "instances" / f"{name}.json"
    if own.is_file():
        return own
    folder = os.environ.get(FOLDER)
    if not folder:
        raise ValueError(
            f"instance {name} is the contest's: set {FOLDER} to a folder with {PREFIX}{name}.json or .json.gz "
            "(github.com/google/iopddl has them)"
        )
    for file in (f"{PREFIX}{name}.json", f"{PREFIX}{name}.json.gz", f"{name}.json", f"{name}.json.gz"):
        if (path := Path(folder) / file).is_file():
            return path
    raise ValueError(f"instance {name}: {FOLDER}={folder} has no {PREFIX}{name}.json or .json.gz")


def content(path: Path) -> bytes:
    """The file's text, decompressed. Raises ValueError where it cannot be read."""
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path.name}: cannot be read: {error}") from None


def bound(name: str, text: bytes) -> tuple[int, str] | None:
    """A proved lower bound of the instance's cost, and how it was found; None where none is known of this very text."""
    known = json.loads((HERE / "bounds.json").read_text()).get(name)
    if known is None or known["sha256"] != hashlib.sha256(text).hexdigest():
        return None
    return known["value"], known["how"]


def best(name: str) -> int | None:
    """The least cost that any of the contest's teams reached; None for instances that were not the contest's."""
    return min(_published(name, "team"), default=None)


def known(name: str) -> int | None:
    """The least cost that is known today, later results included; None for instances that were not the contest's."""
    return min(_published(name, ""), default=None)


def _published(name: str, prefix: str) -> list[int]:
    return [int(row[name]) for row in published() if row.get(name) and row["team"].startswith(prefix)]


def published() -> list[dict[str, str]]:
    """The contest's final table, a row a team, and later results: a cost an instance, empty without a valid answer."""
    with (HERE / "published.csv").open() as file:
        return list(csv.DictReader(line for line in file if not line.startswith("# ")))


# ---- reading ---------------------------------------------------------------------------------------------------------
def load(text: bytes) -> Instance:
    """The instance in that JSON. Raises ValueError, with the place, for anything that does not fit."""
    try:
        problem = json.loads(text)["problem"]
        nodes, edges = problem["nodes"], problem["edges"]
        intervals, costs, usages = nodes["intervals"], nodes["costs"], nodes["usages"]
        pairs, pair_costs, limit = edges["nodes"], edges["costs"], problem["usage_limit"]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"not an instance: {type(error).__name__} {error}") from None
    flat_costs, widths = _flat(costs, "$.problem.nodes.costs")
    flat_usages, usage_widths = _flat(usages, "$.problem.nodes.usages")
    flat_intervals, interval_widths = _flat(intervals, "$.problem.nodes.intervals")
    flat_pairs, pair_widths = _flat(pairs, "$.problem.edges.nodes")
    flat_pair_costs, counts = _flat(pair_costs, "$.problem.edges.costs")
    _same(usage_widths, widths, "$.problem.nodes.usages", "costs")
    _same(interval_widths, np.full(len(widths), 2), "$.problem.nodes.intervals", "[lo, hi]")
    _same(pair_widths, np.full(len(counts), 2), "$.problem.edges.nodes", "[u, v]")
    if (empty := np.flatnonzero(widths == 0)).size:
        raise ValueError(f"$.problem.nodes.costs[{empty[0]}]: a node without strategies")
    of_edges = flat_pairs.reshape(-1, 2)
    if (wrong := np.flatnonzero((of_edges < 0).any(axis=1) | (of_edges >= len(widths)).any(axis=1))).size:
        raise ValueError(f"$.problem.edges.nodes[{wrong[0]}]: no such node among {len(widths)}")
    _same(counts, widths[of_edges].prod(axis=1), "$.problem.edges.costs", "K_u x K_v")
    if type(limit) is not int:
        raise ValueError(f"$.problem.usage_limit: expected a whole number, found {limit!r}")
    return Instance(
        widths=widths,
        first=_first(widths),
        costs=flat_costs,
        usages=flat_usages,
        lo=flat_intervals[0::2],
        hi=flat_intervals[1::2],
        pairs=of_edges,
        first_pair=_first(counts),
        pair_costs=flat_pair_costs,
        limit=limit,
    )


def _flat(rows: Any, place: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of whole numbers one behind the other, and the length of each."""
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise ValueError(f"{place}: expected a list of lists")
    widths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    try:
        return whole(list(itertools.chain.from_iterable(rows))), widths
    except ValueError:
        for number, row in enumerate(rows):
            try:
                whole(row)
            except ValueError as error:
                raise ValueError(f"{place}[{number}]{error}") from None
        raise


def whole(values: Sequence[Any]) -> np.ndarray:
    """The values as int64. Raises ValueError, with the index, for anything but a whole number of 64 bits."""
    if set(map(type, values)) <= {int}:  # neither floats nor bools
        with contextlib.suppress(OverflowError):
            return np.array(values, dtype=np.int64)
    for index, value in enumerate(values):
        if type(value) is not int:
            raise ValueError(f"[{index}]: expected a whole number, found {_shown(value)}")
        if not -(1 << 63) <= value < 1 << 63:
            raise ValueError(f"[{index}]: {_shown(value)} has more than 64 bits")
    raise AssertionError("one of them did not fit")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _same(found: np.ndarray, wanted: np.ndarray, place: str, what: str) -> None:
    if len(found) != len(wanted):
        raise ValueError(f"{place}: {len(found)} rows where {what} needs {len(wanted)}")
    if (wrong := np.flatnonzero(found != wanted)).size:
        at = wrong[0]
        raise ValueError(f"{place}[{at}]: {found[at]} numbers where {what} needs {wanted[at]}")


def _first(widths: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(widths)[:-1]]) if len(widths) else widths


# ---- checking --------------------------------------------------------------------------------------------------------
def cost(instance: Instance, line: str) -> int:
    """What the answer on that line costs. Raises ValueError, which names what is wrong and where, for one that is no
    right answer."""
    answer = _answer(instance, line)
    _check_usage(instance, answer)
    chosen = instance.costs[instance.first + answer]
    u, v = instance.pairs[:, 0], instance.pairs[:, 1]
    at = instance.first_pair + answer[u] * instance.widths[v] + answer[v]
    return _sum(chosen) + _sum(instance.pair_costs[at])


def _answer(instance: Instance, line: str) -> np.ndarray:
    """The answer's strategies, each in its node's range."""
    count = len(instance.widths)
    if (given := line.count(",") + 1) > count:  # before there is an object for each
        raise ValueError(f"an answer for {given} nodes, and the instance has {count}")
    try:
        values = json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not an answer `[s_0, s_1, ...]`: {error}") from None
    if not isinstance(values, list):
        raise ValueError("not an answer `[s_0, s_1, ...]`")
    if not values:
        raise ValueError("`[]` is no answer")
    if len(values) != count:
        raise ValueError(f"an answer for {len(values)} nodes, and the instance has {count}")
    try:
        answer = whole(values)
    except ValueError as error:
        raise ValueError(f"node {str(error)[1:].replace(']', '', 1)}") from None
    if (wrong := np.flatnonzero((answer < 0) | (answer >= instance.widths))).size:
        node = wrong[0]
        raise ValueError(f"node {node}: there is no strategy {answer[node]}, it has 0 to {instance.widths[node] - 1}")
    return answer


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no strategy")


def _check_usage(instance: Instance, answer: np.ndarray) -> None:
    """Raises ValueError for the first time point at which the live nodes use too much. Numbers of more than 64 bits are
    kept in two parts, the lower of LOW_BITS."""
    lives = np.flatnonzero(instance.lo < instance.hi)
    if not lives.size:
        return
    lo, hi = instance.lo[lives], instance.hi[lives]
    usage = instance.usages[instance.first[lives] + answer[lives]]
    times = np.unique(np.concatenate([lo, hi]))
    begins, ends = np.searchsorted(times, lo), np.searchsorted(times, hi)
    parts = []
    for part in (usage >> LOW_BITS, usage & LOW):
        change = np.zeros(len(times), dtype=np.int64)
        np.add.at(change, begins, part)
        np.subtract.at(change, ends, part)
        parts.append(np.cumsum(change))
    high, low = parts[0] + (parts[1] >> LOW_BITS), parts[1] & LOW
    limit_high, limit_low = instance.limit >> LOW_BITS, instance.limit & LOW
    above = np.flatnonzero((high > limit_high) | ((high == limit_high) & (low > limit_low)))
    if above.size:
        first = above[0]
        used = (int(high[first]) << LOW_BITS) + int(low[first])
        live = lives[(lo <= times[first]) & (times[first] < hi)]
        largest = live[np.argmax(instance.usages[instance.first[live] + answer[live]])]
        raise ValueError(
            f"usage limit exceeded at time {times[first]}: {len(live)} live nodes use {used}, {used - instance.limit} "
            f"above {instance.limit}; most is node {largest}'s "
            f"({instance.usages[instance.first[largest] + answer[largest]]}); {above.size} time points are above"
        )


def _sum(values: Iterable[int] | np.ndarray) -> int:
    """The exact sum of int64 values, which may exceed 64 bits."""
    array = np.asarray(values)
    return (int((array >> LOW_BITS).sum()) << LOW_BITS) + int((array & LOW).sum())
