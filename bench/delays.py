"""How sharp are the clocks, and what is their bias? The reference, made slower by a known time a call, against itself.

    python bench/delays.py a2a --ranks 2                      on CPU cores: a wait of the host in each call
    python3 bench/delays.py gemm_rs --device cuda --ranks 1   a wait of the device behind each call (bench/slower.py)

For each delay and clock, over the benchmark shapes of a suite: the median difference of both sides on the same input,
less the delay, which is the bias; the half-width of its 95 % interval (of the median's order statistics), which is the
resolution; both as medians over the shapes, and the bias of the shapes that are farthest off. Of the wall clock it is
what counts, after what the parent saw of each call. A delay of 0 is the reference against itself.
"""

import argparse
import hashlib
import re
import statistics
import sys
from dataclasses import replace
from pathlib import Path

from figures import Figures, add_data_argument, need_gpus

from harness.core.checkout import Checkout
from harness.core.metrics import CLOCKS
from harness.core.records import EvalReport, Measured, Series, Submission
from harness.evaluation.evaluate import evaluate
from harness.judging import verdict
from harness.kinds.kind import Order, Progress, Setting
from harness.kinds.op.plan import make_plan
from harness.kinds.registry import find
from harness.machine import host
from harness.machine.gpus import gpu_names
from harness.problems.shape_file import problem_names

DEVICE_WAITS = Path(__file__).resolve().parent / "slower.py"
HOST_WAITS = """
import time

from reference import ref_kernel

DELAY_US = None


def custom_kernel(data):
    result = ref_kernel(data)
    end_ns = time.perf_counter_ns() + 1000 * DELAY_US
    while time.perf_counter_ns() < end_ns:
        pass
    return result
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    operators = [name for name in problem_names(Checkout.here()) if find(name, Checkout.here()).kind == "op"]
    parser.add_argument("problem", choices=operators, metavar="PROBLEM")
    parser.add_argument("--device", default="cpu", help="as `eval` takes it (default: %(default)s)")
    parser.add_argument("--ranks", type=int, default=2, help="(default: %(default)s)")
    parser.add_argument("--suite", default="quick", help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="a shape (default: %(default)s)")
    parser.add_argument("--delays", type=int, nargs="+", default=[0, 5, 20, 100], metavar="US", help="(0 5 20 100)")
    add_data_argument(parser)
    options = parser.parse_args()
    names = gpu_names() or ()
    if options.device != "cpu":
        need_gpus(parser, options.ranks, len(names))
    gpu = names[0] if options.device != "cpu" else ""
    figures = Figures("Calibrated delays", host.environment(gpu, options.ranks).machine_class)
    rows = []
    for delay_us in options.delays:
        report = evaluated(options, delay_us)
        if failed := verdict.first_failure(report):
            sys.exit(f"{delay_us} us: {failed.outcome}")
        measured = [one.outcome for one in report.results if isinstance(one.outcome, Measured)]
        for clock in CLOCKS:
            series = [one.by_name[clock] for one in measured if clock in one.by_name]
            if series:
                rows.append((delay_us, clock, *shown(series, delay_us)))
                print(*rows[-1], file=sys.stderr, flush=True)
    columns = ("delay us", "clock", "call us", "bias us", "bias of the farthest shapes us", "resolution us", "samples")
    after = f"{options.problem}, suite `{options.suite}`, {options.ranks} ranks, {options.seconds:g} s a shape."
    figures.table(columns, rows, after=after, decimals=1)
    figures.write(options.data)


def evaluated(options: argparse.Namespace, delay_us: int) -> EvalReport:
    """An evaluation of the reference with that delay in each call."""
    problem = find(options.problem, Checkout.here())
    ranks = options.ranks if problem.multi_gpu else 1
    suite = replace(problem.with_world_size(problem.suite(options.suite), ranks), benchmark_s=options.seconds)
    source = HOST_WAITS if options.device == "cpu" else DEVICE_WAITS.read_text()
    if delay_us:
        source = re.sub("^DELAY_US = None", f"DELAY_US = {delay_us}", source, flags=re.MULTILINE)
    else:
        source = "from reference import ref_kernel as custom_kernel\n"
    name = f"delay_{delay_us}.py"
    submission = Submission(path=name, name=name, source=source, sha256=hashlib.sha256(source.encode()).hexdigest())
    return evaluate(
        make_plan(
            Order(
                setting=Setting(problem=problem, suite=suite, device=options.device, world_size=ranks),
                submission=submission,
                mode="benchmark",
                author="bench",
            )
        ),
        Progress(),
    )


def shown(series: list[Series], delay_us: float) -> tuple[float, float, str, float, int]:
    """Over the shapes: a call's median time, the bias, its least and most, the resolution; and how many samples."""
    biases, halves = [], []
    for one in series:
        differences = sorted(own - reference for own, reference in zip(one.own, one.baseline, strict=True))
        count = len(differences)
        aside = max(0, int(count / 2 - 0.98 * count**0.5))  # order statistics around the median
        biases.append(statistics.median(differences) - delay_us)
        halves.append((differences[count - 1 - aside] - differences[aside]) / 2)
    call_us = statistics.median(statistics.median(one.baseline) for one in series)
    farthest = f"{min(biases):.1f} to {max(biases):.1f}"
    samples = sum(len(one.own) for one in series)
    return call_us, statistics.median(biases), farthest, statistics.median(halves), samples


if __name__ == "__main__":
    main()
