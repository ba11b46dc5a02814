"""The tuner's child: imports a submission, compiles and measures rows of its table. Started by tuner.py with the path
of an order; prints a line a row and a case; its result is a file.

A call's time is the median of events around calls with cold caches. If the problem works in place, each call gets the
same input. A row whose result the strict verdict refuses is
left out. The best rows are measured in turn once more at the end, because a GPU that grows warm becomes slower.
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
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import torch

from harness.judging import correctness
from harness.ranks.strict_check import parts_of
from harness.tuning import inputs, records, search, table
from harness.tuning.records import CaseFound, Kept, Order
from harness.tuning.search import Candidate, Found, Rates, Tried

DEVICE = "cuda"
WARM, CALLS = 2, 9
ROUNDS = 3  # of finalists in turn
FLUSH_BYTES = 256 << 20  # more than the L2 cache of any GPU
SEED = 7
COMPILE_SHARE = 0.4  # of the seconds, at most, before the first row is measured
MOST_PROCESSES = 16
FOUND = "{us:.1f} us, best of {measured} measured of {count} ({ended}), {gpu}, {day}"


class Modules:
    """A problem's files, imported."""

    def __init__(self, root: Path, problem: str) -> None:
        folders = (f"reference/{problem}", "reference/common", f"submissions/{problem}", "submissions")
        sys.path[:0] = [str(root / folder) for folder in folders]
        self.tuning, self.space = importlib.import_module("tuning"), importlib.import_module("space")
        self.chips = importlib.import_module("common.tuning")
        self.reference = importlib.import_module("reference")
        files = sorted([*(root / folders[2]).glob("*.py"), *(root / "submissions" / "common").glob("*.py")])
        texts = [path.read_bytes() for path in files if path.name not in ("tuning.py", "space.py")]
        self.digest = hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]

    def chip(self, order: Order) -> Any:
        """The chip of the order, or the one at hand."""
        if order.chip:
            return self.chips.Chip(order.chip, order.multiprocessors, self.chips.CHIPS.get(order.chip, 1))
        return self.chips.chip_of(torch.device("cuda", 0))

    def row(self, fields: Iterable[object]) -> Any:
        return self.tuning.Row(*fields)

    def fields(self, row: Any) -> dict[str, object]:
        """A row's values by their names."""
        return dict(zip(self.tuning.Row.__annotations__, row, strict=True))


def candidates(modules: Modules, chip: Any, params: dict[str, Any], rates: Rates) -> list[Candidate]:
    """The table's rows for the case's place or nearest to it, then those of the space, each once."""
    place = modules.space.place(params)
    same = {name: value for name, value in place.items() if name != "shape"}
    rows = [row for row in modules.tuning.TABLE if row.chip == chip.name]
    rows = [row for row in rows if all(getattr(row, name) == value for name, value in same.items())]
    own = [modules.chips.nearest(rows, chip.name, place["shape"])] if rows else []
    all_rows = [*own, *modules.space.rows(chip.name, params)]
    found = dict.fromkeys(modules.row({**modules.fields(row), **place, "found": ""}.values()) for row in all_rows)
    return [Candidate(row=tuple(row), predicted_us=predicted(modules, row, params, rates)) for row in found]


def predicted(modules: Modules, row: Any, params: dict[str, Any], rates: Rates) -> float:
    need = modules.space.need(row, params)
    return search.predicted_us(need.flops, need.hbm_bytes, need.read_bytes, need.tiles, need.fit, rates)


def precompile(job: tuple[str, str, Order, tuple[tuple[dict[str, Any], tuple[object, ...]], ...]]) -> None:
    """Fills Triton's cache, in a process of its own."""
    root, problem, order, work = job
    modules = Modules(Path(root), problem)
    chip = modules.chip(order)
    for params, fields in work:
        with contextlib.suppress(Exception):  # it does not fit: measuring it will say so
            modules.space.compile_row(modules.row(fields), chip, params)


def compile_ahead(order: Order, work: list[tuple[dict[str, Any], tuple[object, ...]]]) -> None:
    """Compiles by as many processes as help, and goes on when COMPILE_SHARE of the time is spent: what is missing then
    is compiled when its turn comes."""
    count = min(MOST_PROCESSES, multiprocessing.cpu_count(), len(work))
    parts = [tuple(work[index::count]) for index in range(count)]
    pool = ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))
    futures = [pool.submit(precompile, (order.root, order.problem, order, part)) for part in parts]
    deadline = time.monotonic() + COMPILE_SHARE * order.seconds
    for future in futures:
        with contextlib.suppress(TimeoutError):
            future.result(timeout=max(0.0, deadline - time.monotonic()))
    for process in multiprocessing.active_children():
        process.kill()
    pool.shutdown(wait=False, cancel_futures=True)


class Bench:
    """Measures calls on the GPU at hand."""

    def __init__(self) -> None:
        self.scratch = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=DEVICE)

    def times_us(self, call: Callable[[], Any], restore: Callable[[], None]) -> list[float]:
        """`restore` gives the call its input back; the caches are flushed behind it."""
        new: Callable[..., Any] = torch.cuda.Event
        events = [(new(enable_timing=True), new(enable_timing=True)) for _ in range(WARM + CALLS)]
        for start, end in events:
            restore()
            self.scratch.zero_()
            start.record()
            call()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) * 1000 for start, end in events[WARM:]]


class RowCall(NamedTuple):
    """A row's call, and what gives it its input back."""

    run: Callable[[], Any]
    restore: Callable[[], None]


class CaseBench:
    """One case: its input, the right result, and what a row makes of it. `in_place`: calls may overwrite their
    input."""

    def __init__(self, modules: Modules, chip: Any, bench: Bench, params: dict[str, Any], in_place: bool) -> None:
        self.modules, self.chip, self.bench, self.params, self.in_place = modules, chip, bench, params, in_place
        with torch.device(DEVICE):
            self.given = modules.reference.generate_input(rank=0, world_size=1, seed=SEED, **params)
            self.expected = modules.reference.exact_kernel(self.hardened())

    def hardened(self) -> Any:
        """The input anew, as a call may have written its result over it."""
        return self.modules.reference.harden(self.given, SEED)

    def call(self, fields: tuple[object, ...]) -> RowCall | None:
        """The call with a row, on the hardened input; None where the row cannot do the shape."""
        data = self.hardened()
        restore = inputs.restorer(data, self.in_place)
        call = self.modules.space.call(self.modules.row(fields), self.chip, data)
        return None if call is None else RowCall(call, restore)

    def measure(self, fields: tuple[object, ...]) -> Tried:
        """A row's median time, or why it is no good."""
        try:
            call = self.call(fields)
            if call is None:
                return Tried(row=fields, us=None, note="not for this shape")
            note = self.judged(call.run())
            return Tried(row=fields, us=None if note else statistics.median(self.bench.times_us(*call)), note=note)
        except Exception as error:  # too much shared memory, too many registers
            return Tried(row=fields, us=None, note=f"{type(error).__name__}: {str(error).splitlines()[0][:120]}")

    def judged(self, output: Any) -> str:
        """What is wrong with a result; "" where nothing is."""
        outputs = output if isinstance(output, tuple) else (output,)
        pairs = zip(outputs, parts_of(self.expected), strict=True)
        verdicts = (correctness.strict(one, right) for one, right in pairs)
        return next((f"wrong: {one.message}" for one in verdicts if not one.passed), "")

    def in_turn(self, found: Found) -> dict[tuple[object, ...], float]:
        """The medians of the best rows, measured in turn."""
        best = [one.row for one in found.tried if one.us is not None][: search.FINALISTS]
        calls = {row: self.call(row) for row in best}
        times: dict[tuple[object, ...], list[float]] = {row: [] for row in best}
        for _ in range(ROUNDS):
            for row, call in calls.items():
                if call:
                    times[row] += self.bench.times_us(*call)
        return {row: statistics.median(each) for row, each in times.items() if each}


def tuned(modules: Modules, order: Order, rates: Rates) -> Iterator[CaseFound]:
    """Each case in turn. What time one leaves is for the next ones."""
    end, chip, gpu = time.monotonic() + order.seconds, modules.chip(order), torch.cuda.get_device_name(0)
    kept = records.load(Path(order.kept))
    jobs = [
        (params, candidates(modules, chip, params, rates), records.tried(kept, gpu, modules.digest, params))
        for params in order.cases
    ]
    if work := to_compile(jobs, order.at_most):
        compile_ahead(order, work)
    bench = Bench()
    for index, (params, rows, known) in enumerate(jobs):
        until = time.monotonic() + (end - time.monotonic()) / (len(jobs) - index)
        case = CaseBench(modules, chip, bench, params, order.in_place)

        def measure(fields: tuple[object, ...], case: CaseBench = case) -> Tried:
            one = case.measure(fields)
            print(line_of(one), flush=True)
            row = (*fields[:-1], "")
            kept = Kept(gpu=gpu, digest=modules.digest, params=case.params, row=row, us=one.us, note=one.note)
            records.keep(Path(order.kept), kept)
            return one

        def is_over(until: float = until) -> bool:
            return time.monotonic() > until

        found = search.search(rows, known, measure, order.at_most, is_over)
        yield case_found(case, rows, found)


def line_of(one: Tried) -> str:
    """A measured row, for people who wait."""
    took = f"{one.us:8.1f} us" if one.us is not None else f"failed  {one.note} "
    return f"{took}  {', '.join(map(str, one.row[2:-1]))}"


Job = tuple[dict[str, Any], list[Candidate], list[Tried]]  # a case, its candidates, what is known of them


def to_compile(jobs: list[Job], at_most: int) -> list[tuple[dict[str, Any], tuple[object, ...]]]:
    """The rows that are predicted to be the fastest and were not measured before, of all cases by turns."""
    ahead = []
    for params, rows, known in jobs:
        measured = {one.row for one in known}
        first = sorted(rows, key=lambda one: one.predicted_us)[:at_most]
        ahead.append([(params, one.row) for one in first if one.row not in measured and one.predicted_us < math.inf])
    return [job for turn in itertools.zip_longest(*ahead) for job in turn if job]


def case_found(case: CaseBench, rows: list[Candidate], found: Found) -> CaseFound:
    """The case's result: the best of the finalists, measured in turn."""
    times = case.in_turn(found)
    best = min(times, key=lambda row: times[row], default=None)
    predictions = {one.row: one.predicted_us for one in rows}
    text = FOUND.format(
        us=times[best] if best else 0,
        measured=len(found.tried),
        count=len(rows),
        ended=found.ended,
        gpu=torch.cuda.get_device_name(0),
        day=f"{datetime.now(UTC):%Y-%m-%d}",
    )
    return CaseFound(
        params=case.params,
        best=(*best[:-1], text) if best else None,
        best_us=times[best] if best else None,
        candidates=len(rows),
        measured=len(found.tried),
        pruned=found.pruned,
        ended=found.ended,
        predicted_us=predictions.get(best) if best else None,
        failed=tuple(f"{one.row}: {one.note}" for one in found.tried if one.us is None),
    )


def only_predicted(modules: Modules, order: Order, rates: Rates) -> Iterator[CaseFound]:
    """What would be measured."""
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
            predicted_us=best.predicted_us,
            failed=(),
        )


def new_table(modules: Modules, cases: Sequence[CaseFound]) -> tuple[str, ...]:
    """The lines of the table with the best rows in place of those at their places. Rows of other chips stay in their
    order."""
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
    order = records.read_order(Path(path))
    modules = Modules(Path(order.root), order.problem)
    rates = Rates(
        flops_per_s=order.flops_per_s,
        hbm_bytes_per_s=order.hbm_bytes_per_s,
        multiprocessors=modules.chip(order).multiprocessors,
    )
    found: list[CaseFound] = []
    for one in (only_predicted if order.chip else tuned)(modules, order, rates):
        found.append(one)
        gpu = order.chip or torch.cuda.get_device_name(0)
        lines = () if order.chip else new_table(modules, found)
        records.write(Path(order.out), records.Result(gpu=gpu, cases=tuple(found), table=lines))
        print(f"{len(found)} of {len(order.cases)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
