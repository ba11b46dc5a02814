"""Finds a submission's blocks on the GPUs at hand: measures many rows of its tuning table for each shape.

    python3 bench/tune.py gemm_rs --ranks 4                     official shapes, prints the best rows
    python3 bench/tune.py ag_gemm --ranks 4 --write             ... and writes them into submissions/ag_gemm/tuning.py
    python3 bench/tune.py gemm_rs --ranks 4 --shapes 0 3 --at-most 40

Every rank runs each candidate on cold caches after a barrier of all devices; its time is the median over calls of
the slowest rank's, by the devices' events. One that gives a wrong result, or does not fit the chip, is left out.
Kernels are compiled first, by as many processes as there are cores.
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
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

ROOT = Path(__file__).resolve().parent.parent
WARM, CALLS = 3, 15
FLUSH_BYTES = 128 << 20  # more than the L2 of any GPU that is tuned here
SHARED_BYTES = 227 << 10  # a multiprocessor's, for programs; NVIDIA H100 white paper
FOUND = "fastest of {count} on {ranks}x {gpu}, {day}: {us:.1f} us"


def load(problem: str) -> tuple[ModuleType, ModuleType]:
    """The problem's submission and tuning modules."""
    for folder in (f"submissions/{problem}", "submissions", "reference/common", f"reference/{problem}"):
        sys.path.insert(0, str(ROOT / folder))
    return importlib.import_module("submission"), importlib.import_module("tuning")


def shapes_of(problem: str, world_size: int) -> list[tuple[tuple[int, int, int], bool]]:
    """(M, N and K of a rank's product, whether it has a bias) of the official benchmarks."""
    sys.path.insert(0, str(ROOT))
    from harness.problem import find

    shapes = []
    for case in find(problem).suite("official").benchmarks:
        m, n, k = (int(case.params[name]) for name in "mnk")
        shapes.append((m, n // world_size, k) if problem == "ag_gemm" else (m, n, k // world_size))
        shapes[-1] = (shapes[-1], bool(case.params["has_bias"]))
    return shapes


def candidates(problem: str, tuning: ModuleType, chip: str, shape: tuple[int, int, int], seed: int) -> Iterator[Any]:
    """Rows for that shape in a random order, those of the table first."""
    rows = [row._replace(shape=shape) for row in tuning.TABLE if row.chip == chip and close(row.shape, shape)]
    blocks = product_grid(shape)
    if problem == "gemm_rs":
        rest = [
            tuning.Row(chip, shape, bm, bn, bk, split, group, warps, stages, per_sm, sum_m, sum_n, "")
            for (bm, bn, bk, group, warps, stages, per_sm), split, (sum_m, sum_n) in itertools.product(
                blocks, (1, 2, 3, 4) if shape[0] <= 512 else (1,), ((16, 64), (32, 64), (32, 128))
            )
            if sum_n <= bn
        ]
    else:
        rest = [
            tuning.Row(chip, shape, bm, bn, bk, group, warps, stages, per_sm, senders, lead, send_m, flag_k, "")
            for (bm, bn, bk, group, warps, stages, per_sm), senders, lead, send_m, flag_k in itertools.product(
                blocks, (8, 16, 32, 64, 132), (0, 1, 2, 4, 8), (16, 32), (256, 512)
            )
            if senders < 132 * per_sm or lead == 0
        ]
    random.Random(seed).shuffle(rest)
    yield from rows
    yield from rest


def product_grid(shape: tuple[int, int, int]) -> list[tuple[int, ...]]:
    """Blocks, group, warps, stages and programs a multiprocessor that may be good for a product of that shape."""
    if shape[0] <= 64:
        sizes, depths, stages = [(64, 32, 4), (64, 64, 4), (64, 128, 4)], (64, 128), (4, 5, 6, 8)
    elif shape[0] <= 512:
        sizes, depths, stages = (
            [(128, 64, 4), (128, 128, 4), (128, 128, 8), (64, 128, 4), (128, 256, 8)],
            (64, 128),
            (3, 4, 5),
        )
    else:
        sizes, depths, stages = [(128, 256, 8), (128, 128, 4), (128, 128, 8), (256, 128, 8)], (64,), (3, 4)
    found = []
    for (bm, bn, warps), bk, stage, per_sm, group in itertools.product(sizes, depths, stages, (1, 2), (4, 8)):
        if (bm + bn) * bk * 2 * stage * per_sm <= SHARED_BYTES - per_sm * 1024:
            found.append((bm, bn, bk, group, warps, stage, per_sm))
    return found


def close(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(0.5 <= a / b <= 2 for a, b in zip(one, other, strict=True))


def precompile(job: tuple[str, int, list[Any], tuple[int, int, int], bool]) -> None:
    """Fills Triton's cache with these rows' kernels; in a process of its own."""
    problem, world_size, rows, shape, bias = job
    submission, _ = load(problem)
    torch.cuda.set_device(0)
    chip = submission.chip_of(torch.device("cuda", 0))
    for row in rows:
        plan = submission.make_plan(row, chip, world_size, *shape, bias)
        if plan:
            m = shape[0] // world_size if problem == "ag_gemm" else shape[0]
            numbers = (m, shape[1], shape[2], 2, 3, 4096)
            try:
                submission.launch.compile((*[torch.bfloat16] * 4, torch.int64, *numbers), plan.constants, plan.options)
            except Exception as error:  # it does not fit: measuring it will say so
                print(f"{type(error).__name__} {row}", file=sys.stderr)


def rank_main(rank: int, world_size: int, problem: str, jobs: list[tuple[Any, ...]], meeting: str, out: str) -> None:
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    dist.init_process_group("nccl", init_method=f"file://{meeting}", rank=rank, world_size=world_size, device_id=device)
    submission, _ = load(problem)
    reference = importlib.import_module("reference")
    heap, chip = submission.open_heap(device), submission.chip_of(device)
    scratch = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=device)
    found = []
    for shape, bias, rows in jobs:
        sizes = dict(zip("mnk", shape, strict=True))
        sizes["n" if problem == "ag_gemm" else "k"] *= world_size
        with device:
            data = reference.generate_input(rank=rank, world_size=world_size, has_bias=bias, seed=7, **sizes)
            expected = reference.exact_kernel(data).value
        results = []
        for row in rows:
            plan = submission.make_plan(row, chip, world_size, *shape, bias)
            us, wrong = measured(
                functools.partial(submission.in_one_kernel, *data, heap, plan), plan, expected, scratch
            )
            results.append((us, wrong, row))
            if rank == 0 and wrong:
                print(f"left out, {wrong}: {row}", file=sys.stderr, flush=True)
        found.append((shape, bias, sorted((item for item in results if not item[1]), key=lambda item: item[0])))
        if rank == 0:
            Path(out).write_text(json.dumps(found))
            print(f"{shape} bias {bias}: {len(rows)} rows", flush=True)
            for us, _, row in found[-1][2][:5]:
                print(f"  {us:8.1f} us  {tuple(row)[2:-1]}", flush=True)
    dist.destroy_process_group()


def measured(call: Any, plan: Any, expected: torch.Tensor, scratch: torch.Tensor) -> tuple[float, str]:
    """The median over calls of the slowest rank's microseconds; or why the row is no good, on any rank."""
    problem = ""
    try:
        if plan is None:
            raise ValueError("not for this shape")
        error = (call().float() - expected).abs().max() / expected.abs().max()
        problem = "" if error < 0.02 else f"wrong by {error:.2g}"
    except Exception as error:  # too much shared memory or registers, the same on every rank
        problem = type(error).__name__
    bad = torch.tensor(float(bool(problem)), device=scratch.device)
    dist.all_reduce(bad)
    if bad:
        return 0.0, problem or "wrong on another rank"
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(WARM + CALLS)]
    for start, end in events:
        scratch.zero_()
        dist.all_reduce(bad)  # the devices start together
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    times = torch.tensor([start.elapsed_time(end) * 1000 for start, end in events[WARM:]], device=scratch.device)
    dist.all_reduce(times, dist.ReduceOp.MAX)
    return statistics.median(times.tolist()), ""


def write_table(problem: str, tuning: ModuleType, best: list[Any]) -> None:
    """Replaces the chip's rows in the problem's tuning.py."""
    path = ROOT / "submissions" / problem / "tuning.py"
    chip = best[0].chip
    others = [row for row in tuning.TABLE if row.chip != chip]
    lines = []
    for row in [*best, *others]:
        fields = ", ".join(json.dumps(item) if isinstance(item, str) else repr(item) for item in row)
        lines.append(f"    Row({fields}),\n".replace(json.dumps(tuning.UNMEASURED), "UNMEASURED"))
    text = path.read_text()
    head = text[: text.index("TABLE = [\n")]
    path.write_text(f"{head}TABLE = [\n{''.join(lines)}]\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem", choices=["gemm_rs", "ag_gemm"])
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--shapes", type=int, nargs="*", help="which of the official benchmarks (default: all)")
    parser.add_argument("--at-most", type=int, default=24, help="rows tried a shape (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="write the best rows into the table")
    parser.add_argument("--out", type=Path, help="a JSON file for all that was measured")
    options = parser.parse_args()
    submission, tuning = load(options.problem)
    chip = submission.chip_of(torch.device("cuda", 0)).name
    shapes = shapes_of(options.problem, options.ranks)
    chosen = [shapes[index] for index in options.shapes] if options.shapes else shapes
    jobs = []
    for shape, bias in chosen:
        rows = candidates(options.problem, tuning, chip, shape, options.seed)
        jobs.append((shape, bias, list(itertools.islice(rows, options.at_most))))

    began = time.monotonic()
    cores = len(os.sched_getaffinity(0))
    work = [(options.problem, options.ranks, rows[i::8], shape, bias) for shape, bias, rows in jobs for i in range(8)]
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(min(cores, 48), mp_context=context) as pool:
        list(pool.map(precompile, work))
    print(f"compiled in {time.monotonic() - began:.0f} s", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        out = options.out or Path(folder, "found.json")
        arguments = (options.ranks, options.problem, jobs, str(Path(folder, "meeting")), str(out))
        torch.multiprocessing.spawn(rank_main, arguments, nprocs=options.ranks)
        found = json.loads(out.read_text())
    print(f"measured in {time.monotonic() - began:.0f} s in all", flush=True)
    if options.write:
        best = []
        gpu, day = torch.cuda.get_device_name(0), f"{datetime.now(UTC):%Y-%m-%d}"
        for (shape, _, results), (_, _, rows) in zip(found, jobs, strict=True):
            us, _, row = results[0]
            row = tuning.Row(*row)._replace(shape=tuple(shape))
            best.append(row._replace(found=FOUND.format(count=len(rows), ranks=options.ranks, gpu=gpu, day=day, us=us)))
        kept = [row for row in tuning.TABLE if row.chip == chip and row.shape not in [b.shape for b in best]]
        write_table(options.problem, tuning, sorted(best + kept, key=lambda row: row.shape))


if __name__ == "__main__":
    main()
