"""By how much do launches of one source differ on this machine?

    python bench/launches.py a2a --launches 10            a file of the problem, its shipped one by default
    python bench/launches.py a2a --launches 10 --record   and leaderboard.yaml gets the figure
    python bench/launches.py a2a --mode benchmark         without the tests, which are not timed

Evaluates the file that many times, records none of it, and prints each launch's speedup with the interval by its own
samples, and the standard deviation of log(speedup) between launches beside what these intervals explain. Then it says
how many pairs of launches have intervals that overlap, by their own samples and as the board shows them.

With --record the board's intervals and places on this machine class rest on it from then on, pooled with what is usual
(`launch_noise` in leaderboard.yaml). All launches of one call share what the machine was doing. Call it again on other
days, with the same file, and the board knows what days differ by too.
"""

import argparse
import itertools
import math
import statistics
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console

from harness.board import leaderboard, places
from harness.board.digits import rounded
from harness.board.entries import Board, MeasuredNoise
from harness.board.noise import SESSION
from harness.core import accounts
from harness.core.checkout import Checkout
from harness.core.errors import HarnessError
from harness.core.records import Estimate
from harness.core.stats import standard_error
from harness.evaluation.evaluate import evaluate
from harness.kinds import settings
from harness.kinds.kind import Order
from harness.kinds.registry import plan_of
from harness.kinds.settings import Asked
from harness.machine import host
from harness.problems.submission import read_submission
from harness.report.progress import ProgressLine

LEAST_SD = 1e-4  # what is printed as nothing is not nothing; the board counts it for more (board.noise)


def between(found: list[Estimate]) -> float:
    """The standard deviation of log(ratio) between launches, without what their own samples explain."""
    logs = [math.log(one.value) for one in found]
    errors = [standard_error(one.ci) if one.ci else 0.0 for one in found]
    return math.sqrt(max(LEAST_SD**2, statistics.variance(logs) - statistics.fmean(error**2 for error in errors)))


def overlapping(found: list[Estimate]) -> str:
    """How many pairs of intervals overlap."""
    pairs = list(itertools.combinations([one.ci for one in found if one.ci], 2))
    return f"{sum(a[0] <= b[1] and b[0] <= a[1] for a, b in pairs)} of {len(pairs)} pairs"


def with_noise(board: Board, new: MeasuredNoise) -> Board:
    """The board with this measurement. It continues the one of the same problem, machine and source that is a session
    older, and takes the place of any other of that problem and machine."""

    def key(one: MeasuredNoise) -> tuple[str, str, str]:
        return one.machine_class, one.problem, one.machine or ""

    others = [one for one in board.launch_noise if key(one) != key(new)]
    for old in (one for one in board.launch_noise if key(one) == key(new) and one.sha256 == new.sha256):
        if datetime.fromisoformat(new.date) - datetime.fromisoformat(old.date) > SESSION:
            before, now = old.launches - 1, new.launches - 1  # degrees of freedom within sessions
            sd = math.sqrt((before * old.sd**2 + now * new.sd**2) / (before + now))
            launches, levels = old.launches + now, (*old.levels, *new.levels)
            new = replace(new, sd=rounded(sd, 3), launches=launches, levels=levels)
    return replace(board, launch_noise=tuple(sorted([*others, new], key=key)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem")
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--launches", type=int, default=10)
    parser.add_argument("--device", choices=settings.DEVICES)
    parser.add_argument("--mode", choices=("leaderboard", "benchmark"), default="leaderboard", help="as `eval` has it")
    parser.add_argument("--seconds", type=float, help="a shape (default: the suite's)")
    parser.add_argument("--record", action="store_true", help="write the figure to leaderboard.yaml")
    options = parser.parse_args()
    if options.launches < 2:
        parser.error("--launches: 2 or more are needed to see a difference")
    try:
        measure(options)
    except HarnessError as error:
        sys.exit(f"error: {error}")


def measure(options: argparse.Namespace) -> None:
    """Evaluates, prints and records."""
    checkout = Checkout.here()
    if options.record:
        leaderboard.check_writable(checkout.leaderboard)
    asked = Asked(problem=options.problem, file=options.file, device=options.device, seconds=options.seconds)
    setting = settings.setting(asked, checkout)
    submission = read_submission(setting.file or setting.problem.default_submission(), checkout.root)
    found: list[Estimate] = []
    machine_class = ""
    for number in range(1, options.launches + 1):
        with ProgressLine(Console(stderr=True)) as progress:
            order = Order(setting=setting, submission=submission, mode=options.mode, author=accounts.login())
            report = evaluate(plan_of(order), progress)
        if report.figures is None or report.figures.ratio is None or report.environment is None:
            sys.exit(f"launch {number} did not pass; `python -m harness eval` of the file says why")
        ratio, machine_class = report.figures.ratio, report.environment.machine_class
        interval = f"{ratio.ci[0]:.3f} to {ratio.ci[1]:.3f}" if ratio.ci else "-"
        print(f"launch {number:2}  {ratio.value:.3f}x  ({interval})", flush=True)
        found.append(ratio)
    sd = rounded(between(found), 3)
    print(f"launches differ by {sd:.1%} on {machine_class} beside what their samples explain")
    noise = places.noise_of(leaderboard.load(checkout.leaderboard), setting.problem.name, machine_class, setting.device)
    shown = [places.one_launch(one, noise) for one in found]
    print(
        f"intervals overlap in {overlapping(found)} by their own samples, in {overlapping(shown)} as the board has them"
    )
    if options.record:
        new = MeasuredNoise(
            problem=setting.problem.name,
            machine_class=machine_class,
            machine=host.machine_id() or None,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            launches=len(found),
            sd=sd,
            sha256=submission.sha256,
            levels=(rounded(statistics.fmean(math.log(one.value) for one in found), 4),),
        )
        leaderboard.change(checkout.leaderboard, lambda now: with_noise(now, new))


if __name__ == "__main__":
    main()
