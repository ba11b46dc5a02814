"""How true the time left is that evaluations show, from their middle on.

    python bench/eta.py a2a rms_norm gemm --suite cpu
    python bench/eta.py ../KernelBench/KernelBench/level1/36_RMSNorm_.py --suite small
    python bench/eta.py attention --suite quick --launches 4 --times 2

Evaluates each problem's default submission or `--file`, and of a problem that is a file its own model. Prints the
time left that was shown when a half of the evaluation's seconds had passed, and so on, as a part of the true one: 1 is
exact, 2 is twice as long as true, `inf` is "longer than expected". Nothing is recorded on the leaderboard.
"""

import argparse
import math
import re
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from figures import Figures, add_data_argument
from kernelbench import OTHER_CODE

from harness.core.checkout import Checkout
from harness.core.records import Submission
from harness.evaluation.eta import Eta
from harness.evaluation.evaluate import evaluate
from harness.judging import verdict
from harness.kinds.benchmarks.problem import BenchmarkProblem
from harness.kinds.kind import Order, Plan, Progress
from harness.kinds.registry import plan_of, read_submission
from harness.kinds.settings import Asked, setting
from harness.machine import host
from harness.problems.submission import digest

PARTS = (0.5, 0.6, 0.7, 0.8, 0.9)  # of an evaluation's seconds
FACTOR = 1.5


class Recording(Progress):
    """Keeps the events of an evaluation: the seconds since this was made, the name of the method and its arguments."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.events: list[tuple[float, str, tuple[Any, ...]]] = []

    def _keep(self, name: str, *given: Any) -> None:
        self.events.append((time.monotonic() - self.began_s, name, given))

    def expect(self, plan: Plan) -> None:
        self._keep("expect", plan)

    def phase(self, name: str) -> None:
        self._keep("phase", name)

    def case(self, label: str, index: int, count: int) -> None:
        self._keep("case", label, index, count)

    def case_left(self, seconds: float) -> None:
        self._keep("case_left", seconds)

    def shown_s(self, at_s: float) -> float:
        """The time left in seconds that was shown at that time; infinite for "longer than expected"."""
        now_s = 0.0
        eta = Eta(lambda: now_s)
        for event_s, name, given in self.events:
            if event_s > at_s:
                break
            now_s = event_s
            getattr(eta, name)(*given)
        now_s = at_s
        shown = re.match(r"about (\d+) (s|min) left", eta.text)
        return int(shown[1]) * (60 if shown[2] == "min" else 1) if shown else math.inf


def evaluated(problem: str, given: argparse.Namespace) -> tuple[str, Recording, float]:
    """One evaluation: its problem and suite, its events and its seconds."""
    checkout = Checkout.here()
    given_too = {name: getattr(given, name) for name in ("suite", "device", "ranks", "seconds", "launches")}
    made = setting(Asked(problem=problem, **given_too), checkout)
    if isinstance(made.problem, BenchmarkProblem) and given.file is None:
        source = made.problem.start() + OTHER_CODE
        submission = Submission(path="own.py", name="own.py", source=source, sha256=digest(source, ()))
    else:
        submission = read_submission(made.problem, given.file, checkout)
    plan = plan_of(Order(setting=made, submission=submission, mode="leaderboard", author=""))
    recording = Recording()
    report = evaluate(plan, recording)
    seconds = time.monotonic() - recording.began_s
    if failed := verdict.first_failure(report):
        sys.exit(f"{problem} failed: {verdict.message(failed.outcome)}")
    return f"{made.problem.name}, {made.suite.name}, {plan.launches} launches", recording, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="+", metavar="PROBLEM")
    parser.add_argument("--file", type=Path, help="evaluate this file")
    parser.add_argument("--suite", help="as of `eval`, like the next four")
    parser.add_argument("--device")
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--launches", type=int)
    parser.add_argument("--times", type=int, default=1, help="evaluations of each problem (default: %(default)s)")
    add_data_argument(parser)
    given = parser.parse_args()
    found = host.environment("", 1)
    figures = Figures("The time left", f"{found.machine_class}, torch {found.torch}")
    rows: list[list[float | str]] = []
    ratios: list[float] = []
    for name in given.problems * given.times:
        what, recording, seconds = evaluated(name, given)
        ratios += [recording.shown_s(at * seconds) / ((1 - at) * seconds) for at in PARTS]
        rows.append([what, seconds, *ratios[-len(PARTS) :]])
    within = sum(1 / FACTOR <= ratio <= FACTOR for ratio in ratios)
    after = f"{within} of {len(ratios)} are within a factor {FACTOR} of the truth.\n"
    columns = ["evaluation", "s", *(f"at {at:.0%}" for at in PARTS)]
    figures.table(columns, rows, "Time left as shown / true", after, decimals=2)
    figures.write(given.data)


if __name__ == "__main__":
    main()
