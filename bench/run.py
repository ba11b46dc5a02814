"""The figures of docs/measurements.md, measured on the machine at hand and printed as Markdown.

    make bench                        all of them (about 25 minutes on 2 cores)
    make bench ARGS="resolution startup"

turnaround  whole evaluations of each problem's submission (cpu suite), by phase, with the peak memory of all processes
aa          the reference as a submission, ten times a problem: does the harness see what is not there?
resolution  an empty call on the wall clock
startup     ranks from nothing to their first command: from the zygote, and by multiprocessing's spawn
"""

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from harness import machine, stats  # noqa: E402
from harness.gate import cores  # noqa: E402
from harness.group import ROLES, Launch, Ranks  # noqa: E402
from harness.machine import descendants  # noqa: E402
from harness.problem import problem_names  # noqa: E402
from harness.timing import wall_us  # noqa: E402

RANKS = 8
POLL_S = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", choices=[[], *BENCHES], default=[], help="default: all")
    parser.add_argument("--times", type=int, default=10, help="evaluations a problem in aa (default: %(default)s)")
    options = parser.parse_args()
    found = machine.environment("", RANKS)
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, {found.machine_class}, {found.memory_bytes >> 30} GiB, Python {found.python}, "
    )
    print(f"torch {found.torch}; `python bench/run.py {' '.join(sys.argv[1:])}`\n", flush=True)
    for name in options.which or BENCHES:
        print(f"### {name}\n")
        BENCHES[name](options)
        print(flush=True)


def evaluate(problem: str, file: str, *arguments: str) -> tuple[dict, float, int]:
    """One `python -m harness eval`: its JSON, its seconds, the peak of its processes' memory together (PSS, bytes)."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        began = time.monotonic()
        command = [sys.executable, "-m", "harness", "eval", problem, file, "--no-record", "--json", str(result)]
        process = subprocess.Popen([*command, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL)
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
    phases: list[str] = []
    rows = []
    for problem in problem_names():
        report, seconds, peak_bytes = evaluate(problem, f"submissions/{problem}/submission.py", "--suite", "cpu")
        phases = list(report["phases_s"])
        rows.append([problem, seconds, *report["phases_s"].values(), peak_bytes / 2**30, report["geomean_speedup"]])
    table(["problem", "whole s", *(f"{phase} s" for phase in phases), "peak PSS GiB", "speedup"], rows)


def aa(options: argparse.Namespace) -> None:
    rows = []
    for problem in problem_names():
        speedups, covered = [], 0
        for _ in range(options.times):
            report, _, _ = evaluate(problem, f"submissions/{problem}/reference.py", "--suite", "cpu")
            low, high = report["geomean_speedup_ci"]
            speedups.append(report["geomean_speedup"])
            covered += low <= 1 <= high
        inside = sum(0.95 <= speedup <= 1.05 for speedup in speedups)
        count = len(speedups)
        shown = " ".join(f"{speedup:.3f}" for speedup in sorted(speedups))
        rows.append([problem, f"{inside}/{count}", f"{covered}/{count}", shown])
    table(["problem", "within [0.95, 1.05]", "interval covers 1", "geomean speedups"], rows)


def started(spin: bool = False) -> Ranks:
    folder = Path(tempfile.mkdtemp(prefix="kernel-eval-bench-"))
    launch = Launch(world_size=RANKS, device="cpu", threads=1, spin=spin, flush_bytes=8 << 20, folder=folder)
    for role in ROLES:
        for rank in range(RANKS):
            launch.workdir(role, rank).mkdir(parents=True)
    return Ranks(launch)


def resolution(options: argparse.Namespace) -> None:
    rows = []
    with started() as ranks:
        for count in (20, 200):
            samples = [wall_us(ranks.trusted.call([-1], "wall", time.monotonic() + 60)[0]) for _ in range(count)]
            low, middle, high = statistics.quantiles(samples, n=4)
            rows.append([count, min(samples), low, middle, high, max(samples)])
    table(["empty calls", "least us", "quartile", "median", "quartile", "most"], rows)
    print(f"\n{RANKS} ranks on {cores()} cores, sleeping at the gate (more ranks than cores).")


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
    table(["", "median s of 5"], [[f"zygote: 3 x {RANKS} ranks", ours], [f"spawn: {RANKS} ranks", spawn]])
    print(f"\nspawn takes {spawn / ours:.1f} times as long for a third of the ranks.")


def _spawned(ready: "multiprocessing.synchronize.Semaphore") -> None:
    import torch.distributed  # noqa: F401  (what a rank needs before its first command)

    ready.release()


def table(header: list[str], rows: list[list]) -> None:
    """Prints a Markdown table."""
    print("| " + " | ".join(header) + " |")
    print("|" + " --- |" * len(header))
    for row in rows:
        cells = [f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row]
        print("| " + " | ".join(cells) + " |")


BENCHES = {"turnaround": turnaround, "aa": aa, "resolution": resolution, "startup": startup}

if __name__ == "__main__":
    os.chdir(ROOT)
    main()
