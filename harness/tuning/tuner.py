"""Tunes a problem's submission: starts the child that measures, and writes what it found into the tuning table."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from harness.core.checkout import Checkout, shown
from harness.core.decode import part
from harness.core.errors import HarnessError, UsageError
from harness.core.files import replace_file, scratch
from harness.core.json_file import file_if_any, line_of
from harness.core.processes import end_tree
from harness.machine import hardware
from harness.machine.gpus import gpu_names
from harness.problems.problem import Problem
from harness.tuning import table
from harness.tuning.records import TuneOrder, TuneResult
from harness.tuning.search import Rates

GRACE_S = 30.0  # for the kernel under way, and for the last comparison
# The GPU whose rates a prediction without one takes, and its multiprocessors (compute units); white papers.
PREDICTED = {"sm_90": ("H200", 132), "gfx942": ("MI300X", 304)}


@dataclass(frozen=True, kw_only=True)
class TuneRequest:
    """Benchmarks to tune, or their places in the suite. `pause`: clock.DeviceClock. `chip`: only predict."""

    suite: str
    places: tuple[int, ...]
    seconds: float
    at_most: int
    pause: float
    chip: str
    write: bool


def tune(problem: Problem, asked: TuneRequest, checkout: Checkout, progress: Callable[[str], None]) -> TuneResult:
    """Measures rows and, if asked to, writes the best into the table. What was measured is kept under .cache/tune, so
    the next run goes on where this one ended. Raises UsageError where the problem cannot be tuned here."""
    folder = problem.submissions_folder
    if not (folder / "space.py").is_file():
        text = "it needs a space.py beside tuning.py, see docs/kernels.md"
        ranks = " (bench/tune.py tunes kernels of several ranks)" if problem.multi_gpu else ""
        raise UsageError(f"{problem.name}: {shown(folder, checkout.root)} says nothing of its rows: {text}{ranks}")
    cases = problem.suite(asked.suite).benchmarks
    if wrong := [place for place in asked.places if not 0 <= place < len(cases)]:
        raise UsageError(f"--shapes {wrong[0]}: suite {asked.suite} has the benchmarks 0 to {len(cases) - 1}")
    chosen = [cases[place] for place in asked.places] if asked.places else cases
    order = part(
        asked,
        TuneOrder,
        root=str(checkout.root),
        problem=problem.name,
        in_place=problem.in_place,
        cases=tuple(dict(case.params) for case in chosen),
        rates=rates(asked.chip),
        began=time.monotonic(),
        kept=str(checkout.cache / "tune" / f"{problem.name}.jsonl"),
        out="",
    )
    result = by_child(order, progress)
    if asked.write and result.table:
        path = folder / "tuning.py"
        replace_file(path, table.with_rows(path.read_text(), result.table, shown(path, checkout.root)).encode())
    return result


def rates(chip: str) -> Rates:
    """Those of the chip, or of the GPU at hand, without its multiprocessors. UsageError where they are not known."""
    if chip:
        if chip not in PREDICTED:
            raise UsageError(f"--predict {chip}: known are {', '.join(PREDICTED)}")
        name, units = PREDICTED[chip]
        return part(hardware.peaks(name), Rates, multiprocessors=units)
    names = gpu_names()
    if not names:
        raise UsageError("no GPU is here to measure on; `--predict sm_90` shows what would be measured on an H200")
    peaks = hardware.match(names[0])
    if peaks is None:
        raise UsageError(f"{names[0]} is not in harness/machine/hardware.yaml: add its rates, by which rows are pruned")
    return part(peaks, Rates, multiprocessors=0)


def by_child(order: TuneOrder, progress: Callable[[str], None]) -> TuneResult:
    """Runs the child. What it found before it failed or ran out of time counts."""
    with scratch("kernel-tune-") as folder:
        order, path = replace(order, out=str(folder / "result.json")), folder / "order.json"
        path.write_text(line_of(order))
        command = [sys.executable, "-m", "harness.tuning.child", str(path)]
        with (folder / "log").open("w+") as log:
            child = subprocess.Popen(
                command, cwd=order.root, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
            watch = threading.Timer(order.seconds + GRACE_S, end_tree, (child.pid,))  # of a kernel that never ends
            watch.start()
            try:
                assert child.stdout
                for line in child.stdout:
                    progress(line.strip())
            finally:
                watch.cancel()
                end_tree(child.pid)
                child.wait()
            log.seek(0)
            last = log.read().strip().splitlines()[-1:]
        if result := file_if_any(TuneResult, Path(order.out)):
            return result
        raise HarnessError(f"tuning {order.problem} ended without a result: {''.join(last) or child}")
