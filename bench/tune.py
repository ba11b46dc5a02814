"""Finds a submission's blocks on the GPUs at hand: measures many rows of its tuning table for each shape.

    python3 bench/tune.py gemm_rs ag_gemm a2a moe --ranks 4     official shapes, prints the best rows
    python3 bench/tune.py ag_gemm --ranks 4 --write             ... and writes them into submissions/ag_gemm/tuning.py
    python3 bench/tune.py gemm_rs --ranks 4 --shapes 0 3 --at-most 24
    python3 bench/tune.py gemm_rs --ranks 4 --shape 64 1024 16384 --write       a shape of one's own
    python3 bench/tune.py a2a --ranks 2 --shape 64 8 4096 4096 --write          likewise
    python3 bench/tune.py gemm_rs ag_gemm --ranks 2 --kernels warps     beside the table's rows only rows of that kernel
    python3 bench/tune.py gemm_rs --ranks 4 --dry-run           what would be measured on an H200; needs no GPU

Every rank runs each candidate on cold caches after a barrier of all devices; its time is the median over calls of
the slowest rank's, by the devices' events. Of a2a and moe, where evaluations draw how many tokens a rank has, it is the
mean over several inputs. The best are then measured in turn. One that gives a wrong result, or does not fit the chip,
or never ends, is left out. Kernels are compiled first, by as many processes as there are cores.

Where there are two ways to go about a shape, with a copy engine and without, the hosts' clock decides between the best
rows of both, since they ask different things of hosts.
"""

import argparse
import concurrent.futures
import functools
import importlib
import itertools
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from candidates import candidates
from figures import Figures, add_data_argument, need_gpus
from torch.multiprocessing.spawn import spawn

ROOT = Path(__file__).resolve().parent.parent
EXPERTS = ("a2a", "moe")  # problems whose ranks hold experts
PROBLEMS = ("gemm_rs", "ag_gemm", *EXPERTS)
ROUTED = ("num_experts", "experts_per_token", "hidden_dim", "max_num_tokens")
SIZES = {"gemm_rs": ("m", "n", "k"), "ag_gemm": ("m", "n", "k"), "a2a": ROUTED}  # that make a shape of one's own
KERNELS = ("plain", "engine", "warps")  # of the tables of gemm_rs and ag_gemm
START_S, ROW_S = 120, 15  # for ranks to come together, and to measure a row; a kernel that never ends is killed then
PARTS = 8  # of a shape's rows that are compiled at the same time
WARM, CALLS = 3, 15
DRAWN = 6  # inputs of a problem whose ranks hold experts: what is best for one of them is not for the others
FINALISTS, ROUNDS = 4, 3  # compared in turn
BEGIN_S = 0.002  # ahead of a call by the hosts' clock, which all wait for: by then their caches are as in evaluations
LEAD_CYCLES = 1_500_000  # three quarters of a millisecond: hosts submit a dozen calls behind it
FLUSH_BYTES = 128 << 20  # more than the L2 of any GPU that is tuned here
FOUND = "{us:.1f} us, best of {count}, {ranks}x {gpu}, {day}"


def load(problem: str) -> tuple[ModuleType, ModuleType]:
    """The problem's submission and tuning modules, in place of another problem's."""
    for name in ("submission", "tuning", "hopper", "kernel", "task", "reference", "params", "utils"):
        sys.modules.pop(name, None)
    for folder in (f"submissions/{problem}", "submissions", "reference/common", f"reference/{problem}"):
        sys.path.insert(0, str(ROOT / folder))
    return importlib.import_module("submission"), importlib.import_module("tuning")


class Case(NamedTuple):
    """A benchmark: `shape` as in the tuning table, `sizes` what plans are made for, `params` what its data are."""

    shape: tuple[int, int, int]
    sizes: tuple[int, ...]
    params: Mapping[str, Any]


def cases_of(problem: str, world_size: int) -> list[Case]:
    """The official benchmarks, for so many ranks."""
    sys.path.insert(0, str(ROOT))
    from harness.core.checkout import Checkout
    from harness.problems.shape_file import find

    suite = find(problem, Checkout.here()).suite("official")
    return [case_of(problem, case.params, world_size) for case in suite.benchmarks]


def case_of(problem: str, params: Mapping[str, Any], world_size: int) -> Case:
    if problem in EXPERTS:
        sizes = [params[name] for name in ROUTED]
        more = [importlib.import_module("params").INTERMEDIATE_DIM] if problem == "moe" else []
        return Case((*sizes[2:], world_size), (world_size, *sizes, *more), params)
    m, n, k, bias = params.values()
    shape = (m, n // world_size, k) if problem == "ag_gemm" else (m, n, k // world_size)
    return Case(shape, (world_size, *shape, bias), params)


def parts(rows: list[Any], count: int) -> list[list[Any]]:
    """The rows in `count` parts, those with the same blocks in one."""
    ordered = sorted(rows, key=lambda row: row[2:9])
    return [ordered[len(rows) * i // count : len(rows) * (i + 1) // count] for i in range(count)]


def plan_of(submission: ModuleType, row: Any, chip: Any, case: Case) -> Any:
    """The row's plan; None where there is none, or only of another kernel."""
    plan = submission.make_plan(row, chip, *case.sizes)
    return plan if getattr(plan, "kernel", "") == getattr(row, "kernel", "") else None


def plans_of(submission: ModuleType, tuning: ModuleType, chip: Any, case: Case, rows: list[Any]) -> list[Any]:
    """The plans of these rows that need kernels of their own."""
    plans: dict[str, Any] = {}
    for row in rows:
        plan = plan_of(submission, tuning.Row(*row), chip, case)
        if plan and plan.launch:
            plans.setdefault(repr((plan.launch.kernel, plan.constants, plan.options)), plan)
    return list(plans.values())


def precompile(job: tuple[str, Case, list[Any]]) -> None:
    """Fills Triton's cache with these rows' kernels; in a process of its own."""
    problem, case, rows = job
    submission, tuning = load(problem)
    torch.cuda.set_device(0)
    chip = submission.chip_of(torch.device("cuda", 0))
    for plan in plans_of(submission, tuning, chip, case, rows):
        try:
            plan.launch.compile(plan.example_arguments(), plan.constants, plan.options)
        except Exception as error:  # it does not fit: measuring it will say so
            print(f"{type(error).__name__} {plan.constants} {plan.options}", file=sys.stderr)


def rank_main(rank: int, world_size: int, problem: str, jobs: list[tuple[Any, ...]], meeting: str, out: str) -> None:
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    dist.init_process_group("nccl", init_method=f"file://{meeting}", rank=rank, world_size=world_size, device_id=device)
    submission, tuning = load(problem)
    reference = importlib.import_module("reference")
    sys.path.insert(0, str(ROOT))
    strict = importlib.import_module("harness.judging.correctness").strict
    heap, chip = submission.open_heap(device), submission.chip_of(device)
    clock = Clock(heap)
    found = []
    for case, rows in jobs:
        with device:
            inputs = [
                reference.generate_input(rank=rank, world_size=world_size, seed=seed, **case.params)
                for seed in range(DRAWN if problem in EXPERTS else 1)
            ]
            expected = reference.exact_kernel(inputs[0])
        operands = [data[:2] if problem in EXPERTS else data for data in inputs]
        tried: Tried = []
        for row in (tuning.Row(*fields) for fields in rows):
            plan = plan_of(submission, row, chip, case)
            calls = [functools.partial(submission.as_planned, *one, heap, plan) for one in operands]
            if rank == 0:
                Path(f"{meeting}-trying").write_text(json.dumps(row))
            us, wrong = measured(calls, plan, functools.partial(strict, expected=expected), clock)
            if not wrong:
                tried.append((us, row, calls))
            elif rank == 0:
                print(f"left out, {wrong}: {row}", file=sys.stderr, flush=True)
        # The first row is the table's: it is among those that are compared in turn.
        ordered = sorted(tried, key=lambda item: item[0])
        best = ordered[:FINALISTS] + [item for item in ordered[FINALISTS:] if item[1] == tuning.Row(*rows[0])]
        rest = [item for item in ordered if item not in best]
        results, walls = by_way(in_turn(best, clock) + rest, clock)
        found.append((case.shape, [(us, row) for us, row, _ in results]))
        if rank == 0:
            Path(out).write_text(json.dumps(found))
            print(f"{case.params}: {len(rows)} rows", flush=True)
            for us, row, _ in results[:5]:
                print(f"  {us:8.1f} us  {tuple(row)[2:-1]}", flush=True)
            for row, us in walls:
                print(f"  {us:8.1f} us by the hosts  {tuple(row)[2:-1]}", flush=True)
    dist.destroy_process_group()


Calls = Sequence[Callable[[], torch.Tensor]]  # of a row, one for each input
Tried = list[tuple[float, Any, Calls]]  # us, row and calls, best first


def mean_us(calls: Calls, clock: "Clock") -> float:
    """What a call takes, in the mean over the inputs."""
    return statistics.fmean(clock.time_us(call) for call in calls)


def in_turn(best: Tried, clock: "Clock") -> Tried:
    """The best of those tried are measured in turn once more, since a GPU grows warm meanwhile, and slower where it
    meets its power cap."""
    times: list[list[float]] = [[] for _ in best]
    for _, (kept, (_, _, calls)) in itertools.product(range(ROUNDS), zip(times, best, strict=True)):
        kept.append(mean_us(calls, clock))
    final = [(statistics.median(kept), row, calls) for kept, (_, row, calls) in zip(times, best, strict=True)]
    return sorted(final, key=lambda item: item[0])


def by_way(tried: Tried, clock: "Clock") -> tuple[Tried, list[tuple[Any, float]]]:
    """The best row first of the way that takes less by the hosts' clock; and what the best of each takes."""
    best = {sends_by_engine(row): (row, calls[0]) for _, row, calls in reversed(tried)}
    if len(best) < 2:
        return tried, []
    times: dict[bool, list[float]] = {way: [] for way in best}
    for _, (way, (_, call)) in itertools.product(range(ROUNDS), best.items()):
        times[way] += clock.walls_us(call)
    walls = {way: statistics.median(kept) for way, kept in times.items()}
    chosen = min(walls, key=lambda way: walls[way])
    ordered = sorted(tried, key=lambda item: sends_by_engine(item[1]) != chosen)
    return ordered, [(best[way][0], us) for way, us in walls.items()]


def sends_by_engine(row: Any) -> bool:
    """Whether a copy engine sends."""
    return getattr(row, "kernel", "") == "engine"


class Clock:
    """The devices' own: what a call takes on the slowest, on cold caches, begun everywhere at the same time."""

    def __init__(self, heap: Any) -> None:
        self.heap = heap
        self.scratch = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=heap.device)
        self.meet = torch.zeros(1, device=heap.device)
        common = [importlib.import_module(f"common.{name}") for name in ("launch", "signals")]
        self.barrier = common[0].Launcher(common[1].barrier_kernel)
        self.constants = {"WORLD": heap.world_size}

    def time_us(self, call: Callable[[], Any]) -> float:
        """The median of CALLS times of it, the same on every rank; those that warm up are left out."""
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(WARM + CALLS)]
        for start, end in events:
            torch.cuda._sleep(LEAD_CYCLES)  # the hosts run ahead, so that none of their time is in it
            self.scratch.zero_()
            dist.all_reduce(self.meet)  # roughly together, then precisely
            turn = self.heap.turn(0, self.heap.world_size)
            self.barrier(1, (self.heap.pointers,), (self.heap.rank, turn.epoch, turn.flags), self.constants, {})
            start.record()
            call()
            end.record()
        torch.cuda.synchronize()
        return statistics.median(self._slowest([start.elapsed_time(end) * 1000 for start, end in events[WARM:]]))

    def walls_us(self, call: Callable[[], Any]) -> list[float]:
        """The same by the hosts' clock, from a moment that all wait for until the last has waited for its device."""
        each = []
        for _ in range(WARM + CALLS):
            self.scratch.zero_()
            torch.cuda.synchronize()
            begin = self._slowest([time.monotonic() + BEGIN_S])[0]
            while time.monotonic() < begin:
                pass
            call()
            torch.cuda.synchronize()
            each.append((time.monotonic() - begin) * 1e6)
        return self._slowest(each[WARM:])

    def _slowest(self, each: list[float]) -> list[float]:
        times = torch.tensor(each, dtype=torch.float64, device=self.scratch.device)
        dist.all_reduce(times, dist.ReduceOp.MAX)
        return times.tolist()


def measured(calls: Calls, plan: Any, strict: Callable[[torch.Tensor], Any], clock: Clock) -> tuple[float, str]:
    """The microseconds of a call of that plan; or why the plan is no good, on any rank: the result for the first input
    has to pass the strict verdict."""
    problem = ""
    try:
        if plan is None:
            raise ValueError("not for this shape")
        verdict = strict(calls[0]())
        problem = "" if verdict.passed else f"wrong: {verdict.message}"
    except Exception as error:  # too much shared memory or registers, the same on every rank
        problem = type(error).__name__
    bad = torch.tensor(float(bool(problem)), device=clock.heap.device)
    dist.all_reduce(bad)
    if bad:
        return 0.0, problem or "wrong on another rank"
    return mean_us(calls, clock), ""


def write_table(problem: str, tuning: ModuleType, best: list[Any]) -> None:
    """Replaces the chip's rows in the problem's tuning.py."""
    path = ROOT / "submissions" / problem / "tuning.py"
    chip = best[0].chip
    others = [row for row in tuning.TABLE if row.chip != chip]
    lines = []
    for row in [*best, *others]:
        fields = ", ".join(json.dumps(item) if isinstance(item, str) else repr(item) for item in row)
        lines.append(f"    Row({fields}),\n".replace(json.dumps(tuning.UNMEASURED), "UNMEASURED"))
    head, begin, rest = path.read_text().partition("TABLE = [\n")
    path.write_text(head + begin + "".join(lines) + rest[rest.index("\n]\n") + 1 :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="+", help=f"of {', '.join(PROBLEMS)}")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--shapes", type=int, nargs="*", help="which of the official benchmarks (default: all)")
    parser.add_argument(
        "--shape", type=int, nargs="+", metavar="SIZE",
        help="another one: M N K of all ranks, of gemm_rs or ag_gemm; experts, experts a token, hidden_dim and "
        "max_num_tokens of a2a",
    )  # fmt: skip
    parser.add_argument("--at-most", type=int, default=48, help="kernels compiled for a shape (default: %(default)s)")
    parser.add_argument(
        "--kernels", nargs="+", choices=KERNELS, default=KERNELS, help="of which others than the table's rows are tried"
    )
    parser.add_argument("--minutes", type=float, default=60, help="of measuring, at most (default: %(default)s)")
    parser.add_argument("--dry-run", action="store_true", help="only count rows and kernels")
    parser.add_argument("--write", action="store_true", help="write the best rows into the tables")
    parser.add_argument("--out", type=Path, default=Path("build/tune"), help="folder for all that was measured")
    add_data_argument(parser)
    options = parser.parse_args()
    if unknown := set(options.problems) - set(PROBLEMS):
        parser.error(f"no table to tune for {', '.join(sorted(unknown))}; there are {', '.join(PROBLEMS)}")
    if options.shape and (options.shapes or any(len(SIZES.get(p, ())) != len(options.shape) for p in options.problems)):
        parser.error("--shape stands by itself, without --shapes: M N K of gemm_rs or ag_gemm, or E k H T of a2a")

    if not options.dry_run:
        need_gpus(parser, options.ranks, torch.cuda.device_count(), f"torch {torch.__version__}")

    jobs: dict[str, list[tuple[Case, list[Any]]]] = {}
    for problem in options.problems:
        submission, tuning = load(problem)
        chip = submission.Chip("sm_90", 132, 1) if options.dry_run else submission.chip_of(torch.device("cuda", 0))
        cases = cases_of(problem, options.ranks)
        chosen = [cases[index] for index in options.shapes] if options.shapes else cases
        if options.shape:
            bias = {} if problem in EXPERTS else {"has_bias": False}
            params = dict(zip(SIZES[problem], options.shape, strict=True)) | bias
            chosen = [case_of(problem, params, options.ranks)]
        jobs[problem] = [
            (
                case,
                [
                    tuple(row)
                    for row in candidates(
                        problem, tuning, chip.name, case.shape, options.ranks, options.at_most, options.kernels
                    )
                ],
            )
            for case in chosen
        ]
        if options.dry_run:
            for case, rows in jobs[problem]:
                kernels = len(plans_of(submission, tuning, chip, case, rows))
                print(f"{problem} {case.params}: {len(rows)} rows, {kernels} kernels")
    if options.dry_run:
        return

    options.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    work = [
        (problem, case, part)
        for problem in options.problems
        for case, rows in jobs[problem]
        for part in parts(rows, PARTS)
    ]
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(min(len(os.sched_getaffinity(0)), 48), mp_context=context) as pool:
        list(pool.map(precompile, work))
    print(f"compiled in {time.monotonic() - began:.0f} s", flush=True)
    figures = Figures("Blocks, tuned", f"{options.ranks}x {torch.cuda.get_device_name(0)}")

    for problem in options.problems:
        out = options.out / f"{problem}.json"
        found = on_ranks(problem, jobs[problem], options.ranks, out, began + 60 * options.minutes)
        print(f"{problem} measured {time.monotonic() - began:.0f} s after the start", flush=True)
        table = [
            (" x ".join(map(str, shape)), *beside(results, rows[0]), str(tuple(results[0][1][2:-1])), len(rows))
            for (shape, results), (_, rows) in zip(found, jobs[problem], strict=False)
            if results
        ]
        figures.table(("shape", "the table's row", "the best", "which is", "of how many"), table, f"{problem}: us")
        figures.write(options.data)
        if options.write:
            _, tuning = load(problem)
            write_best(problem, tuning, jobs[problem][: len(found)], found, options.ranks)


def beside(results: list[Any], known: tuple[Any, ...]) -> tuple[str, str]:
    """What the row that the table has takes, where it was measured, and the best one, us."""
    known_us = [us for us, row in results if row == as_json(known)]
    return f"{known_us[0]:.1f}" if known_us else "-", f"{results[0][0]:.1f}"


def as_json(row: tuple[Any, ...]) -> list[Any]:
    """The row as it comes back from the ranks."""
    back: list[Any] = json.loads(json.dumps(row))
    return back


def on_ranks(problem: str, jobs: list[Any], ranks: int, out: Path, deadline: float) -> list[Any]:
    """Of each case, as far as they come until the deadline, what its rows take. A row with which the ranks never end,
    or die, is left out, and they are started again for the rest."""
    found: list[Any] = []
    left = list(jobs)
    while left and time.monotonic() < deadline:
        out.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            meeting = Path(folder, "meeting")
            failure = ended(
                spawn(rank_main, (ranks, problem, left, str(meeting), str(out)), nprocs=ranks, join=False),
                trying := Path(f"{meeting}-trying"),
                deadline,
            )
            done = json.loads(out.read_text()) if out.exists() else []
            found, left = found + done, left[len(done) :]
            if not failure:
                break
            if not trying.exists():
                raise RuntimeError(f"the ranks did not come together: {failure}")
            row = json.loads(trying.read_text())
            print(f"left out, {failure}: {row}", file=sys.stderr, flush=True)
            if left:
                case, rows = left[0]
                left[0] = case, [one for one in rows if as_json(one) != row]
    return found


def ended(context: Any, trying: Path, deadline: float) -> str:
    """Waits for the ranks; why they did not end well, "" if they did. They are killed where a row takes too long."""
    began = time.time()
    failure = ""
    try:
        while not context.join(timeout=1):
            started = trying.exists()
            waited = time.time() - (trying.stat().st_mtime if started else began)
            late = waited > (ROW_S if started else START_S)
            if late or time.monotonic() > deadline:
                failure = "never ended" if late else "the time is up"
                break
    except Exception as error:
        failure = f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"
    for process in context.processes:
        process.kill()
        process.join()
    return failure


def write_best(problem: str, tuning: ModuleType, jobs: list[Any], found: list[Any], ranks: int) -> None:
    """The fastest row of each shape into the table, in place of the chip's row of that shape."""
    gpu, day = torch.cuda.get_device_name(0), f"{datetime.now(UTC):%Y-%m-%d}"
    best = []
    for (shape, results), (_, rows) in zip(found, jobs, strict=True):
        if not results:  # no row is right on this chip; the table stays as it is
            continue
        us, row = results[0]
        text = FOUND.format(count=len(rows), ranks=ranks, gpu=gpu, day=day, us=us)
        best.append(tuning.Row(*row)._replace(shape=tuple(shape), found=text))
    if not best:
        return
    kept = [row for row in tuning.TABLE if row.chip == best[0].chip and row.shape not in [one.shape for one in best]]
    write_table(problem, tuning, sorted(best + kept, key=lambda row: row.shape))


if __name__ == "__main__":
    main()
