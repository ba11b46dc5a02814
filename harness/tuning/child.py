"""The tuner's child: imports a submission, compiles and measures rows of its table. Started by tuner.py with the path
of an order; prints a line a row and a case; its result is a file.

A call's time is the median over calls one at a time with cold caches (clock.py). If the problem works in place, each
call gets the same input. A row whose result the strict verdict refuses on a hardened input is left out. The best rows
and the reference are measured in turn once more at the end, in both orders, because a GPU that grows warm becomes
slower.
"""

import contextlib
import hashlib
import importlib
import itertools
import math
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from harness.core import json_file
from harness.core.decode import part
from harness.core.files import replace_file
from harness.judging import correctness
from harness.ranks.strict_check import parts_of
from harness.tuning import records, search, table
from harness.tuning.clock import DEVICE, DeviceClock, TimedCall, restorer
from harness.tuning.records import CaseFound, Finalist, KeptRow, TuneOrder
from harness.tuning.search import PredictedRow, Rates, Row, SearchResult, Tried

WARM, CALLS = 2, 9
LEAST_ROUNDS, MOST_ROUNDS = 4, 24  # of finalists in turn
SEED = 7
COMPILE_SHARE = 0.4  # of the seconds, at most, are over when the first row is measured
SEARCH_SHARE = 0.7  # of a case's seconds; the rest is for its finalists
MOST_PROCESSES = 16
FOUND = "{us:.1f} us, {ratio}best of {measured} measured of {count} ({ended}), {gpu}, {day}"


class Modules:
    def __init__(self, root: Path, problem: str) -> None:
        folders = (f"reference/{problem}", "reference/common", f"submissions/{problem}", "submissions")
        sys.path[:0] = [str(root / folder) for folder in folders]
        self.tuning, self.space = importlib.import_module("tuning"), importlib.import_module("space")
        self.chips = importlib.import_module("common.tuning")
        self.reference = importlib.import_module("reference")
        files = sorted([*(root / folders[2]).glob("*.py"), *(root / "submissions" / "common").glob("*.py")])
        texts = [path.read_bytes() for path in files if path.name not in ("tuning.py", "space.py")]
        self.digest = hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]

    def chip(self, order: TuneOrder) -> Any:
        """The chip of the order, or the one at hand."""
        if order.chip:
            return self.chips.Chip(order.chip, order.rates.multiprocessors, self.chips.CHIPS.get(order.chip, 1))
        return self.chips.chip_of(torch.device("cuda", 0))

    def row(self, fields: Iterable[object]) -> Any:
        return self.tuning.Row(*fields)

    def fields(self, row: Any) -> dict[str, object]:
        return dict(zip(self.tuning.Row.__annotations__, row, strict=True))


def candidates(modules: Modules, chip: Any, params: dict[str, Any], rates: Rates) -> list[PredictedRow]:
    """The table's rows for the case's place or nearest to it, then those of the space, each once."""
    place = modules.space.place(params)
    same = {name: value for name, value in place.items() if name != "shape"}
    rows = [row for row in modules.tuning.TABLE if row.chip == chip.name]
    rows = [row for row in rows if all(getattr(row, name) == value for name, value in same.items())]
    own = [modules.chips.nearest(rows, chip.name, place["shape"])] if rows else []
    all_rows = [*own, *modules.space.rows(chip.name, params)]
    found = dict.fromkeys(modules.row({**modules.fields(row), **place, "found": ""}.values()) for row in all_rows)
    return [PredictedRow(row=tuple(row), predicted_us=predicted(modules, row, params, rates)) for row in found]


def predicted(modules: Modules, row: Any, params: dict[str, Any], rates: Rates) -> float:
    need = modules.space.need(row, params)
    return search.predicted_us(need.flops, need.hbm_bytes, need.read_bytes, need.tiles, need.fit, rates)


def precompile(order: TuneOrder, work: Sequence[tuple[dict[str, Any], Row]]) -> None:
    """Fills Triton's cache, in a process of its own."""
    modules = Modules(Path(order.root), order.problem)
    chip = modules.chip(order)
    for params, fields in work:
        with contextlib.suppress(Exception):  # it does not fit: measuring it will say so
            modules.space.compile_row(modules.row(fields), chip, params)


def compile_ahead(order: TuneOrder, work: list[tuple[dict[str, Any], Row]]) -> None:
    """Compiles by as many processes as help, and goes on when COMPILE_SHARE of the time is spent: what is missing then
    is compiled when its turn comes."""
    count = min(MOST_PROCESSES, multiprocessing.cpu_count(), len(work))
    pool = ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))
    futures = [pool.submit(precompile, order, work[index::count]) for index in range(count)]
    wait(futures, timeout=max(0.0, order.began + COMPILE_SHARE * order.seconds - time.monotonic()))
    for process in multiprocessing.active_children():
        process.kill()
    pool.shutdown(wait=False, cancel_futures=True)


class CaseBench:
    """One case: its inputs, the right result, and what a row makes of them. Rows are judged on a hardened input and
    timed on one as evaluations time, of another seed. `in_place`: calls may overwrite their input."""

    def __init__(self, modules: Modules, chip: Any, clock: DeviceClock, params: dict[str, Any], in_place: bool) -> None:
        self.modules, self.chip, self.clock, self.params = modules, chip, clock, params
        with torch.device(DEVICE):
            self.given = modules.reference.generate_input(rank=0, world_size=1, seed=SEED, **params)
            self.expected = modules.reference.exact_kernel(self.hardened())
            self.timed = modules.reference.generate_input(rank=0, world_size=1, seed=SEED + 1, **params)
        self.restore = restorer(self.timed, in_place)

    def hardened(self) -> Any:
        """The input anew, as a call may have written its result over it."""
        return self.modules.reference.harden(self.given, SEED)

    def call(self, fields: Row, data: Any) -> Callable[[], Any] | None:
        """The call with a row on this input; None where the row cannot do the shape."""
        return self.modules.space.call(self.modules.row(fields), self.chip, data)  # type: ignore[no-any-return]

    def measure(self, fields: Row) -> Tried:
        """A row's median time, or why it is no good."""
        try:
            timed = self.call(fields, self.timed)
            if timed is None:
                return Tried(row=fields, us=None, note="not for this shape")
            if note := self.judged(fields):
                return Tried(row=fields, us=None, note=note)
            times = self.clock.times_us([TimedCall(timed, self.restore)] * (WARM + CALLS))
            # Again, as a call may leave something behind that the next ones take for theirs.
            note = self.judged(fields)
            return Tried(row=fields, us=None if note else statistics.median(times[WARM:]), note=note)
        except Exception as error:  # too much shared memory, too many registers
            why = str(error).partition("\n")[0]
            return Tried(row=fields, us=None, note=f"{type(error).__name__}: {why[:120]}")

    def judged(self, fields: Row) -> str:
        """The fault of a row's result on a hardened input; "" where there is none."""
        call = self.call(fields, self.hardened())
        assert call is not None, "the row can do the shape"
        output = call()
        outputs = output if isinstance(output, tuple) else (output,)
        pairs = zip(outputs, parts_of(self.expected), strict=True)
        verdicts = (correctness.strict(one, right) for one, right in pairs)
        return next((f"wrong: {one.message}" for one in verdicts if not one.passed), "")

    def reference(self) -> TimedCall | None:
        """The problem's reference on the timed input, called before; None where it fails."""
        call = TimedCall(lambda: self.modules.reference.ref_kernel(self.timed), self.restore)
        try:
            self.clock.times_us([call] * WARM)
        except Exception:  # too little memory, say
            return None
        return call

    def in_turn(self, found: SearchResult, until: float) -> tuple[tuple[Finalist, ...], float | None]:
        """The best rows with their medians, the fastest first, and the reference's: all measured in turn, every second
        round in reverse, until that moment of the monotonic clock."""
        best = [one.row for one in found.tried if one.us is not None][: search.FINALISTS]
        calls: dict[Row | None, TimedCall] = {}
        for row in best:
            if run := self.call(row, self.timed):
                calls[row] = TimedCall(run, self.restore)
        if best and (reference := self.reference()):
            calls[None] = reference
        times: dict[Row | None, list[float]] = {row: [] for row in calls}
        for turn in range(MOST_ROUNDS):
            if turn >= LEAST_ROUNDS and time.monotonic() > until:
                break
            order = list(calls)[:: -1 if turn % 2 else 1]
            for which, us in zip(order, self.clock.times_us([calls[one] for one in order]), strict=True):
                times[which].append(us)
        medians = {row: statistics.median(each) for row, each in times.items()}
        reference_us = medians.pop(None, None)
        finalists = [Finalist(row=row, us=us) for row, us in medians.items() if row is not None]
        return tuple(sorted(finalists, key=lambda one: one.us)), reference_us


def tuned(modules: Modules, order: TuneOrder, rates: Rates) -> Iterator[CaseFound]:
    """Each case in turn. What time one leaves is for the next ones."""
    end, chip, gpu = order.began + order.seconds, modules.chip(order), torch.cuda.get_device_name(0)
    kept = records.load(Path(order.kept))
    jobs = [
        (
            params,
            candidates(modules, chip, params, rates),
            records.tried(kept, gpu, modules.digest, order.pause, params),
        )
        for params in order.cases
    ]
    if work := to_compile(jobs, order.at_most):
        compile_ahead(order, work)
    clock = DeviceClock(order.pause)
    for index, (params, rows, known) in enumerate(jobs):
        now = time.monotonic()
        share = (end - now) / (len(jobs) - index)
        case = CaseBench(modules, chip, clock, params, order.in_place)

        def measure(fields: Row, case: CaseBench = case) -> Tried:
            one = case.measure(fields)
            print(line_of(one), flush=True)
            where = {"gpu": gpu, "digest": modules.digest, "pause": order.pause, "params": case.params}
            records.keep(Path(order.kept), part(one, KeptRow, **where, row=(*fields[:-1], "")))
            return one

        def is_over(until: float = now + SEARCH_SHARE * share) -> bool:
            return time.monotonic() > until

        found = search.search(rows, known, measure, order.at_most, is_over)
        yield case_found(case, rows, found, now + share)


def line_of(one: Tried) -> str:
    took = f"{one.us:8.1f} us" if one.us is not None else f"failed  {one.note} "
    return f"{took}  {', '.join(map(str, one.row[2:-1]))}"


Job = tuple[dict[str, Any], list[PredictedRow], list[Tried]]  # a case, its candidates, what is known of them


def to_compile(jobs: list[Job], at_most: int) -> list[tuple[dict[str, Any], Row]]:
    """The rows that are predicted to be the fastest and were not measured before, of all cases by turns."""
    ahead = []
    for params, rows, known in jobs:
        measured = {one.row for one in known}
        first = sorted(rows, key=lambda one: one.predicted_us)[:at_most]
        ahead.append([(params, one.row) for one in first if one.row not in measured and one.predicted_us < math.inf])
    return [job for turn in itertools.zip_longest(*ahead) for job in turn if job]


def case_found(case: CaseBench, rows: list[PredictedRow], found: SearchResult, until: float) -> CaseFound:
    """The case's result: the best of the finalists, measured in turn until then."""
    finalists, reference_us = case.in_turn(found, until)
    best = finalists[0] if finalists else None
    predictions = {one.row: one.predicted_us for one in rows}
    text = FOUND.format(
        us=best.us if best else 0,
        ratio=f"{reference_us / best.us:.3f} times as fast as the reference, " if best and reference_us else "",
        measured=len(found.tried),
        count=len(rows),
        ended=found.ended,
        gpu=torch.cuda.get_device_name(0),
        day=f"{datetime.now(UTC):%Y-%m-%d}",
    )
    return CaseFound(
        params=case.params,
        best=(*best.row[:-1], text) if best else None,
        best_us=best.us if best else None,
        candidates=len(rows),
        measured=len(found.tried),
        pruned=found.pruned,
        ended=found.ended,
        predicted_us=_finite(predictions.get(best.row)) if best else None,
        failed=tuple(f"{one.row}: {one.note}" for one in found.tried if one.us is None),
        finalists=finalists,
        reference_us=reference_us,
    )


def only_predicted(modules: Modules, order: TuneOrder, rates: Rates) -> Iterator[CaseFound]:
    """The row with the least predicted time of each case; nothing is measured."""
    chip = modules.chip(order)
    for params in order.cases:
        rows = candidates(modules, chip, params, rates)
        best = min(rows, key=lambda one: one.predicted_us)
        yield CaseFound(
            params=params,
            best=best.row,
            best_us=None,
            candidates=len(rows),
            measured=0,
            pruned=search.hopeless(rows),
            ended="only predicted",
            predicted_us=_finite(best.predicted_us),
            failed=(),
        )


def _finite(predicted_us: float | None) -> float | None:
    """The prediction; None for a row that does not fit, whose time is infinite: JSON has no such number."""
    return None if predicted_us == math.inf else predicted_us


def new_table(modules: Modules, cases: Sequence[CaseFound]) -> tuple[str, ...]:
    """The table's lines with the best rows at their places. Rows of other chips keep their order."""
    rows, unmeasured = list(modules.tuning.TABLE), getattr(modules.tuning, table.UNMEASURED, None)
    for case in cases:
        if case.best is None:
            continue
        best, place = modules.row(case.best), modules.space.place(case.params)
        same = [
            row
            for row in rows
            if row.chip == best.chip and all(getattr(row, name) == value for name, value in place.items())
        ]
        rows = [row for row in rows if row not in same]
        behind = [index for index, row in enumerate(rows) if row.chip == best.chip]
        rows.insert(behind[-1] + 1 if behind else 0, best)
    return tuple(table.line_of(tuple(row), unmeasured) for row in rows)


def main(path: str) -> None:
    order = json_file.record_of(TuneOrder, Path(path).read_text())
    modules = Modules(Path(order.root), order.problem)
    rates = replace(order.rates, multiprocessors=modules.chip(order).multiprocessors)
    found: list[CaseFound] = []
    for one in (only_predicted if order.chip else tuned)(modules, order, rates):
        found.append(one)
        gpu = order.chip or torch.cuda.get_device_name(0)
        lines = () if order.chip else new_table(modules, found)
        result = records.TuneResult(gpu=gpu, cases=tuple(found), table=lines)
        replace_file(Path(order.out), json_file.line_of(result).encode())
        print(f"{len(found)} of {len(order.cases)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
