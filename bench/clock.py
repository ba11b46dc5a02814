"""Is the ranked clock of GPUs right? Evaluations beside a loop of CUDA events that knows nothing of that clock.

    python3 bench/clock.py agree rms_norm gemm           the shipped files: ranked time of each shape over the events'
    python3 bench/clock.py agree rms_norm --busy 32      the same beside so many processes that never rest
    python3 bench/clock.py same rms_norm gemm_rs --times 5 --ranks 2     the reference against itself
    python3 bench/clock.py phases rms_norm               what the parent sees of calls: medians and quartiles, in us;
                                                         and where an evaluation's seconds go
    python3 bench/clock.py phases a2a --ranks 2 --keep SEEN.json         the same; every call's stamps go to the file
                                                                         (also of same)
    python3 bench/clock.py recount SEEN.json             what the calls in such files count by the rules of today

The loop runs in a process of its own, one call at a time with flushed caches, behind a kernel that holds the device
while the host submits the call; what two events without a call between them read is taken off. The rate at which a GPU
near its power cap runs depends on the numbers that it works on and on what it did before. So inputs are hardened, as in
evaluations, a fresh one a turn, and the loop rests for as long as the evaluation did between all calls of either side.
"""

import argparse
import contextlib
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from figures import ROOT, Cell, Figures, add_data_argument, need_gpus
from trust import busy_cores

from harness.core.checkout import Checkout
from harness.core.decode import decode, encode
from harness.core.records import EvalReport, Measured, Submission
from harness.core.stats import ratios_of
from harness.evaluation.evaluate import evaluate
from harness.judging import verdict
from harness.kinds import staging
from harness.kinds.kind import Order, Progress, Setting
from harness.kinds.op.calls import Calls
from harness.kinds.op.check import Probe
from harness.kinds.op.measure import CaseMeasurement
from harness.kinds.op.plan import make_plan
from harness.kinds.op.stepped import Stepping
from harness.kinds.registry import find
from harness.kinds.settings import LAUNCHES
from harness.machine import host
from harness.machine.gpus import gpu_names
from harness.machine.nvml import LinkCounters
from harness.problems.submission import read_submission
from harness.ranks import clocks
from harness.ranks.device_witness import DeviceWitness
from harness.ranks.stepped import Seen, Stepper

REFERENCE = "from reference import ref_kernel as custom_kernel\n"
COLD_CALLS, EVENT_CALLS = 3, 28  # of the loop, that do not count, and all
HOLD_CYCLES = 1_000_000  # half a millisecond, in which a host submits a call
TURN_US = 10_000.0  # no two calls of a turn are that far apart


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("agree", "same", "phases", "recount", "events"))
    parser.add_argument("problems", nargs="+", metavar="PROBLEM", help="or files, of recount")
    parser.add_argument("--suite", default="official", help="(default: %(default)s)")
    parser.add_argument("--ranks", type=int, default=1, help="(default: %(default)s)")
    parser.add_argument("--times", type=int, default=1, help="evaluations a problem (default: %(default)s)")
    parser.add_argument("--seconds", type=float, help="a shape (default: the suite's)")
    parser.add_argument("--launches", type=int, help="(default: 1, in same an evaluation's own)")
    parser.add_argument("--file", type=Path, help="phases of this submission (default: the shipped one)")
    parser.add_argument("--keep", type=Path, help="where phases and same write all calls' stamps, of one problem")
    parser.add_argument("--busy", type=int, default=0, help="processes that never rest (default: none)")
    add_data_argument(parser)
    options = parser.parse_args()
    if options.what != "recount":
        need_gpus(parser, options.ranks, len(gpu_names() or ()))
    if options.what == "events":
        print(json.dumps(events_us(options.problems[0], options.suite, json.load(sys.stdin))))
        return
    figures = Figures(
        "The ranked clock of GPUs", host.environment((gpu_names() or ("",))[0], options.ranks).machine_class
    )
    with busy_cores(options.busy):
        rows = []
        for row in (row for problem in options.problems for row in ROWS[options.what](problem, options)):
            print(*row, file=sys.stderr, flush=True)
            rows.append(row)
    figures.table(
        COLUMNS[options.what], rows, after=f"Suite `{options.suite}`, {options.busy} busy processes.", decimals=3
    )
    figures.write(options.data)


def agree(problem: str, options: argparse.Namespace) -> Iterator[tuple[Cell, ...]]:
    """The ranked median of each shape beside the events'."""
    for _ in range(options.times):
        report, seen = evaluated(problem, options, None)
        shapes = measured(report)
        by_events = in_a_process(problem, options.suite, list(map(rests_us, seen[: len(shapes)])))
        for result, events in zip(shapes, by_events, strict=True):
            ranked = statistics.median(result.ranked.own)
            yield problem, result.ranked.metric.name, ranked, events, ranked / events, len(result.ranked.own)


def same(problem: str, options: argparse.Namespace) -> Iterator[tuple[Cell, ...]]:
    """How many times as fast as itself the reference is shown."""
    kept: list[DeviceWitness] = []
    for _ in range(options.times):
        began = time.monotonic()
        report, seen = evaluated(problem, options, REFERENCE)
        kept += seen
        keep(options.keep, kept)
        assert report.figures is not None
        assert report.figures.ratio is not None
        launches = [ratios_of(one.ranked).by_launch for one in measured(report)]
        for number, shape in enumerate(launches):
            told = " ".join(f"{math.exp(statistics.median(logs)):.4f}" for logs in shape)
            print(f"{problem}, shape {number}, by launch: {told}", file=sys.stderr, flush=True)
        shapes = [math.exp(statistics.fmean(map(statistics.median, shape))) for shape in launches]
        yield problem, report.figures.ratio.value, min(shapes), max(shapes), time.monotonic() - began


def phases(problem: str, options: argparse.Namespace) -> Iterator[tuple[Cell, ...]]:
    """What the parent saw of every kind of call of a shape. Prints where the evaluation's seconds went."""
    spent = Spent()
    with contextlib.ExitStack() as watched:
        for kind, name in ((kind, name) for kind, names in WATCHED for name in names.split()):
            watched.enter_context(mock.patch.object(kind, name, spent.noting(getattr(kind, name), name)))
        report, seen = evaluated(problem, options, options.file.read_text() if options.file else None)
    print(f"{problem}: {report.phases_s} s, of it", *spent.lines(), sep="\n", file=sys.stderr)
    print(f"{problem}: {report.figures.ratio if report.figures else verdict.first_failure(report)}", file=sys.stderr)
    keep(options.keep, seen)
    yield from seen_of(problem, seen)


def keep(file: Path | None, seen: Sequence[DeviceWitness]) -> None:
    """Writes the stamps of these cases, launch by launch, if they are to be kept."""
    if file:
        file.write_text(json.dumps(encode(seen)))


def recount(file: str, options: argparse.Namespace) -> Iterator[tuple[Cell, ...]]:
    """The same of calls whose stamps were kept."""
    yield from seen_of(Path(file).stem, decode(list[DeviceWitness], json.loads(Path(file).read_text())))


def seen_of(problem: str, seen: Sequence[DeviceWitness]) -> Iterator[tuple[Cell, ...]]:
    """A row for each kind of call of each shape. Prints what the submission's count."""
    for number, one in enumerate(seen):
        claims_us, counted_us = one.claims_us(one.own), one.counted_us()[0]
        claimed, counted = (f"{statistics.median(times_us):.2f} us" for times_us in (claims_us, counted_us))
        told = f"claims {'do not ' * (claims_us != counted_us)}count: {claimed} claimed, {counted} counted"
        print(f"{problem}, shape {number}: {told}", file=sys.stderr)
        for name in ("own", "ref", "idle", "copies"):
            calls: Sequence[Seen] = getattr(one, name)
            if not calls:
                continue
            times = [
                [call.call_us for call in calls],
                [call.around_us for call in calls],
                [call.copy_us for call in calls],
                [call.gap_ns / 1000 for call in calls],
                [call.host_us for call in calls],
                [max(call.ranks_us()) - min(call.ranks_us()) for call in calls],
            ]
            cells = (
                f"{statistics.median(each):.2f} ({quartile(each, 1):.2f} to {quartile(each, 3):.2f})" for each in times
            )
            yield problem, number, name, len(calls), sum(call.is_ahead for call in calls), *cells


WATCHED: tuple[tuple[type, str], ...] = (
    (CaseMeasurement, "samples block repeated"),
    (Calls, "make load turn verify"),
    (Stepping, "warm_up block turn _drain"),
    (Stepper, "calls _queued _serve _hold"),
    (Probe, "first_silent"),
    (LinkCounters, "read"),
)


class Spent:
    """How long functions take, each by those that it is called in."""

    def __init__(self) -> None:
        self.within: list[str] = []
        self.spent_s: dict[str, list[float]] = {}

    def noting(self, work: Callable[..., Any], name: str) -> Callable[..., Any]:
        """The function, which notes how long it takes in the thread that evaluates."""
        thread = threading.get_ident()

        def noted(*arguments: Any, **named: Any) -> Any:
            if threading.get_ident() != thread:
                return work(*arguments, **named)
            self.within.append(name)
            began = time.monotonic()
            try:
                return work(*arguments, **named)
            finally:
                self.spent_s.setdefault(" > ".join(self.within), []).append(time.monotonic() - began)
                self.within.pop()

        return noted

    def lines(self) -> list[str]:
        """Those that took the tenth of a second or more."""
        sums = ((place, len(each), sum(each)) for place, each in sorted(self.spent_s.items()))
        return [f"{seconds:7.2f} s  {count:5} times  {place}" for place, count, seconds in sums if seconds >= 0.1]


def quartile(values: Sequence[float], number: int) -> float:
    """That quartile, or the only value."""
    return statistics.quantiles(values, n=4)[number - 1] if len(values) > 1 else values[0]


def evaluated(
    problem_name: str, options: argparse.Namespace, source: str | None
) -> tuple[EvalReport, list[DeviceWitness]]:
    """An evaluation of that source, or of the shipped file, and what the parent saw of each shape."""
    problem = find(problem_name, Checkout.here())
    ranks = options.ranks if problem.multi_gpu else 1
    suite = problem.with_world_size(problem.suite(options.suite), ranks)
    if options.seconds is not None:
        suite = replace(suite, benchmark_s=options.seconds)
    submission = (
        Submission(path="submission.py", name="submission.py", source=source, sha256="0" * 64)
        if source is not None
        else read_submission(problem.default_submission(), ROOT)
    )
    plan = make_plan(
        Order(
            setting=Setting(
                problem=problem,
                suite=suite,
                device="cuda",
                world_size=ranks,
                launches=options.launches or (LAUNCHES["cuda"] if options.what == "same" else 1),
            ),
            submission=submission,
            mode="leaderboard",
            author="bench",
        )
    )
    with noting_calls() as seen:
        report = evaluate(plan, Progress())
    if failed := verdict.first_failure(report):
        print(f"{problem_name}: {failed.outcome}", file=sys.stderr, flush=True)
    return report, seen


@contextmanager
def noting_calls() -> Iterator[list[DeviceWitness]]:
    """What the parent sees of every shape in the evaluations meanwhile, launch by launch."""
    seen: list[DeviceWitness] = []
    finish = clocks.Samples.measured

    def noted(samples: clocks.Samples) -> Measured:
        if samples.device is not None:
            seen.append(samples.device)
        return finish(samples)

    with mock.patch.object(clocks.Samples, "measured", noted):
        yield seen


def measured(report: EvalReport) -> list[Measured]:
    """Its benchmark shapes, without drawn ones."""
    return [measured for _, measured in verdict.measured_cases(report)]


# ---- the loop of events


def rests_us(seen: DeviceWitness) -> list[float]:
    """How long the devices rested from the kernel of either side before each call."""
    calls = sorted((*seen.own, *seen.ref), key=lambda call: call.let_ns)
    return [(after.let_ns - max(before.done_ns)) / 1000 for before, after in itertools.pairwise(calls)]


def in_a_process(problem: str, suite: str, rests: Sequence[Sequence[float]]) -> list[float]:
    """The events' medians of every shape, in us, with rests before its calls."""
    with staged(problem) as folder:
        command = [sys.executable, str(Path(__file__).resolve()), "events", problem, "--suite", suite]
        path = os.pathsep.join((str(folder), str(ROOT), str(ROOT / "bench")))
        environ = os.environ | {"PYTHONPATH": path}
        found = subprocess.run(
            command, cwd=folder, env=environ, input=json.dumps(rests), text=True, stdout=subprocess.PIPE, check=True
        )
    return list(json.loads(found.stdout.splitlines()[-1]))


@contextmanager
def staged(problem_name: str) -> Iterator[Path]:
    """A folder with the files of the problem and of its shipped submission."""
    problem = find(problem_name, Checkout.here())
    files = staging.files_of(problem, read_submission(problem.default_submission(), ROOT))
    with tempfile.TemporaryDirectory() as name:
        for file, content in files.items():
            path = Path(name) / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        yield Path(name)


def events_us(problem_name: str, suite: str, rests: Sequence[Sequence[float]]) -> list[float]:
    """Runs in the process of the loop: the median time of each benchmark shape."""
    import torch

    from harness.ranks import driver
    from harness.ranks.device import flush_scratch

    sys.path.insert(0, str(Path.cwd()))
    from submission import custom_kernel

    import reference

    scratch = flush_scratch(torch.cuda.get_device_properties(0), "cuda")
    medians = []
    for case, waits in zip(find(problem_name, Checkout.here()).suite(suite).benchmarks, rests, strict=True):
        times: list[float] = []
        ended, before_s, data = time.perf_counter(), 0.0, None  # before_s: what precedes the call when it has rested
        for number, wait_us in zip(range(EVENT_CALLS), itertools.cycle([TURN_US, *waits])):
            if data is None or wait_us >= TURN_US:
                with torch.device("cuda"):
                    data = reference.generate_input(**case.params, rank=0, world_size=1, seed=1000 + number)
                data = reference.harden(data, 1000 + number)
            start, middle, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
            torch.cuda.synchronize()
            time.sleep(max(0.0, ended + wait_us / 1e6 - before_s - time.perf_counter()))
            began = time.perf_counter()
            driver.reset_persisting_l2()
            scratch.zero_()
            torch.cuda.synchronize()
            torch.cuda._sleep(HOLD_CYCLES)
            start.record()
            middle.record()
            custom_kernel(data)
            end.record()
            torch.cuda.synchronize()
            ended = time.perf_counter()
            times.append((middle.elapsed_time(end) - start.elapsed_time(middle)) * 1000)
            before_s = ended - began - times[-1] / 1e6
        medians.append(statistics.median(times[COLD_CALLS:]))
    return medians


ROWS = {"agree": agree, "same": same, "phases": phases, "recount": recount}
SEEN_COLUMNS = (
    "problem",
    "shape",
    "calls",
    "number",
    "ahead",
    "call us",
    "around us",
    "copy us",
    "gap us",
    "host us",
    "ranks apart us",
)
COLUMNS = {
    "agree": ("problem", "ranked clock", "ranked us", "events us", "ranked / events", "calls"),
    "same": ("problem", "reference / itself", "least shape", "most", "evaluation s"),
    "phases": SEEN_COLUMNS,
    "recount": SEEN_COLUMNS,
}

if __name__ == "__main__":
    main()
