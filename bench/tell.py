"""What evaluations can tell apart: a file, a copy of it, and a copy that does a little more work.

    python bench/tell.py record PROBLEM OUT.json [--percent 1] [--ranks N] [--launches 24] [--rounds 3] [--seconds S]
        launches of each of the three, or of those that `--of` names, in turn, on this machine, by an evaluation's own
        rule and code; the samples of all launches go to OUT.json. Goes on where it was interrupted. `--keep FOLDER`
        keeps the stamps of stepped calls, a file an evaluation, which bench/clock.py recount reads
    python bench/tell.py draw OUT.json ... [--launches 4] [--draws 1000] [--shift 1] [--known 0.2]
        evaluations of so many launches, drawn from those (with replacement where they are fewer): how often they put
        the two files in the right order, how often they order a file and its copy, how often their intervals hold what
        all launches say, how wide they are; and the same of the evaluations as they were recorded, a round each

More work is a wait behind the call. On CPU cores that is the part of the call's own time. On a GPU it is a kernel of so
many cycles, calibrated in each launch before anything is timed, or of none where the share is less than such a kernel's
own cost, and nothing where it is less than half of that. So the file's true difference is what all its launches show,
and not `--percent`.
"""

import argparse
import json
import math
import random
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from clock import noting_calls
from figures import ROOT, Cell, Figures, add_data_argument

from harness.board.places import is_ahead
from harness.core.checkout import Checkout
from harness.core.decode import encode
from harness.core.errors import HarnessError
from harness.core.records import Measured, Submission
from harness.core.stats import CaseLogs, LaunchNoise, OverLaunches, over_own_launches, ratios_of
from harness.evaluation.evaluate import evaluate
from harness.judging.figures import usual_of
from harness.judging.verdict import measured_cases
from harness.kinds import settings
from harness.kinds.kind import Order
from harness.kinds.op.plan import OpPlan
from harness.kinds.registry import plan_of, read_submission
from harness.kinds.settings import Asked
from harness.problems.submission import digest
from harness.report.console import new_console
from harness.report.progress import ProgressLine

SLOWER = """

# ---- a wait behind each call
import time as _time

import torch as _torch
import torch.distributed as _dist

_custom_kernel, _waits = custom_kernel, {}
_PART, _CALLS = {part}, 9


def _agreed(value):
    found = _torch.tensor(value, dtype=_torch.float64, device="cuda")
    if _dist.is_initialized():
        _dist.all_reduce(found, op=_dist.ReduceOp.MAX)
    return float(found)


def _device_us(work):
    times = []
    for _ in range(_CALLS):
        start, end = (_torch.cuda.Event(enable_timing=True) for _ in range(2))
        _torch.cuda._sleep(2_000_000)
        start.record()
        work()
        end.record()
        _torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1000)
    return sorted(times)[_CALLS // 2]


def _device_wait(data):
    whole_us = _device_us(lambda: _custom_kernel(data))
    long_us, short_us = (_device_us(lambda: _torch.cuda._sleep(cycles)) for cycles in (200_000, 1))
    own_us = short_us - _device_us(lambda: None)
    left_us = _agreed(_PART * whole_us - own_us)
    return 0 if left_us < -own_us / 2 else max(1, int(left_us * 200_000 / (long_us - short_us)))


def _tensors(data):
    if isinstance(data, _torch.Tensor):
        yield tuple(data.shape)
    elif isinstance(data, (tuple, list)):
        for each in data:
            yield from _tensors(each)


def _on_host(data):
    began = _time.perf_counter_ns()
    result = _custom_kernel(data)
    now = _time.perf_counter_ns()
    until = now + _PART * (now - began)
    while _time.perf_counter_ns() < until:
        pass
    return result


def _on_device(data):
    key = tuple(_tensors(data))
    if key not in _waits:
        _waits[key] = _device_wait(data)
    result = _custom_kernel(data)
    if _waits[key] > 0:
        _torch.cuda._sleep(_waits[key])
    return result


custom_kernel = _on_device if _torch.cuda.is_available() else _on_host
"""
FILES = ("file", "copy", "slower")
Launch = list[list[float]]  # of each case the logarithms
Recorded = dict[str, list[Launch]]  # by file


def variants(base: Submission, percent: float) -> dict[str, Submission]:
    """The three files."""
    texts = (base.source, f"{base.source}\n# a copy\n", base.source + SLOWER.replace("{part}", str(percent / 100)))
    return {
        name: replace(base, source=text, sha256=digest(text, base.modules))
        for name, text in zip(FILES, texts, strict=True)
    }


def record(options: argparse.Namespace) -> None:
    """Runs the launches."""
    checkout = Checkout(ROOT)
    asked = Asked(problem=options.problem, ranks=options.ranks, seconds=options.seconds, suite=options.suite)
    setting = settings.setting(asked, checkout)
    files = variants(read_submission(setting.problem, options.file, checkout), options.percent)
    each = options.launches // options.rounds
    found: Recorded = {name: [] for name in FILES}
    if Path(options.out).exists():
        before = read([options.out])
        if (before["problem"], before["each"]) != (options.problem, each):
            sys.exit(f"{options.out} has {before['each']} launches each of {before['problem']}; name another file")
        found = before["files"]
    for number in range(options.rounds):
        for name in FILES[number % 3 :] + FILES[: number % 3]:
            if name not in options.of or len(found[name]) > number * each:
                continue
            order = Order(setting=setting, submission=files[name], mode="benchmark", author="bench")
            plan = plan_of(order)
            assert isinstance(plan, OpPlan)
            # as in an evaluation of four launches
            budget = replace(plan.budget, min_samples=8, seconds=setting.suite.benchmark_s / 4)
            plan = replace(plan, launches=each, budget=budget)
            with ProgressLine(new_console(stderr=True)) as progress, noting_calls() as seen:
                report = evaluate(plan, progress)
            if options.keep and seen:
                options.keep.mkdir(parents=True, exist_ok=True)
                kept = options.keep / f"{options.problem}-{name}-{len(found[name])}.json"
                kept.write_text(json.dumps(encode(seen)))
            measured = list(measured_cases(report))
            if failed := [one.outcome for one in report.results if not isinstance(one.outcome, Measured)]:
                print(f"{name}: {failed[:1]}", flush=True)
                continue
            labels = [result.case.label for result, _ in measured]
            cases = [ratios_of(case.ranked).by_launch for _, case in measured]
            found[name] += [[list(case[at]) for case in cases] for at in range(each)]
            shown = " ".join(f"{math.exp(value):.4f}" for value in map(value_of, found[name][-each:]))
            print(
                f"{name:6} {report.phases_s.get('launches', 0) / max(1, each - 1):.1f} s a start: {shown}", flush=True
            )
            told = {"problem": options.problem, "device": setting.device, "labels": labels, "each": each}
            Path(options.out).write_text(json.dumps(told | {"files": found}))


def value_of(launch: Launch) -> float:
    """A launch's log(ratio)."""
    return statistics.fmean(map(statistics.median, launch))


def evaluation(launches: list[Launch], usual: LaunchNoise) -> OverLaunches:
    """What an evaluation of these launches says, by its own rule."""
    cases = [
        CaseLogs(
            logs=[log for launch in launches for log in launch[case]],
            launches=[len(launch[case]) for launch in launches],
        )
        for case in range(len(launches[0]))
    ]
    return over_own_launches(cases, usual)


def read(paths: list[str]) -> dict[str, Any]:
    """What was recorded, of several files as one. Ends the program where they are of different measurements."""
    told: dict[str, Any]
    told, *others = (json.loads(Path(path).read_text()) for path in paths)
    for other in others:
        if any(told[key] != other[key] for key in ("problem", "device", "labels", "each")):
            sys.exit(f"{' and '.join(paths)} are not of the same measurement")
        told["files"] = {name: launches + other["files"][name] for name, launches in told["files"].items()}
    return told


def draw(options: argparse.Namespace) -> None:
    """What evaluations drawn from recorded launches tell."""
    told = read(options.out)
    files: Recorded = told["files"]
    if options.shift:
        more = math.log1p(options.shift / 100)
        files["slower"] = [
            [[log - more for log in case] for case in launch] for launch in files["copy"] or files["file"]
        ]
    files = {name: launches for name, launches in files.items() if launches}
    if {"file", "slower"} - files.keys():
        sys.exit("no launches of a slower copy were recorded; --shift makes one")
    usual = usual_of(told["device"], None if options.known is None else options.known / 100)
    truth = {name: statistics.fmean(map(value_of, launches)) for name, launches in files.items()}
    apart = truth["file"] - truth["slower"]
    rows: list[list[Cell]] = []
    for name, launches in files.items():
        values = list(map(value_of, launches))
        rows.append([name, len(values), math.exp(truth[name]), 100 * statistics.stdev(values)])
    figures = Figures(f"What evaluations of {told['problem']} tell apart", "bench/tell.py")
    figures.table(["file", "launches", "speedup", "launches differ by %"], rows, decimals=4)
    chance, rows = random.Random(1), []

    def drawn(launches: list[Launch], count: int) -> list[Launch]:
        return chance.sample(launches, count) if count <= len(launches) else chance.choices(launches, k=count)

    half = files["file"] + files.get("copy", [])
    for count in options.launches:
        ordered = wrong = equal = held = 0
        widths = []
        for _ in range(options.draws):
            a, b = (evaluation(drawn(files[name], count), usual) for name in ("file", "slower"))
            ordered += is_ahead(a, b, 2)
            wrong += is_ahead(b, a, 2)
            mixed = drawn(half, 2 * count)
            c, d = evaluation(mixed[:count], usual), evaluation(mixed[count:], usual)
            equal += is_ahead(c, d, 2) or is_ahead(d, c, 2)
            own = evaluation(drawn(half, count), usual)
            low, high = own.interval()
            held += low <= math.exp(statistics.fmean(map(value_of, half))) <= high
            widths.append(50 * math.log(high / low))
        share = 100 / options.draws
        rows.append(
            [count, 100 * apart, ordered * share, wrong * share, equal * share, held * share, statistics.median(widths)]
        )
    rows.append([f"{told['each']}, as they ran", 100 * apart, *_as_they_ran(files, told["each"], usual)])
    columns = ["launches", "truly apart %", "right order %", "wrong order %", "equal ones ordered %"]
    figures.table([*columns, "intervals that hold the truth %", "half width %"], rows, decimals=2)
    figures.write(options.data)


def _as_they_ran(files: Recorded, each: int, usual: LaunchNoise) -> list[Cell]:
    """What the recorded evaluations themselves say: the last five columns of the table of `draw`."""
    ran = {
        name: [evaluation(launches[at : at + each], usual) for at in range(0, len(launches) - each + 1, each)]
        for name, launches in files.items()
    }
    copies = ran.get("copy", [])
    truth = math.exp(statistics.fmean(map(value_of, files["file"] + files.get("copy", []))))
    apart, equal = (list(zip(ran["file"], others, strict=False)) for others in (ran["slower"], copies))
    intervals = [one.interval() for one in ran["file"] + copies]
    shares = (
        [is_ahead(a, b, 2) for a, b in apart],
        [is_ahead(b, a, 2) for a, b in apart],
        [is_ahead(a, b, 2) or is_ahead(b, a, 2) for a, b in equal],
        [low <= truth <= high for low, high in intervals],
    )
    width = statistics.median(50 * math.log(high / low) for low, high in intervals)
    return [*(f"{sum(share)} of {len(share)}" for share in shares), width]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record")
    recording.add_argument("problem")
    recording.add_argument("out")
    recording.add_argument("--file", type=Path)
    recording.add_argument("--percent", type=float, default=1.0)
    recording.add_argument("--ranks", type=int)
    recording.add_argument("--suite")
    recording.add_argument("--launches", type=int, default=24)
    recording.add_argument("--rounds", type=int, default=3)
    recording.add_argument("--seconds", type=float)
    recording.add_argument("--of", nargs="+", choices=FILES, default=FILES)
    recording.add_argument("--keep", type=Path)
    drawing = verbs.add_parser("draw")
    drawing.add_argument("out", nargs="+", help="what was recorded, on each GPU of a machine say")
    drawing.add_argument("--launches", type=int, nargs="+", default=[4, 8])
    drawing.add_argument("--draws", type=int, default=1000)
    drawing.add_argument(
        "--shift", type=float, help="percent by which the copy's calls are made longer, for the slower"
    )
    drawing.add_argument(
        "--known", type=float, help="percent that launches differed by, by the board (default: as usual)"
    )
    add_data_argument(drawing)
    options = parser.parse_args()
    try:
        record(options) if options.verb == "record" else draw(options)
    except HarnessError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
