"""Rows of a tuning table, compared by evaluations: on the ranked clock, which tune.py's does not always agree with.

    python3 bench/rows.py ag_gemm --ranks 2 --row 3 '{"senders": 48, "lead": 4}' --row 3 '{"senders": 64}'
    python3 bench/rows.py gemm_rs --ranks 2 --launches 4 --row 1 '{"window": 0}' --row 2 '{"block_n": 256, "stages": 3}'

Each row is the table's nearest one for that official benchmark (0: the first), with these fields changed. The first
evaluation is of the table as it is, the second of every benchmark's first row, and so on; where a benchmark has fewer
rows, it goes by the table's. Only the benchmarks that have rows are timed. Each evaluation is of a copy of the problem
in a folder of its own, with a suite of these benchmarks, and is recorded there alone. A line has the time and the
speedup on the clock that ranks, and the wall-clock time.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from copied import copied
from figures import need_gpus
from tune import PROBLEMS, cases_of, load

from harness.agents.result import Result
from harness.board import leaderboard
from harness.core import metrics
from harness.core.checkout import Checkout
from harness.core.json_file import file_if_any

SUITE, RESULT = "rows", "result.json"
TIMEOUTS = ("test_timeout", "benchmark_timeout", "ranked_timeout")  # of a suite
TIMEOUT_S = 120.0  # of an evaluation

Changes = Mapping[str, Any]  # fields of a row


def read_row(number: str, changes: str, count: int, Row: Any) -> tuple[int, Changes]:
    """The benchmark, of `count`, and the fields. Raises ValueError, which says what is wrong."""
    try:
        read = json.loads(changes)
    except ValueError as error:
        raise ValueError(f"--row {number} {changes}: not JSON: {error}") from error
    if not number.isdecimal() or int(number) >= count:
        raise ValueError(f"--row {number}: no official benchmark; they are 0 to {count - 1}")
    if not isinstance(read, dict) or set(read) - set(Row._fields):
        raise ValueError(f"--row {number} {changes}: an object of fields of a row, which are {', '.join(Row._fields)}")
    return int(number), read


def evaluations(asked: Sequence[tuple[int, Changes]]) -> list[dict[int, Changes]]:
    """By benchmark, what of its row is changed in each evaluation; in the first nothing is."""
    rows: dict[int, list[Changes]] = {}
    for benchmark, changes in asked:
        rows.setdefault(benchmark, [{}]).append(changes)
    return [dict(zip(rows, each, strict=True)) for each in itertools.zip_longest(*rows.values(), fillvalue={})]


def official(text: str) -> dict[str, Any]:
    """A shape file, whose top is the official suite."""
    return yaml.safe_load(text)  # type: ignore[no-any-return]


def make_copy(root: Path, problem: str, chip: str, ranks: int, changed: Mapping[int, Changes]) -> None:
    """A checkout in `root` whose suite of rows has these official benchmarks, and whose table has these rows first."""
    checkout = copied(root)
    shapes = checkout.shapes / f"{problem}.yaml"
    file = official(shapes.read_text())
    benchmarks = [file["benchmarks"][number] for number in sorted(changed)]
    suite = {"description": "Benchmarks whose rows are compared.", "tests": file["tests"][:1], "benchmarks": benchmarks}
    suite |= {"drawn": 0} | {key: file[key] for key in TIMEOUTS if key in file}
    file.setdefault("suites", {})[SUITE] = suite
    shapes.write_text(yaml.safe_dump(file, sort_keys=False))

    submission, tuning = load(problem)
    cases = cases_of(problem, ranks)
    rows = [
        submission.nearest(tuning.TABLE, chip, cases[number].shape)._replace(
            chip=chip, shape=cases[number].shape, **changes
        )
        for number, changes in changed.items()
    ]
    table = checkout.submissions / problem / "tuning.py"
    table.write_text(table.read_text() + f"\nTABLE[:0] = {rows!r}\n")


class Found(NamedTuple):
    """What an evaluation finds: its result, None where it had none in time; and each benchmark's wall-clock time, us,
    of a submission that passes."""

    result: Result | None
    walls_us: list[float]


def evaluated(problem: str, chip: str, changed: Mapping[int, Changes], given: argparse.Namespace) -> Found:
    """What an evaluation with these rows finds."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        make_copy(root, problem, chip, given.ranks, changed)
        command = [sys.executable, "-m", "harness", "eval", problem, "--suite", SUITE, "--ranks", str(given.ranks)]
        command += ["--launches", str(given.launches), "--no-leader", "--quiet", "--result", RESULT]
        try:
            subprocess.run(command, cwd=root, stdout=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            print(f"not done in {TIMEOUT_S:g} s", flush=True)
        cases = [case for entry in leaderboard.load(Checkout(root).leaderboard).entries for case in entry.cases]
        wall = metrics.CLOCKS["wall"].name
        walls_us = [one.value for case in cases for one in case.series if one.metric == wall and one.value]
        return Found(file_if_any(Result, root / RESULT), walls_us)


def told(changed: Mapping[int, Changes], found: Found) -> str:
    """A line for each benchmark."""
    result = found.result
    if result is None or result.figures is None:
        why = result.next if result else "no result"
        return "\n".join(f"{number}  {json.dumps(changes)}: {why}" for number, changes in changed.items())
    return "\n".join(
        f"{number}  {case.value:8.1f} {case.unit}  {case.speedup.value if case.speedup else 0:6.3f}x  "
        f"wall {wall_us:8.1f} us  {json.dumps(changed[number])}"
        for number, case, wall_us in zip(sorted(changed), result.figures.cases, found.walls_us, strict=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem", choices=PROBLEMS)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument(
        "--row", nargs=2, action="append", required=True, metavar=("BENCHMARK", "CHANGES"),
        help="the number of an official benchmark, and fields of its row as JSON",
    )  # fmt: skip
    parser.add_argument("--launches", type=int, default=2, help="of each evaluation (default: %(default)s)")
    given = parser.parse_args()
    need_gpus(parser, given.ranks, torch.cuda.device_count(), f"torch {torch.__version__}")
    submission, tuning = load(given.problem)
    try:
        count = len(cases_of(given.problem, given.ranks))
        asked = [read_row(number, changes, count, tuning.Row) for number, changes in given.row]
    except ValueError as error:
        parser.error(str(error))
    chip = submission.chip_of(torch.device("cuda", 0)).name
    for changed in evaluations(asked):
        print(told(changed, evaluated(given.problem, chip, changed, given)) + "\n", flush=True)


if __name__ == "__main__":
    main()
