"""How near 1 the speedup of a KernelBench problem's own Model reads, for the problems of a folder.

    python bench/kernelbench.py DIR                            all problems, on the GPU if there is one
    python bench/kernelbench.py DIR --limit 480                for 8 minutes; the same command goes on
    python bench/kernelbench.py DIR --only 1-20 95             problems 1 to 20 and 95, by their files' numbers
    python bench/kernelbench.py DIR --suites official small    with a smaller batch where the published one fails
    python bench/kernelbench.py DIR --again                    once more those that were not near 1
    python bench/kernelbench.py DIR --limit 0                  only the summary of what --out has

The submission is the problem's file with Model called ModelNew and one assignment added, so that the harness does not
recognise the reference, which it would time again where its interval excludes 1. Each problem takes a line; the last
lines say how many speedups lie within 3 % of 1, and why the others do not. Processes that have imported torch are kept
from problem to problem. Several GPUs share the problems; `--jobs` sets the number of processes (two on one GPU disturb
each other's times). Nothing is recorded.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.agents.workers import environs_of
from harness.core.checkout import Checkout
from harness.core.decode import decode, encode
from harness.core.errors import HarnessError
from harness.core.records import Submission
from harness.core.words import clean_line, cut_line
from harness.evaluation.evaluate import evaluate
from harness.judging import verdict
from harness.kinds.benchmarks.problem import BenchmarkProblem
from harness.kinds.kind import Order, Progress
from harness.kinds.op.plan import OpPlan
from harness.kinds.op.pool import OpPool
from harness.kinds.registry import find, plan_of, problems_below
from harness.kinds.settings import Asked, setting
from harness.machine import host
from harness.problems.submission import digest

NEAR, WHY_CHARS = 0.03, 300
OTHER_CODE = "\n\nIS_OWN_MODEL = True\n"


@dataclass(frozen=True, kw_only=True)
class Own:
    """One evaluation of a problem's own Model. `why`: the reason for a verdict other than `pass`, and those of the
    suites before this one; `speedup` and its 95 % interval are None where nothing was measured."""

    problem: str
    suite: str
    verdict: str
    why: str = ""
    speedup: float | None = None
    interval: tuple[float, float] | None = None
    seconds: float = 0.0
    phases_s: dict[str, float]

    @property
    def is_near(self) -> bool:
        """Whether it passed and its speedup is within NEAR of 1."""
        return self.verdict == "pass" and self.speedup is not None and abs(self.speedup - 1) <= NEAR

    def text(self) -> str:
        """In a line."""
        low, high = self.interval or (None, None)
        range_ = f" ({low:.3f} to {high:.3f})" if low is not None else ""
        times = f" {self.speedup:.3f}x{range_}" if self.speedup is not None else ""
        why = f"; {self.why}" if self.why else ""
        return clean_line(f"{self.problem}: {self.suite} {self.verdict}{times}, {self.seconds:.1f} s{why}")


def own_model(place: Path, suite: str | None, given: argparse.Namespace, pool: OpPool) -> Own:
    """Evaluates one problem's own Model on one suite."""
    began, checkout = time.monotonic(), Checkout.here()
    problem = find(str(place.resolve()), checkout)
    assert isinstance(problem, BenchmarkProblem)
    found = Own(problem=place.stem, suite=suite or "", verdict="error", phases_s={})
    source = problem.start() + OTHER_CODE
    submission = Submission(path=place.name, name=place.name, source=source, sha256=digest(source, ()))
    asked = Asked(problem=str(place), suite=suite, device=given.device, seconds=given.seconds, timeout_s=given.timeout)
    try:
        made = setting(asked, checkout, problem)
        found = replace(found, suite=made.suite.name)
        order = Order(setting=made, submission=submission, mode="leaderboard", author="")
        plan = plan_of(order)
        assert isinstance(plan, OpPlan)
        plan = replace(plan, clocks=plan.clocks[:1]) if given.one_clock else plan
        report = evaluate(plan, Progress(), pool)
    except HarnessError as error:
        return replace(found, why=cut_line(str(error), WHY_CHARS), seconds=time.monotonic() - began)
    failed, ratio = verdict.first_failure(report), report.figures.ratio if report.figures else None
    return replace(
        found,
        verdict=failed.outcome.type if failed else verdict.status(report),
        why=cut_line(verdict.message(failed.outcome), WHY_CHARS) if failed else "",
        speedup=ratio.value if ratio else None,
        interval=ratio.ci if ratio else None,
        seconds=time.monotonic() - began,
        phases_s=dict(report.phases_s),
    )


def known(out: Path, place: Path) -> Own | None:
    """What --out has of a problem."""
    file = out / f"{place.stem}.json"
    return decode(Own, json.loads(file.read_text())) if file.is_file() else None


def evaluated(places: Sequence[Path], given: argparse.Namespace) -> None:
    """Evaluates those that --out does not have, until --limit has passed."""
    began = time.monotonic()
    with OpPool() as pool:
        for place in places:
            if time.monotonic() - began >= given.limit:
                return
            before = known(given.out, place)
            if before is not None and (before.is_near or not given.again):
                continue
            one = own_model(place, given.suites[0], given, pool)
            for suite in given.suites[1:]:
                if one.verdict == "pass" or suite not in find(str(place.resolve()), Checkout.here()).suites:
                    break
                why = f"{one.suite} {one.verdict}: {one.why}"
                one = own_model(place, suite, given, pool)
                one = replace(one, why="; ".join(filter(None, (why, one.why))))
            (given.out / f"{place.stem}.json").write_text(json.dumps(encode(one)) + "\n")
            print(one.text(), flush=True)


def numbers(texts: Sequence[str]) -> set[int]:
    """The numbers of such texts as `3` and `1-20`."""
    pairs = [(first, last or first) for first, _, last in (text.partition("-") for text in texts)]
    return {number for first, last in pairs for number in range(int(first), int(last) + 1)}


def in_parts(given: argparse.Namespace, jobs: int) -> None:
    """Runs this program once for each part of the problems, each on a GPU in turn."""
    device = given.device or host.gpus().device
    cards = environs_of(device, 1, None) or [{}]
    running = []
    for part in range(jobs):
        environ = os.environ | cards[part % len(cards)]
        running.append(subprocess.Popen([sys.executable, *sys.argv, "--part", f"{part}/{jobs}"], env=environ))
    try:
        for process in running:
            process.wait()
    except KeyboardInterrupt:
        for process in running:
            process.wait()
        raise


def summary(places: Sequence[Path], out: Path) -> None:
    """Prints how many are near 1, and why the others are not."""
    found = [(place, known(out, place)) for place in places]
    near = [one for _, one in found if one is not None and one.is_near]
    done = sum(one is not None for _, one in found)
    print(f"{len(near)} of {len(places)} problems lie in {1 - NEAR:.2f} to {1 + NEAR:.2f}; {done} were evaluated")
    for suite in sorted({one.suite for one in near}):
        print(f"  on suite {suite}: {sum(one.suite == suite for one in near)}")
    timed = [one.phases_s for _, one in found if one is not None and one.phases_s]
    totals = {name: sum(phases.get(name, 0.0) for phases in timed) for phases in timed for name in phases}
    means = [f"{name} {total / len(timed):.1f}" for name, total in totals.items()]
    print(f"  seconds a problem: {', '.join(means) or '-'}")
    for place, other in found:
        if other is None:
            print(f"  not yet    {place.stem}")
        elif not other.is_near:
            print(f"  not near   {other.text()}")


def main() -> None:
    """Evaluates and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--out", type=Path, default=Path("runs/kernelbench"), help="a file for each problem")
    parser.add_argument(
        "--suites", nargs="+", default=[None], help="the first one on which it passes counts (default: the device's)"
    )
    parser.add_argument("--seconds", type=float, default=0.5, help="a shape (default: %(default)s)")
    parser.add_argument("--device", choices=("cpu", "cuda", "rocm"))
    parser.add_argument("--timeout", type=float, help="seconds of each phase (default: the suite's)")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds, after which none is begun")
    parser.add_argument("--only", nargs="+", default=[], metavar="N", help="numbers of problems, or ranges (1-20)")
    parser.add_argument("--again", action="store_true", help="those too that --out has and that are not near 1")
    parser.add_argument("--one-clock", action="store_true", help="measure on the clock that ranks alone")
    parser.add_argument("--jobs", type=int, help="processes (default: one for each GPU)")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    places = problems_below(given.folder)
    if only := numbers(given.only):
        places = [place for place in places if int(place.stem.partition("_")[0]) in only]
    if given.part:
        part, parts = map(int, given.part.split("/"))
        evaluated(places[part::parts], given)
        return
    jobs = given.jobs or (1 if given.device == "cpu" else max(1, host.gpus().count))
    with contextlib.suppress(KeyboardInterrupt):
        in_parts(given, jobs) if jobs > 1 else evaluated(places, given)
    summary(places, given.out)


if __name__ == "__main__":
    main()
