"""Finds a submission's blocks on the GPUs at hand: measures many rows of its tuning table for each shape.

    python3 bench/tune.py gemm_rs ag_gemm a2a --ranks 4         official shapes, prints the best rows
    python3 bench/tune.py ag_gemm --ranks 4 --write             ... and writes them into submissions/ag_gemm/tuning.py
    python3 bench/tune.py gemm_rs --ranks 4 --shapes 0 3 --at-most 24
    python3 bench/tune.py gemm_rs --ranks 4 --shape 64 1024 16384 --write       a shape of one's own
    python3 bench/tune.py gemm_rs --ranks 4 --dry-run           what would be measured on an H200; needs no GPU

Every rank runs each candidate on cold caches after a barrier of all devices; its time is the median over calls of
the slowest rank's, by the devices' events; the best are then measured in turn. One that gives a wrong result, or does
not fit the chip, is left out. Kernels are compiled first, by as many processes as there are cores.

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
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from figures import Figures, add_data_argument, need_gpus

ROOT = Path(__file__).resolve().parent.parent
PROBLEMS = ("gemm_rs", "ag_gemm", "a2a")
WARM, CALLS = 3, 15
FINALISTS, ROUNDS = 4, 3  # compared in turn
BEGIN_S = 0.002  # ahead of a call by the hosts' clock, which all wait for: by then their caches are as in evaluations
LEAD_CYCLES = 1_500_000  # three quarters of a millisecond: hosts submit a dozen calls behind it
FLUSH_BYTES = 128 << 20  # more than the L2 of any GPU that is tuned here
SHARED_BYTES = 227 << 10  # a multiprocessor's, for programs; NVIDIA H100 white paper
PREFETCHES = (1024, 2048, 4096)
FLAGS = ((32, 256), (64, 256), (128, 256), (128, 512), (128, 1024))  # rows and columns that one tells of
SENT_AT_ONCE = 128 * 256  # elements, in a program's registers
SPLITS = (2, 4, 8, 16)  # where tiles are few
MOST_SHARES = 264  # of all tiles: two programs a multiprocessor
SEND_ROWS = (128, 512, 2048)  # as many as a round of tiles has of a rank, and less
ENGINE_M = 4096  # rows from which on copy engines are tried; below they lost by far
ENGINE_GROUPS = (8, 16)  # of the kernel beside them
SUMS = ((16, 64), (32, 64), (64, 128))  # of gemm_rs; the first where rows are few
LATE_SUMS = ((64, 128), (128, 128), (64, 256), (128, 256))
GROUPS = (4, 8)  # the first is what should save most bytes where neighbours multiply different ranks' rows
A2A = {  # by hidden_dim: piece, rows, warps and programs a multiprocessor
    7168: [(2048, 4, 4, 6), (3584, 4, 8, 3), (1024, 8, 2, 10), (2048, 8, 4, 4), (1792, 8, 8, 4)],
    4096: [(2048, 2, 4, 6), (2048, 4, 4, 6), (4096, 4, 8, 3), (1024, 4, 2, 10)],
    2880: [(1536, 1, 4, 6), (1536, 2, 4, 6), (2880, 2, 8, 3), (960, 2, 4, 6)],
}
A2A_SMALL = list(itertools.product((2048, 1024, 3072, 6144), (1,), (4, 8), (2, 4)))
FOUND = "{us:.1f} us, best of {count}, {ranks}x {gpu}, {day}"


def load(problem: str) -> tuple[ModuleType, ModuleType]:
    """The problem's submission and tuning modules, in place of another problem's."""
    for name in ("submission", "tuning", "task", "reference", "params", "utils"):
        sys.modules.pop(name, None)
    for folder in (f"submissions/{problem}", "submissions", "reference/common", f"reference/{problem}"):
        sys.path.insert(0, str(ROOT / folder))
    return importlib.import_module("submission"), importlib.import_module("tuning")


class Case(NamedTuple):
    """A benchmark: `shape` as in the tuning table, `sizes` what plans are made for, `params` what its data are."""

    shape: tuple[int, int, int]
    sizes: tuple[int, ...]
    params: dict[str, int]


def cases_of(problem: str, world_size: int) -> list[Case]:
    """The official benchmarks, for so many ranks."""
    sys.path.insert(0, str(ROOT))
    from harness.core.checkout import Checkout
    from harness.problems.shape_file import find

    suite = find(problem, Checkout.here()).suite("official")
    return [case_of(problem, dict(case.params), world_size) for case in suite.benchmarks]


def case_of(problem: str, params: dict[str, int], world_size: int) -> Case:
    if problem == "a2a":
        experts, top_k, hidden, capacity = params.values()
        return Case((hidden, capacity, world_size), (world_size, experts, top_k, hidden, capacity), params)
    m, n, k, bias = params.values()
    shape = (m, n // world_size, k) if problem == "ag_gemm" else (m, n, k // world_size)
    return Case(shape, (world_size, *shape, bias), params)


def candidates(problem: str, tuning: ModuleType, chip: str, case: Case, at_most: int) -> list[Any]:
    """Rows for that benchmark: those of the table, then a random choice of others. Not a choice is what costs no
    compilation: all numbers of senders and rounds, with a quarter as many blocks."""
    shape, ranks = case.shape, case.sizes[0]
    rows = [row._replace(shape=shape) for row in tuning.TABLE if row.chip == chip and close(row.shape, shape)]
    rows = list({row[2:-1]: row for row in rows}.values())
    small, blocks, chance = shape[0] <= 512, products(shape), random.Random(0)
    beside_engine = [block for block in blocks if shape[0] >= ENGINE_M and block[0] == 128 and block[4] == 3]
    if problem == "a2a":
        rest = [tuning.Row(chip, shape, *cut, "") for cut in A2A.get(shape[0], A2A_SMALL)]
        return rows + [row for row in rest if row[2:-1] not in [one[2:-1] for one in rows]]
    if problem == "gemm_rs":
        sums_of = SUMS[:1] if shape[0] <= 64 else SUMS[1:]
        rest = [
            tuning.Row(chip, shape, *block[:3], split, group, *block[3:], *sums, False, False, "")
            for block, group, sums in itertools.product(blocks, GROUPS, sums_of)
            for split in splits_of(block, shape)
            if sums[1] <= block[1]
        ]
        by_engine = [
            tuning.Row(chip, shape, *block[:3], 1, group, *block[3:], 64, 128, False, True, "")
            for block, group in itertools.product(beside_engine, ENGINE_GROUPS)
        ]
        late = [
            row._replace(sum_m=sum_m, sum_n=sum_n, sum_late=True)
            for row, (sum_m, sum_n) in itertools.product(rows, LATE_SUMS)
            if sum_m <= row.block_m <= shape[0] // ranks and sum_n <= row.block_n and row.split == 1 and not row.engine
        ]
        # What a row has already is not measured twice.
        return list(dict.fromkeys(rows + late)) + by_engine + chance.sample(rest, min(at_most, len(rest)))
    senders = (16, 32, 48, 64, 96, 132) if small else (8, 12, 16, 24, 32, 48)
    prefetches = PREFETCHES if shape[0] <= 64 else PREFETCHES[-1:]
    leads, mine = (0, 1) if small else (0, 1, 2, 3, 4, 6), shape[0] // ranks
    sent = {  # how many rows at once, how many column by column, and a flag's rows and columns
        (send_m, max(min(send_rows, mine), flag_m), flag_m, flag_k)
        for send_rows, (flag_m, flag_k) in itertools.product(SEND_ROWS, FLAGS)
        for send_m in ((16,) if shape[0] <= 64 else (32, min(flag_m, SENT_AT_ONCE // flag_k)))
        if flag_m <= max(mine, FLAGS[0][0])
    }
    chosen = [(row.block_m, row.block_n, row.block_k, row.warps, row.stages, row.per_sm) for row in rows]
    chosen += chance.sample(blocks, min(at_most // 4, len(blocks)))
    by_engine = [
        tuning.Row(
            chip, shape, *block[:3], 1, GROUPS[-1], *block[3:], 0, 0, 32, 32, *FLAGS[0], PREFETCHES[-1], True, ""
        )
        for block in beside_engine[:1]  # of which nothing counts
    ]
    by_programs = [
        tuning.Row(chip, shape, *block[:3], split, GROUPS[-1], *block[3:], *when, *rows_of, ahead, False, "")
        for block in dict.fromkeys(chosen)
        for split, *when, rows_of, ahead in itertools.product(
            splits_of(block, shape), senders, leads, sorted(sent), prefetches
        )
        if rows_of[2] <= block[0]
    ]
    return rows + by_engine + by_programs


def products(shape: tuple[int, int, int]) -> list[tuple[int, ...]]:
    """Blocks (M, N, K), warps, stages and programs a multiprocessor that may be good for a product of that shape."""
    if shape[0] <= 64:
        sizes, depths, stages = [(64, 32, 4), (64, 64, 4), (64, 128, 4)], (64, 128), (4, 5, 6, 8)
    elif shape[0] <= 512:
        sizes, depths, stages = (
            [(128, 128, 8), (128, 128, 4), (128, 256, 8), (128, 64, 4), (64, 128, 4)],
            (64, 128),
            (3, 4, 5),
        )
    else:
        sizes, depths, stages = (
            [(128, 256, 8), (128, 128, 4), (128, 128, 8), (256, 128, 8), (128, 64, 4), (64, 128, 4), (64, 256, 8)],
            (64,),
            (3, 4, 5),
        )
    return [
        (bm, bn, bk, warps, stage, per_sm)
        for (bm, bn, warps), bk, stage, per_sm in itertools.product(sizes, depths, stages, (1, 2))
        if (bm + bn) * bk * 2 * stage * per_sm <= SHARED_BYTES and warps * per_sm <= 8
    ]


def splits_of(block: tuple[int, ...], shape: tuple[int, int, int]) -> list[int]:
    """Among how many programs the depth of a tile may well be shared."""
    tiles = -(-shape[0] // block[0]) * -(-shape[1] // block[1])
    return [1, *(split for split in SPLITS if tiles * split <= MOST_SHARES)]


def parts(rows: list[Any], count: int) -> list[list[Any]]:
    """The rows in `count` parts, those with the same blocks in one."""
    ordered = sorted(rows, key=lambda row: row[2:9])
    return [ordered[len(rows) * i // count : len(rows) * (i + 1) // count] for i in range(count)]


def close(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(0.5 <= a / b <= 2 for a, b in zip(one, other, strict=True))


def plans_of(submission: ModuleType, tuning: ModuleType, chip: Any, case: Case, rows: list[Any]) -> list[Any]:
    """The plans of these rows that need kernels of their own."""
    plans: dict[str, Any] = {}
    for row in rows:
        plan = submission.make_plan(tuning.Row(*row), chip, *case.sizes)
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
    heap, chip = submission.open_heap(device), submission.chip_of(device)
    clock = Clock(heap)
    found = []
    for case, rows in jobs:
        with device:
            data = reference.generate_input(rank=rank, world_size=world_size, seed=7, **case.params)
            expected = reference.exact_kernel(data).value
        operands = data[:2] if problem == "a2a" else data
        tried = []
        for row in (tuning.Row(*fields) for fields in rows):
            plan = submission.make_plan(row, chip, *case.sizes)
            call = functools.partial(submission.as_planned, *operands, heap, plan)
            us, wrong = measured(call, plan, expected, clock)
            if not wrong:
                tried.append((us, row, call))
            elif rank == 0:
                print(f"left out, {wrong}: {row}", file=sys.stderr, flush=True)
        results, walls = by_way(in_turn(sorted(tried, key=lambda item: item[0]), clock), clock)
        found.append((case.shape, [(us, row) for us, row, _ in results]))
        if rank == 0:
            Path(out).write_text(json.dumps(found))
            print(f"{case.params}: {len(rows)} rows", flush=True)
            for us, row, _ in results[:5]:
                print(f"  {us:8.1f} us  {tuple(row)[2:-1]}", flush=True)
            for row, us in walls:
                print(f"  {us:8.1f} us by the hosts  {tuple(row)[2:-1]}", flush=True)
    dist.destroy_process_group()


Tried = list[tuple[float, Any, Any]]  # us, row and call, best first


def in_turn(tried: Tried, clock: "Clock") -> Tried:
    """The best of those tried are measured in turn once more, since a GPU grows warm meanwhile, and slower where it
    meets its power cap."""
    best, rest = tried[:FINALISTS], tried[FINALISTS:]
    times: list[list[float]] = [[] for _ in best]
    for _, (kept, (_, _, call)) in itertools.product(range(ROUNDS), zip(times, best, strict=True)):
        kept += clock.times_us(call)
    final = [(statistics.median(kept), row, call) for kept, (_, row, call) in zip(times, best, strict=True)]
    return sorted(final, key=lambda item: item[0]) + rest


def by_way(tried: Tried, clock: "Clock") -> tuple[Tried, list[tuple[Any, float]]]:
    """The best row first of the way that takes less by the hosts' clock; and what the best of each takes."""
    best = {sends_by_engine(row): (row, call) for _, row, call in reversed(tried)}
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
    return getattr(row, "engine", False)


class Clock:
    """The devices' own: what a call takes on the slowest, on cold caches, begun everywhere at the same time."""

    def __init__(self, heap: Any) -> None:
        self.heap = heap
        self.scratch = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=heap.device)
        self.meet = torch.zeros(1, device=heap.device)
        common = [importlib.import_module(f"common.{name}") for name in ("launch", "signals")]
        self.barrier = common[0].Launcher(common[1].barrier_kernel)
        self.constants = {"WORLD": heap.world_size}

    def times_us(self, call: Callable[[], Any]) -> list[float]:
        """CALLS times of it, the same on every rank; those that warm up are left out."""
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
        return self._slowest([start.elapsed_time(end) * 1000 for start, end in events[WARM:]])

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


def measured(call: Callable[[], torch.Tensor], plan: Any, expected: torch.Tensor, clock: Clock) -> tuple[float, str]:
    """The median microseconds of that plan's call; or why the plan is no good, on any rank."""
    problem = ""
    try:
        if plan is None:
            raise ValueError("not for this shape")
        error = (call().float() - expected).abs().max() / expected.abs().max()
        problem = "" if error < 0.02 else f"wrong by {error:.2g}"
    except Exception as error:  # too much shared memory or registers, the same on every rank
        problem = type(error).__name__
    bad = torch.tensor(float(bool(problem)), device=expected.device)
    dist.all_reduce(bad)
    if bad:
        return 0.0, problem or "wrong on another rank"
    return statistics.median(clock.times_us(call)), ""


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
        "--shape", type=int, nargs=3, metavar=("M", "N", "K"), help="another one, of all ranks, not a2a's"
    )
    parser.add_argument("--at-most", type=int, default=48, help="kernels compiled for a shape (default: %(default)s)")
    parser.add_argument("--dry-run", action="store_true", help="only count rows and kernels")
    parser.add_argument("--write", action="store_true", help="write the best rows into the tables")
    parser.add_argument("--out", type=Path, default=Path("build/tune"), help="folder for all that was measured")
    add_data_argument(parser)
    options = parser.parse_args()
    if unknown := set(options.problems) - set(PROBLEMS):
        parser.error(f"no table to tune for {', '.join(sorted(unknown))}; there are {', '.join(PROBLEMS)}")
    if options.shape and (options.shapes or "a2a" in options.problems):
        parser.error("--shape stands for a product by itself: without --shapes, and not of a2a")

    if not options.dry_run:
        need_gpus(parser, options.ranks, torch.cuda.device_count(), f"torch {torch.__version__}")

    jobs: dict[str, list[tuple[Case, list[Any]]]] = {}
    for problem in options.problems:
        submission, tuning = load(problem)
        chip = submission.Chip("sm_90", 132, 1) if options.dry_run else submission.chip_of(torch.device("cuda", 0))
        cases = cases_of(problem, options.ranks)
        chosen = [cases[index] for index in options.shapes] if options.shapes else cases
        if options.shape:
            params = dict(zip(("m", "n", "k", "has_bias"), (*options.shape, False), strict=True))
            chosen = [case_of(problem, params, options.ranks)]
        jobs[problem] = [
            (case, [tuple(row) for row in candidates(problem, tuning, chip.name, case, options.at_most)])
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
        (problem, case, part) for problem in options.problems for case, rows in jobs[problem] for part in parts(rows, 4)
    ]
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(min(len(os.sched_getaffinity(0)), 48), mp_context=context) as pool:
        list(pool.map(precompile, work))
    print(f"compiled in {time.monotonic() - began:.0f} s", flush=True)
    figures = Figures("Blocks, tuned", f"{options.ranks}x {torch.cuda.get_device_name(0)}")

    for problem in options.problems:
        out = options.out / f"{problem}.json"
        with tempfile.TemporaryDirectory() as folder:
            arguments = (options.ranks, problem, jobs[problem], str(Path(folder, "meeting")), str(out))
            torch.multiprocessing.spawn(rank_main, arguments, nprocs=options.ranks)
        print(f"{problem} measured {time.monotonic() - began:.0f} s after the start", flush=True)
        best = [
            (" x ".join(map(str, shape)), results[0][0], str(tuple(results[0][1][2:-1])), f"best of {len(rows)}")
            for (shape, results), (_, rows) in zip(json.loads(out.read_text()), jobs[problem], strict=True)
            if results
        ]
        figures.table(("shape", "us", "row", ""), best, problem)
        figures.write(options.data)
        if options.write:
            _, tuning = load(problem)
            write_best(problem, tuning, jobs[problem], json.loads(out.read_text()), options.ranks)


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
