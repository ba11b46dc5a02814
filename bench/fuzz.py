"""Inputs by the million for every decoder that reads what a submission or a user wrote (tests/fuzzing.py has them).

    python bench/fuzz.py [--inputs 1000000] [--start 0] [--jobs 2] [--target NAME ...]     also: make fuzz
    python bench/fuzz.py --target NAME --show NUMBER                                        one input, and what it does

The inputs are dealt to the targets by their shares. Each follows from its target and its number: what was found once
is found again with --show. Exits with 1 where anything was found.
"""

import argparse
import os
import resource
import sys
import time
import warnings
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.context import ForkContext
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import fuzzing
from figures import Figures, add_data_argument

from harness.machine.host import environment

SLICE = 10_000  # inputs of one process, whose memory is then measured
STUCK_S = 120.0  # without a next input: nothing that waits for its own deadline takes so long
MORE_BYTES = 2 << 30  # of addresses than a process begins with


@dataclass(frozen=True)
class Slice:
    """Inputs `start` to `start + count` of one target, and what came of them."""

    target: str
    start: int
    count: int
    seconds: float = 0.0
    grown_bytes: int = 0
    findings: tuple[fuzzing.Finding, ...] = ()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [target.name for target in fuzzing.TARGETS]
    parser.add_argument("--inputs", type=int, default=1_000_000, metavar="N", help="in all (default: a million)")
    parser.add_argument("--start", type=int, default=0, metavar="N", help="the first input's number (default: 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (default: cores)")
    parser.add_argument("--target", action="append", choices=names, metavar="NAME", help=f"of: {', '.join(names)}")
    parser.add_argument("--show", type=int, metavar="NUMBER", help="only this input of the target")
    add_data_argument(parser)
    asked = parser.parse_args()
    targets = [target for target in fuzzing.TARGETS if target.name in (asked.target or names)]
    if asked.show is not None:
        sys.exit(show(targets[0], asked.show))
    each = {target.name: -(-asked.inputs * target.share // sum(one.share for one in targets)) for target in targets}
    slices = [
        Slice(name, at, min(SLICE, asked.start + count - at))
        for name, count in each.items()
        for at in range(asked.start, asked.start + count, SLICE)
    ]
    figures = Figures("Fuzzing", environment("", 1).machine_class)
    began = time.monotonic()
    done = run_all(slices, asked.jobs)
    tabulate(figures, done, time.monotonic() - began)
    figures.write(asked.data)
    sys.exit(1 if any(one.findings for one in done) else 0)


def run_all(slices: list[Slice], jobs: int) -> list[Slice]:
    """Each slice in a process of its own, `jobs` at a time; one that is stuck is ended, and that is a finding."""
    context, waiting = get_context("fork"), list(slices)
    running: list[Job] = []
    done: list[Slice] = []
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(Job(context, waiting.pop(0)))
        time.sleep(0.05)
        for job in [job for job in running if job.over()]:
            running.remove(job)
            done.append(job.result())
            for finding in done[-1].findings:
                print(f"{finding.target} {finding.number}: {finding.error}", file=sys.stderr, flush=True)
    return done


class Job:
    """A process with one slice. What it tries is in `at`, so that it is known whatever becomes of it."""

    def __init__(self, context: ForkContext, one: Slice) -> None:
        self.slice, self.at, self.moved = one, context.Value("q", one.start), time.monotonic()
        self.seen = -1
        self.ours, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=work, args=(one, self.at, theirs))
        self.process.start()
        theirs.close()

    def over(self) -> bool:
        if self.at.value != self.seen:
            self.seen, self.moved = self.at.value, time.monotonic()
        if time.monotonic() - self.moved > STUCK_S:
            self.process.kill()
        return self.ours.poll() or not self.process.is_alive()

    def result(self) -> Slice:
        try:
            found: Slice = self.ours.recv()
        except EOFError:
            self.process.join()
            error = f"the process ended with code {self.process.exitcode}, or was stuck"
            finding = fuzzing.Finding(self.slice.target, self.at.value, b"", error)
            return Slice(self.slice.target, self.slice.start, self.slice.count, findings=(finding,))
        self.process.join()
        return found


def work(one: Slice, at: Any, told: Any) -> None:
    """In the process: the slice, with little memory."""
    warnings.simplefilter("ignore")  # of Python's about the syntax of what it is given
    target = next(target for target in fuzzing.TARGETS if target.name == one.target)
    target.call(target.samples()[0])  # what is loaded at the first call is loaded
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MORE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    def tell(number: int) -> None:
        at.value = number

    before, began = peak_bytes(), time.monotonic()
    findings = fuzzing.search(target, one.start, one.count, tell)
    spent = time.monotonic() - began
    fuzzing.clean()
    told.send(Slice(one.target, one.start, one.count, spent, peak_bytes() - before, tuple(findings)))


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def show(target: fuzzing.Target, number: int) -> int:
    (_, data), *_ = fuzzing.inputs(target, number, 1)
    print(data.decode("utf-8", "backslashreplace"))
    error = fuzzing.tried(target, data)
    print(f"{len(data)} bytes: {error or 'decoded, or refused as declared'}", file=sys.stderr)
    return 1 if error else 0


def tabulate(figures: Figures, done: list[Slice], wall_s: float) -> None:
    """A row a target, and all of them."""
    rows: list[tuple[str | int, ...]] = []
    for target in fuzzing.TARGETS:
        if those := [one for one in done if one.target == target.name]:
            count, seconds = sum(one.count for one in those), sum(one.seconds for one in those)
            places = {finding.error for one in those for finding in one.findings}
            grown = max(one.grown_bytes for one in those) >> 20
            rows.append((target.name, count, round(count / max(seconds, 1e-9)), grown, len(places)))
    total, found = sum(one.count for one in done), sum(len(one.findings) for one in done)
    figures.table(
        ("decoder of", "inputs", "inputs a second", "MiB grown", "findings"),
        rows,
        after=f"{total:,} inputs in {wall_s:.0f} s, findings: {found}.",
    )


if __name__ == "__main__":
    main()
