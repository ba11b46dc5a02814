"""The search for the best row of a tuning table: what is predicted to be slow is never measured, and a search that
finds nothing better ends.

Knows no torch, chips or kernels: rows are lists of values, and somebody else measures them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

MARGIN = 1.3  # rows that are predicted to take so many times the best prediction are pruned
PATIENCE = 8  # rows measured one after another without a better one end a search
READ_RATE = 2.5  # what multiprocessors read in a second, mostly from the L2 cache, over the memory's rate: no more
BETTER = 0.995  # of the best time: what counts as better
FINALISTS = 4  # compared in turn at the end
Row = tuple[str | bool | int | float | tuple[int, ...] | None, ...]  # of a tuning table: the values of its fields
Ended = Literal["all measured", "nothing better in a while", "as many as asked", "out of time"]


@dataclass(frozen=True, kw_only=True)
class Rates:
    flops_per_s: float
    hbm_bytes_per_s: float
    multiprocessors: int


@dataclass(frozen=True, kw_only=True)
class PredictedRow:
    """A row with the time that it is predicted to take at least; infinite where it does not fit."""

    row: Row
    predicted_us: float


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A measured row. `us` is None where it failed, and `note` says why."""

    row: Row
    us: float | None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """How a search ended. `tried`: all measured rows, the best first, those that failed last. `pruned`: how many were
    not worth measuring."""

    tried: tuple[Tried, ...]
    pruned: int
    ended: Ended


def predicted_us(flops: float, hbm_bytes: float, read_bytes: float, tiles: int, fit: int, rates: Rates) -> float:
    """The least time of a call: the products at the chip's peak, of whose rounds of tiles the last may be part empty,
    the bytes at its memory's rate, or what is read in all at READ_RATE times that. Infinite where no program fits
    (`fit` is 0)."""
    if not fit:
        return math.inf
    at_once = rates.multiprocessors * fit
    rounds = -(-tiles // at_once) * at_once / tiles
    seconds = max(hbm_bytes, read_bytes / READ_RATE) / rates.hbm_bytes_per_s
    return 1e6 * max(flops * rounds / rates.flops_per_s, seconds)


def hopeless(candidates: Sequence[PredictedRow]) -> int:
    """How many the predictions alone prune."""
    most_us = _most_us(candidates)
    return sum(_is_hopeless(one, most_us) for one in candidates)


def _most_us(candidates: Sequence[PredictedRow]) -> float:
    """The prediction from which on a row is not worth measuring."""
    return MARGIN * min((one.predicted_us for one in candidates), default=math.inf)


def _is_hopeless(candidate: PredictedRow, most_us: float) -> bool:
    """Whether its prediction is above that, or it does not fit."""
    return math.isinf(candidate.predicted_us) or candidate.predicted_us > most_us


def search(
    candidates: Sequence[PredictedRow],
    known: Sequence[Tried],
    measure: Callable[[Row], Tried],
    at_most: int,
    is_over: Callable[[], bool],
) -> SearchResult:
    """Measures candidates, those predicted to be the fastest first (of equals in the order given). Rows in `known` are
    not measured again. A row is pruned if its prediction is above what the best measured row takes, or more than MARGIN
    times the best prediction. At most `at_most` are measured. `is_over` says when the time is spent."""
    tried = {one.row: one for one in known}
    most_us = _most_us(candidates)
    best = min((one.us for one in tried.values() if one.us is not None), default=math.inf)
    pruned, since, new = 0, 0, 0
    ended: Ended = "all measured"
    for candidate in sorted(candidates, key=lambda one: one.predicted_us):
        if _is_hopeless(candidate, min(best, most_us)):
            pruned += 1
            continue
        known_one = tried.get(candidate.row)
        if known_one is None:
            if is_over() or new == at_most:
                ended = "as many as asked" if new == at_most else "out of time"
                break
            new += 1
            known_one = tried[candidate.row] = measure(candidate.row)
        us = math.inf if known_one.us is None else known_one.us
        since = 0 if us < BETTER * best else since + 1
        best = min(best, us)
        if since >= PATIENCE:
            ended = "nothing better in a while"
            break
    ordered = sorted(tried.values(), key=lambda one: math.inf if one.us is None else one.us)
    return SearchResult(tried=tuple(ordered), pruned=pruned, ended=ended)
