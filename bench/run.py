"""The figures of docs/measurements.md, measured on the machine at hand and printed as Markdown.

    make bench                        all of them (about 25 minutes on 2 cores)
    make bench ARGS="resolution startup"
    make bench ARGS="aa --data docs/measurements/1-cpu-amd-epyc/20-aa.yaml"     ... and into the document

turnaround  whole evaluations of each problem's submission (cpu suite), by phase, with the peak memory of all processes
aa          the reference as a submission, ten times a problem that has submissions/PROBLEM/reference.py: does the
            harness see what is not there?
resolution  an empty call on the wall clock
startup     ranks from nothing to their first command: from the zygote, and by multiprocessing's spawn
"""

import argparse
import json
import math
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from figures import Figures, add_data_argument

from harness.core import stats
from harness.core.checkout import Checkout
from harness.core.processes import descendants
from harness.machine import host
from harness.machine.host import cores
from harness.problems.shape_file import problem_names
from harness.ranks.group import CallOrder
from harness.ranks.launch import Launch, Ranks
from harness.ranks.witness import wall_us
from harness.ranks.zygotes import ROLES

RANKS = 8
POLL_S = 0.1


def main() -> None:
    known = problem_names(Checkout.here())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", choices=[[], *BENCHES], default=[], help="default: all")
    parser.add_argument("--times", type=int, default=10, help="evaluations a problem in aa (default: %(default)s)")
    parser.add_argument(
        "--problem", action="append", default=[], choices=known, metavar="P", help="only this one; may be repeated"
    )
    add_data_argument(parser)
    options = parser.parse_args()
    found = host.environment("", RANKS)
    which = options.which or list(BENCHES)
    where = f"{found.machine_class}, {found.memory_bytes >> 30} GiB, Python {found.python}, torch {found.torch}"
    options.problem = options.problem or known
    options.figures = Figures(", ".join(which).capitalize(), where)
    for name in which:
        BENCHES[name](options)
        options.figures.write(options.data)


def evaluate(problem: str, *arguments: str) -> tuple[dict[str, Any], float, int]:
    """One `python -m harness eval`: its JSON, its seconds, the peak of its processes' memory together (PSS, bytes)."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        began = time.monotonic()
        command = [sys.executable, "-m", "harness", "eval", problem, *arguments, "--suite", "cpu", "--no-record"]
        process = subprocess.Popen([*command, "--json", str(result)], cwd=ROOT, stdout=subprocess.DEVNULL)
        peak_bytes = 0
        while process.poll() is None:
            peak_bytes = max(peak_bytes, sum(map(pss_bytes, [process.pid, *descendants(process.pid)])))
            time.sleep(POLL_S)
        seconds = time.monotonic() - began
        if process.returncode:
            sys.exit(f"{' '.join(command)} ended with {process.returncode}")
        return json.loads(result.read_text()), seconds, peak_bytes


def pss_bytes(pid: int) -> int:
    """A process's proportional share of the memory it uses; 0 for one that is gone."""
    try:
        text = Path("/proc", str(pid), "smaps_rollup").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("Pss:"))


def turnaround(options: argparse.Namespace) -> None:
    ran = [(problem, *evaluate(problem)) for problem in options.problem]
    phases = list(dict.fromkeys(phase for _, report, _, _ in ran for phase in report["phases_s"]))
    rows = []
    for problem, report, seconds, peak_bytes in ran:
        each = (report["phases_s"].get(phase, "-") for phase in phases)  # kinds of problems have phases of their own
        rows.append([problem, seconds, *each, peak_bytes / 2**30, report["figures"]["ratio"]["value"]])
    columns = ["problem", "whole s", *(f"{phase} s" for phase in phases), "peak PSS GiB", "speedup"]
    options.figures.table(columns, rows, "Turn-around", decimals=2)


def aa(options: argparse.Namespace) -> None:
    rows = []
    for problem in options.problem:
        file = f"submissions/{problem}/reference.py"
        if not Path(ROOT, file).exists():
            continue
        speedups, covered = [], 0
        for _ in range(options.times):
            report, _, _ = evaluate(problem, file)
            ratio = report["figures"]["ratio"]
            low, high = ratio["ci"] or (math.inf, math.inf)  # too few samples for an interval
            speedups.append(ratio["value"])
            covered += low <= 1 <= high
        inside = sum(0.95 <= speedup <= 1.05 for speedup in speedups)
        count = len(speedups)
        shown = " ".join(f"{speedup:.3f}" for speedup in sorted(speedups))
        rows.append([problem, f"{inside}/{count}", f"{covered}/{count}", shown])
    columns = ["problem", "within [0.95, 1.05]", "interval covers 1", "geomean speedups"]
    options.figures.table(columns, rows, "A/A: the reference as a submission")


def started(spin: bool = False) -> Ranks:
    folder = Path(tempfile.mkdtemp(prefix="kernel-eval-bench-"))
    launch = Launch(world_size=RANKS, device="cpu", threads=1, spin=spin, folder=folder)
    for role in ROLES:
        for rank in range(RANKS):
            launch.workdir(role, rank).mkdir(parents=True)
    return Ranks(launch)


def resolution(options: argparse.Namespace) -> None:
    rows, order = [], CallOrder(indices=[-1])
    with started() as ranks:
        for count in (20, 200):
            samples = [wall_us(ranks.trusted.call(order, time.monotonic() + 60)[0]) for _ in range(count)]
            low, middle, high = statistics.quantiles(samples, n=4)
            rows.append([count, min(samples), low, middle, high, max(samples)])
    columns = ["empty calls", "least us", "quartile", "median", "quartile", "most"]
    after = f"{RANKS} ranks on {cores()} cores, sleeping at the barrier (more ranks than cores).\n"
    options.figures.table(columns, rows, "An empty call on the wall clock", after)


def startup(options: argparse.Namespace) -> None:
    rows = []
    for _ in range(5):
        began = time.monotonic()
        with started():
            rows.append([time.monotonic() - began, 0.0])
        began = time.monotonic()
        context = multiprocessing.get_context("spawn")
        ready = context.Semaphore(0)
        workers = [context.Process(target=_spawned, args=(ready,)) for _ in range(RANKS)]
        for worker in workers:
            worker.start()
        for _ in workers:
            ready.acquire()
        rows[-1][1] = time.monotonic() - began
        for worker in workers:
            worker.join()
    ours, spawn = (stats.median(column) for column in zip(*rows, strict=True))
    shown = [[f"zygote: 3 x {RANKS} ranks", ours], [f"spawn: {RANKS} ranks", spawn]]
    after = f"spawn takes {spawn / ours:.1f} times as long for a third of the ranks.\n"
    options.figures.table(["", "median s of 5"], shown, "Start-up", after, decimals=2)


def _spawned(ready: "multiprocessing.synchronize.Semaphore") -> None:
    import torch.distributed  # noqa: F401  (what a rank needs before its first command)

    ready.release()


BENCHES = {"turnaround": turnaround, "aa": aa, "resolution": resolution, "startup": startup}

if __name__ == "__main__":
    os.chdir(ROOT)
    main()
