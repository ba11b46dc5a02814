"""The figures of docs/measurements.md that need GPUs, printed as Markdown: one command, one rank a GPU.

    python3 bench/gpu.py --ranks 4                      all of them (about 20 minutes)
    python3 bench/gpu.py --ranks 4 evaluations          what each clock says of the reference; turn-around; resolution
    python3 bench/gpu.py --ranks 4 repeats ordering
    python3 bench/gpu.py --ranks 4 entries --record     ... and keeps them in leaderboard.yaml
    python3 bench/gpu.py --ranks 4 --data docs/measurements/2-gpu-4x-h200/70-again.yaml     ... and in the document

entries      submission.py and torch_fused.py, official suite: device and wall times a shape beside reference and bound
resolution   empty calls, and what they consist of
evaluations  the reference as a submission, official suite: each clock beside the bound, an empty call, phases
repeats      the same several times: how far apart are device times and speedups?
ordering     a submission that is made 2 % slower on purpose, against the reference: is it always seen?
"""

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from figures import Figures, add_data_argument, need_gpus

from harness.board import report_json
from harness.core.checkout import Checkout
from harness.core.records import Bound, CaseResult, EvalReport, Measured
from harness.core.stats import geomean, log_ratios, median, spread
from harness.judging import verdict
from harness.machine import gpus
from harness.problems.shape_file import find, problem_names
from harness.ranks.clocks import device_us
from harness.ranks.group import CallOrder
from harness.ranks.launch import Launch, Ranks
from harness.ranks.witness import wall_us
from harness.ranks.zygotes import ROLES

ENTRIES = ("submission.py", "peers/torch_fused.py")  # beside the reference, which every evaluation times
SLOWER = Path(__file__).resolve().parent / "slower.py"


def main() -> None:
    names = operators()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", help=f"of {', '.join(BENCHES)} (default: all)")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--times", type=int, default=5, help="evaluations a problem in repeats (default: %(default)s)")
    parser.add_argument("--seconds", default="1", help="a shape (default: %(default)s; evaluations: the suite's own)")
    parser.add_argument("--duels", type=int, default=10, help="evaluations in ordering (default: %(default)s)")
    parser.add_argument("--problems", nargs="*", choices=names, default=names, help="of repeats and entries")
    parser.add_argument("--record", action="store_true", help="keep the evaluations in leaderboard.yaml")
    parser.add_argument("--author", default="maintainers", help="whom to record them under (default: %(default)s)")
    parser.add_argument("--keep", type=Path, help="folder for every evaluation's JSON")
    add_data_argument(parser)
    options = parser.parse_args()
    if unknown := set(options.which) - set(BENCHES):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    cards = gpus.gpu_names()
    need_gpus(parser, options.ranks, len(cards))
    which = options.which or list(BENCHES)
    options.figures = Figures(", ".join(which).capitalize(), f"{options.ranks}x {' and '.join(sorted(set(cards)))}")
    for name in which:
        BENCHES[name](options)
        options.figures.write(options.data)


def operators() -> list[str]:
    """The problems of several ranks whose calls are a kernel's; models and trainings have clocks of their own."""
    problems = [find(name, Checkout.here()) for name in problem_names(Checkout.here())]
    return [problem.name for problem in problems if problem.kind == "op" and problem.multi_gpu]


def evaluate(options: argparse.Namespace, problem: str, file: Path, *arguments: str) -> EvalReport:
    """One evaluation on GPUs: its report, and its JSON in --keep's folder."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        command = [sys.executable, "-m", "harness", "eval", problem, str(file), "--ranks", str(options.ranks)]
        command += ["--author", options.author] if options.record else ["--no-record"]
        command += ["--json", str(result), *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        text = result.read_text()
    report = report_json.from_json(json.loads(text))
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        (options.keep / f"{report.run_id}-{problem}.json").write_text(text)
    return report


def benchmarks(options: argparse.Namespace, times: int, problem: str, file: Path) -> list[EvalReport]:
    """So many evaluations without tests; those that are done when it is interrupted."""
    found = []
    with contextlib.suppress(KeyboardInterrupt):
        for _ in range(times):
            found.append(evaluate(options, problem, file, "--mode", "benchmark", "--seconds", options.seconds))
    return found


def reference_of(problem: str) -> Path:
    return ROOT / "submissions" / problem / "reference.py"


def measured(report: EvalReport) -> list[tuple[CaseResult, Measured]]:
    return list(verdict.measured_cases(report))


def own_us(case: Measured, clock: str) -> float:
    return median(case.by_name[clock].own)


def ref_us(case: Measured, clock: str) -> float:
    return median(case.by_name[clock].baseline)


def bound_of(result: CaseResult) -> Bound:
    assert result.bound is not None, "the problem has a cost"
    return result.bound


def device_geomean_us(report: EvalReport) -> float:
    return geomean([own_us(case, "device") for _, case in measured(report)])


def device_speedup(report: EvalReport) -> float:
    return geomean([math.exp(median(log_ratios(case.by_name["device"]))) for _, case in measured(report)])


def wall_speedup(report: EvalReport) -> float:
    assert report.figures is not None
    assert report.figures.ratio is not None
    return report.figures.ratio.value


def machine_of(report: EvalReport) -> str:
    assert report.environment is not None
    return report.environment.machine_class


def evaluations(options: argparse.Namespace) -> None:
    phases = []
    for problem in options.problems:
        report = evaluate(options, problem, reference_of(problem))
        clocks = list(report.empty_call_samples_us)
        rows = []
        for result, case in measured(report):
            cells = [f"{ref_us(case, clock):.1f}" for clock in clocks]
            bound = bound_of(result)
            reached = f"{bound.value / ref_us(case, 'device'):.0%}"
            apart = f"{spread(case.by_name['device'].own):.1%}"
            rows.append([label(result), *cells, apart, f"{bound.value:.1f} ({bound.by})", reached])
        means = [f"{geomean([ref_us(case, clock) for _, case in measured(report)]):.1f}" for clock in clocks]
        limit = geomean([bound_of(result).value for result, _ in measured(report)])
        assert report.figures is not None
        assert report.figures.fraction is not None
        rows.append(["geometric mean", *means, "", f"{limit:.1f}", f"{report.figures.fraction.value:.0%}"])
        empty = [f"{median(report.empty_call_samples_us[clock]):.1f}" for clock in clocks]
        rows.append(["an empty call", *empty, "", "", ""])
        columns = ["shape", *(f"{clock} us" for clock in clocks), "spread (device)", "limit us", "of it (device)"]
        title = f"{problem}, the reference, {machine_of(report)}, W = {options.ranks}"
        options.figures.table(columns, rows, title)
        phases.append([problem, sum(report.phases_s.values()), *report.phases_s.values()])
    options.figures.table(["problem", "whole", *report.phases_s], phases, "Turn-around, seconds by phase")


def entries(options: argparse.Namespace) -> None:
    seconds = ("--seconds", options.seconds)
    for problem in options.problems:
        files = [file for file in ENTRIES if (ROOT / "submissions" / problem / file).exists()]
        reports = [evaluate(options, problem, ROOT / "submissions" / problem / file, *seconds) for file in files]
        rows = []
        for each in zip(*map(measured, reports), strict=True):
            first, case = each[0]
            both = [(ref_us(case, "device"), ref_us(case, "wall"))]
            both += [(own_us(case, "device"), own_us(case, "wall")) for _, case in each]
            rows.append((label(first), bound_of(first).value, both))
        means = [
            (geomean([device for device, _ in entry]), geomean([wall for _, wall in entry]))
            for entry in zip(*(row[2] for row in rows), strict=True)
        ]
        rows.append(("geometric mean", geomean([row[1] for row in rows]), means))
        cells = [
            [name, f"{bound:.1f}", *(f"{device:.1f} ({wall:.1f})" for device, wall in both)]
            for name, bound, both in rows
        ]
        speedups = [
            f"{file} {wall_speedup(report):.2f} on wall, {device_speedup(report):.2f} on device"
            for file, report in zip(files, reports, strict=True)
        ]
        title = f"{problem}, {machine_of(reports[0])}, W = {options.ranks}: device (wall) us"
        after = f"Speedup over the reference of the same evaluation: {'; '.join(speedups)}.\n"
        options.figures.table(["shape", "limit us", "reference", *files], cells, title, after)


def resolution(options: argparse.Namespace) -> None:
    """Empty calls on the wall clock, taken apart: how far apart ranks start, how long each takes."""
    folder = Path(tempfile.mkdtemp(prefix="kernel-eval-bench-"))
    launch = Launch(world_size=options.ranks, device="cuda", threads=4, spin=True, folder=folder)
    for role in ROLES:
        for rank in range(options.ranks):
            launch.workdir(role, rank).mkdir(parents=True)
    with Ranks(launch) as ranks:
        deadline = time.monotonic() + 60
        calls = [ranks.trusted.call(CallOrder(indices=[-1]), deadline)[0] for _ in range(200)]
        burst = ranks.trusted.call(CallOrder(indices=[-1] * 200), deadline)
        on_device = CallOrder(indices=[-1], clock="device")
        device = [device_us(ranks.trusted.call(on_device, deadline)[0]) for _ in range(50)]
    apart = [(max(c.start_ns for c in called) - min(c.start_ns for c in called)) / 1000 for called in calls]
    longest = [max(c.end_ns - c.start_ns for c in called) / 1000 for called in calls]
    rows = [
        [name, min(values), *statistics.quantiles(values, n=4), max(values)]
        for name, values in (
            ("wall, one by one", [wall_us(called) for called in calls]),
            ("  of it: last start after first start", apart),
            ("wall, in a burst", [wall_us(called) for called in burst]),
            ("  of it: longest rank", longest),
            ("device", device),
        )
    ]
    options.figures.table(["clock", "least", "quartile", "median", "quartile", "most"], rows, "An empty call, us")


def repeats(options: argparse.Namespace) -> None:
    rows = []
    for problem in options.problems:
        reports = benchmarks(options, options.times, problem, reference_of(problem))
        if not reports:
            break
        for clock_name, values in (
            ("device geomean of the submission, us", [device_geomean_us(report) for report in reports]),
            ("device speedup", [device_speedup(report) for report in reports]),
            ("wall speedup", [wall_speedup(report) for report in reports]),
        ):
            apart = max(values) / min(values) - 1
            rows.append([problem, clock_name, " ".join(f"{value:.4g}" for value in values), f"{apart:.1%}"])
    title = "Repeatability: the reference as a submission, a value an evaluation"
    options.figures.table(["problem", "", "values", "largest over smallest"], rows, title)


def ordering(options: argparse.Namespace) -> None:
    speedups = [device_speedup(report) for report in benchmarks(options, options.duels, "gemm_rs", SLOWER)]
    seen = sum(speedup < 1 for speedup in speedups)
    options.figures.table(
        ["ranked below the original", "its speedup over the original, device clock"],
        [[f"{seen} of {len(speedups)}", " ".join(f"{speedup:.4f}" for speedup in speedups)]],
        "Ordering: gemm_rs made 2 % slower by a calibrated wait on the device, against the reference",
    )


def label(result: CaseResult) -> str:
    case = result.case
    return " ".join(f"{case.short.get(name, name)} {value}".lower() for name, value in case.params.items())


BENCHES = {
    "entries": entries,
    "resolution": resolution,
    "evaluations": evaluations,
    "repeats": repeats,
    "ordering": ordering,
}

if __name__ == "__main__":
    os.chdir(ROOT)
    main()
