"""What trust costs an honest evaluation, and what the corpora show.

    python bench/trust.py cost [--pairs 5]      whole evaluations of shipped submissions, with and without what is there
                                                for distrust alone, in turn
    python bench/trust.py corpus [--only WHICH] [--workers N]     the tests of hostile files and of faults, counted
    python bench/trust.py busy [--times 20]     evaluations of honest files beside other work: how many are held?
    python bench/trust.py attacks [--times 1] [--files NAME ...] [--device cuda] [--ranks 2]     files of tests/hostile/
                                                and honest controls: how they end, the speedup that they show, and in
                                                how many shapes their claims did not count

Without: no probe, no cache test, no idle calls, no comparison with the parent's clock; the sandbox stays on, what it
takes to confine a cell is measured apart and added. Judging timed outputs is not counted as a cost: an evaluator that
did not would be wrong, not quick.
"""

import argparse
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

from figures import ROOT, Figures, add_data_argument

from harness.core.checkout import Checkout
from harness.core.errors import HarnessError
from harness.core.records import Estimate, EvalReport, Measured, Mode, Submission
from harness.evaluation.evaluate import evaluate
from harness.judging import verdict
from harness.kinds.kind import Order, Progress, Setting
from harness.kinds.op import check as op_check
from harness.kinds.op import measure as op_measure
from harness.kinds.op.plan import make_plan
from harness.kinds.registry import find
from harness.machine import host
from harness.machine.gpus import gpu_names
from harness.machine.host import cores
from harness.problems.problem import Problem, Suite
from harness.problems.submission import read_submission
from harness.process import sandbox
from harness.process.sandbox import Sandbox
from harness.ranks import witness

PROBLEMS = ("a2a", "gemm_rs", "ag_gemm")
# Of tests/hostile/, each where its docstring says: on CPUs, on GPUs or on both.
ATTACKS = (
    "honest_reference",
    "clock_a_quarter",
    "clock_four_fifths",
    "clock_two_of_three",
    "clock_by_turns",
    "clock_a_quarter_but_in_delayed_calls",
    "clock_work_before",
    "clock_work_after",
    "clock_synchronize_patched",
    "ahead_at_the_gate",
    "ahead_of_the_gate",
    "ahead_of_its_calls",
    "ahead_in_a_burst",
    "busy_while_the_reference_runs",
    "burn_beside_the_reference",
    "burn_and_wake_each_other",
    "burn_without_a_first_thread",
    "wake_by_a_timer",
    "wake_and_leave_children",
    "storm_in_its_own_network",
    "flood_its_log",
    "skip_the_flush",
    "early_in_its_step",
    "early_before_its_input",
    "early_before_it_is_let_go",
    "late_in_its_step",
    "late_in_half_of_its_steps",
    "hog_the_device",
    "hog_by_queued_work",
    "free_after_its_calls",
    "persist_in_the_cache",
    "lean_around_its_calls",
    "slow_the_judges",
    "starve_the_parent",
    "silent_expert_is_a_factor",
    "silent_in_timed_calls",
    "silent_behind_a_flag",
    "silent_but_in_delayed_calls",
    "zeros_before_the_timed_calls",
    "cut_off_the_inputs",
    "fill_its_cache",
    "copy_the_shipped_submission",
    "forged_colours",
    "honest_joined_thread",
    "honest_own_process_group",
    "honest_pins_its_threads",
    "honest_starts_a_program",
    "honest_strided_view",
)
TINY = ROOT / "tests" / "folders" / "single" / "words"  # its calls take 10 us
# Never rests while its parent has the number that it is given.
BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    for _ in range(100_000): pass"
CELLS = 2  # baseline and candidate
CELL_TRIES = 20
HOSTILE = ROOT / "tests" / "hostile"
CORPORA = {"hostile": "tests/evaluation/test_hostile.py", "faults": "tests/evaluation/test_faults.py"}
COUNTED = (
    "test_a_submission_ends_as_its_docstring_says",
    "test_so_it_ends_on_gpus",
    "test_a_fault_ends_as_the_table_says",
)
FAMILIES = {"honest": "honest controls ranked", "wrong": "wrong controls wrong", "fault": "faults survived"}


@contextmanager
def trusting() -> Iterator[None]:
    """Evaluations as they would be if nobody had to be distrusted."""
    with (
        mock.patch.object(op_check, "_probe"),
        mock.patch.object(op_measure.CaseMeasurement, "cached", return_value=""),
        mock.patch.object(op_measure, "IDLE_EVERY", math.nan),  # of which no index is a multiple
        mock.patch.object(op_check.Probe, "due", return_value=None),
        mock.patch.object(witness.EachCall, "doubt", return_value=""),
    ):
        yield


def evaluation_s(problem_name: str) -> float:
    """Seconds of one whole evaluation of the shipped submission, start-up included."""
    problem = find(problem_name, Checkout.here())
    began = time.monotonic()
    failed = verdict.first_failure(evaluated(problem, problem.suite("cpu")))
    assert failed is None, failed
    return time.monotonic() - began


def evaluated(
    problem: Problem,
    suite: Suite,
    submission: Submission | None = None,
    device: str = "cpu",
    mode: Mode = "leaderboard",
) -> EvalReport:
    """An evaluation, of the problem's shipped submission if of no other."""
    submission = submission or read_submission(problem.default_submission(), ROOT)
    plan = make_plan(
        Order(
            setting=Setting(problem=problem, suite=suite, device=device, world_size=suite.benchmarks[0].world_size),
            submission=submission,
            mode=mode,
            author="bench",
        )
    )
    return evaluate(plan, Progress())


def confining_s() -> float:
    """Median seconds that a process needs to confine itself."""
    times = []
    for _ in range(CELL_TRIES):
        readable, writable = os.pipe()
        with tempfile.TemporaryDirectory() as folder:
            if (child := os.fork()) == 0:
                began = time.monotonic()
                Sandbox(folder=Path(folder), cache=Path(folder) / "cache", device="cpu").enter()
                os.write(writable, repr(time.monotonic() - began).encode())
                os._exit(0)
            os.waitpid(child, 0)
            times.append(float(os.read(readable, 100)))
        os.close(readable)
        os.close(writable)
    return statistics.median(times)


def cost(figures: Figures, pairs: int) -> None:
    """The table of what distrust costs."""
    cells_s = CELLS * confining_s()
    rows = []
    for problem in PROBLEMS:
        whole_s, bare_s = [], []
        for _ in range(pairs):
            whole_s.append(evaluation_s(problem))
            with trusting():
                bare_s.append(evaluation_s(problem))
        whole, more = statistics.median(whole_s), statistics.median(whole_s) - statistics.median(bare_s) + cells_s
        rows.append((problem, whole, statistics.median(bare_s), cells_s, more, f"{100 * more / whole:.1f} %"))
        print(problem, whole_s, bare_s, file=sys.stderr, flush=True)
    figures.table(
        ("problem", "evaluation s", "without s", "confining s", "cost s", "cost"),
        rows,
        after=f"Suite `cpu`, 8 ranks; medians of {pairs} evaluations each, in turn. Landlock "
        f"{sandbox.landlock_abi()}, namespaces {'yes' if sandbox.has_namespaces() else 'no'}.",
        decimals=2,
    )


@contextmanager
def busy_cores(loops: int) -> Iterator[None]:
    """So many processes that never rest, and end with this one however it ends."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY, str(os.getpid())]) for _ in range(loops)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def busy(figures: Figures, times: int) -> None:
    """The table of honest evaluations that were held beside other work: of the shipped submissions, of one whose calls
    take microseconds, where what happens around them is most of the time, and of the corpus's honest controls."""
    loops = 2 * cores()
    problems = [find(name, Checkout.here()) for name in (*PROBLEMS, str(TINY))]
    files: list[tuple[str, Problem, Submission | None]] = [(one.name, one, None) for one in problems]
    for path in sorted(HOSTILE.glob("honest_*.py")):
        told = told_by(path)
        problem = find(told.get("problem", "a2a"), Checkout.here())
        if told.get("devices", "cpu") == "cpu" and problem.kind == "op":
            files.append((path.stem, problem, read_submission(path, ROOT)))
    rows = []
    for name, problem, submission in files:
        suite = problem.suite("quick" if "quick" in problem.suites else "official")
        suite = replace(problem.with_world_size(suite, min(2, suite.benchmarks[0].world_size)), benchmark_s=0.1)
        held: Counter[str] = Counter()
        with busy_cores(loops):
            for _ in range(times):
                outcome = getattr(verdict.first_failure(evaluated(problem, suite, submission)), "outcome", None)
                if outcome is not None:
                    print(outcome, file=sys.stderr, flush=True)
                    held[f"{outcome.type} {getattr(outcome, 'check', '')}".strip()] += 1
        what = ", ".join(f"{count} {kind}" for kind, count in held.items()) or "none"
        rows.append((name, times, what))
        print(*rows[-1], file=sys.stderr, flush=True)
    figures.table(
        ("honest submission", "evaluations", "not ranked"),
        rows,
        after=f"On {cores()} cores beside {loops} processes that never rest, 2 ranks or 1.",
    )


def told_by(path: Path) -> dict[str, str]:
    """What the docstring of a file of tests/hostile says of where it is tried."""
    return dict(re.findall("^(problem|devices|mode): (.*)$", path.read_text(), re.MULTILINE))


def attacks(figures: Figures, options: argparse.Namespace) -> None:
    """The table of how evaluations of attacks and of honest controls end, and the speedup that they show. Most have the
    reference as their kernel, so that 1 is the truth."""
    device, ranks, suite_name, times = options.device, options.ranks, options.suite, options.times or 1
    rows = []
    for name in options.files:
        told = told_by(HOSTILE / f"{name}.py")
        if options.files is ATTACKS and told.get("devices", "") not in ("", "cpu" if device == "cpu" else "gpu"):
            continue
        problem = find(told.get("problem", "gemm_rs" if device != "cpu" else "a2a"), Checkout.here())
        suite = problem.with_world_size(problem.suite(suite_name), ranks)
        suite = replace(suite, benchmark_s=options.seconds or suite.benchmark_s)
        outcomes: Counter[str] = Counter()
        ratios: list[Estimate] = []
        unborne, cases = 0, 0
        for _ in range(times):
            began = time.monotonic()
            mode: Mode = "benchmark" if told.get("mode") == "benchmark" else "leaderboard"
            outcome, said, report = outcome_of(problem, suite, HOSTILE / f"{name}.py", device, mode)
            outcomes[outcome] += 1
            print(f"{name}: {outcome}, {time.monotonic() - began:.0f} s {said!r}", file=sys.stderr, flush=True)
            if report is None:
                continue
            if report.figures is not None and report.figures.ratio is not None:
                ratios.append(report.figures.ratio)
            measured = [result.outcome for result in report.results if isinstance(result.outcome, Measured)]
            cases += len(measured)
            unborne += sum(bool(one.ranked.own_claims) for one in measured)
        shown = ", ".join(f"{outcome}{f' {count}x' * (times > 1)}" for outcome, count in outcomes.items())
        speedup = f"{statistics.median(one.value for one in ratios):.2f}" if ratios else "-"
        rows.append((name, problem.name, shown, speedup, f"{unborne} of {cases}" if cases else "-"))
        each = (f"{one.value:.3f} ({one.ci[0]:.2f} to {one.ci[1]:.2f})" for one in ratios if one.ci)
        print(*rows[-1], *each, file=sys.stderr, flush=True)
    figures.table(
        ("file", "problem", "outcome", "speedup shown", "shapes whose claims did not count"),
        rows,
        after=f"Suite `{suite_name}`, {ranks} ranks on {device}, {times} evaluations each; `honest_reference` is the "
        "noise.",
    )


def outcome_of(
    problem: Problem, suite: Suite, path: Path, device: str, mode: Mode
) -> tuple[str, str, EvalReport | None]:
    """How the evaluation of that file ends, what is said of it where it is not ranked, and its report."""
    try:
        report = evaluated(problem, suite, read_submission(path, ROOT), device, mode)
    except HarnessError as error:
        return "error", str(error), None
    failed = verdict.first_failure(report)
    if failed is None:
        return "ranked", "", report
    return ended(report), getattr(failed.outcome, "evidence", "") or getattr(failed.outcome, "message", ""), report


def ended(report: EvalReport) -> str:
    """ranked, or how it failed."""
    outcome = getattr(verdict.first_failure(report), "outcome", None)
    return "ranked" if outcome is None else f"{outcome.type} {getattr(outcome, 'check', '')}".strip()


def corpus(figures: Figures, only: str | None, workers: int) -> None:
    """The table of what the corpora, or one of them, show: of each family, how many files or faults ended as they
    must. On GPUs where there are any. Each test's result is told as it comes."""
    device = host.gpus().device
    which = f"{'not ' * (device == 'cpu')}gpu or xdist_group"  # faults, which run on whatever device there is
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.xml"
        options = ["-vv", "--tb=short", "-n", str(workers), "--dist", "loadgroup", "-m", which, f"--junitxml={found}"]
        command = [sys.executable, "-m", "pytest", *options, *([CORPORA[only]] if only else CORPORA.values())]
        subprocess.run(command, cwd=ROOT, check=False, stdout=sys.stderr)
        cases = list(ElementTree.parse(found).iter("testcase"))
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    for case in cases:
        test, _, parameter = case.get("name", "").partition("[")
        if test not in COUNTED:
            continue
        kind = "fault" if "fault" in test else parameter.partition("_")[0]
        family = FAMILIES.get(kind, "hostile files caught or harmless")
        total[family] += 1
        skipped[family] += case.find("skipped") is not None
        right[family] += all(case.find(tag) is None for tag in ("failure", "error", "skipped"))
    rows = [(family, right[family], total[family], skipped[family]) for family in sorted(total)]
    figures.table(("corpus", "as it must be", "of", "not run here"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("cost", "corpus", "busy", "attacks"))
    parser.add_argument("--files", nargs="+", default=ATTACKS, metavar="NAME", help="of attacks (default: all)")
    parser.add_argument("--device", default="cpu", help="of attacks (default: %(default)s)")
    parser.add_argument("--suite", default="quick", help="of attacks (default: %(default)s)")
    parser.add_argument("--ranks", type=int, default=2, help="of attacks (default: %(default)s)")
    parser.add_argument("--seconds", type=float, help="a shape in attacks (default: the suite's)")
    parser.add_argument("--times", type=int, metavar="N", help="evaluations each in busy (20) and attacks (1)")
    parser.add_argument("--only", choices=CORPORA, help="of corpus (default: all)")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="tests at a time in corpus (default: 2)")
    parser.add_argument("--pairs", type=int, default=5, metavar="N", help="evaluations each way (default: 5)")
    add_data_argument(parser)
    options = parser.parse_args()
    gpu = (gpu_names() or ("",))[0] if options.device != "cpu" else ""
    figures = Figures(
        {
            "cost": "What trust costs",
            "corpus": "What the corpora show",
            "busy": "Honest submissions on a busy machine",
            "attacks": "What attacks come to",
        }[options.what],
        host.environment(gpu, options.ranks).machine_class,
    )
    if options.what == "cost":
        cost(figures, options.pairs)
    elif options.what == "attacks":
        attacks(figures, options)
    elif options.what == "busy":
        busy(figures, options.times or 20)
    else:
        corpus(figures, options.only, options.workers)
    figures.write(options.data)


if __name__ == "__main__":
    main()
