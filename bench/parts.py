"""What the parts of gemm_rs and ag_gemm take by themselves, beside the shipped kernels: the products, and what links
carry when every rank writes to every other at once.

    python3 bench/parts.py --ranks 4        prints the tables
    python3 bench/parts.py --ranks 4 --megabytes 8 25 50 --data FILE
    python3 bench/parts.py --ranks 2 --megabytes        without the ways to send

Ways to send: every rank sends so much in all, in equal parts, into the other ranks' symmetric memory.

stores         a kernel's programs read blocks of 32 x 256 bf16 and write them to each rank, the next one first
bulk           they read and write tiles of 128 x 64 through tensor descriptors, one rank after the other
copy engine    a copy a rank, each on a stream of its own
nccl           an all-gather of as much

Of the official shapes: the shipped kernel and the product by cuBLAS (or hipBLASLt), as torch calls it, in turn; the
bytes by `stores` with a program a multiprocessor; the collective by NCCL.

The time is the median over calls of the slowest rank's, by the devices' events, on cold caches after a barrier of all
devices (see tune). Datasheets count what links carry in one direction: 450 GB/s for an H100 or H200.
"""

import argparse
import functools
import importlib
import itertools
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from figures import Figures, add_data_argument, need_gpus
from torch.multiprocessing.spawn import spawn
from tune import ROUNDS, Clock, cases_of, load

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "submissions"), str(ROOT)]

from common.gemm import bf16_at
from common.heap import Heap, open_heap

from harness.core.stats import geomean

COLUMNS = 4096
PROGRAMS = (16, 32, 64, 132)
PROBLEMS = ("gemm_rs", "ag_gemm")


@triton.jit
def stores_kernel(own_ptr, blocks_ptr, offset, rows, rank, WORLD: tl.constexpr, COLUMNS: tl.constexpr):
    """`own` bf16 [rows, COLUMNS] to [W, rows, COLUMNS] at `offset` of every other rank's block."""
    for piece in range(tl.program_id(0), rows // 32 * (COLUMNS // 256), tl.num_programs(0)):
        row = piece // (COLUMNS // 256) * 32 + tl.arange(0, 32)
        inside = row[:, None] * COLUMNS + (piece % (COLUMNS // 256) * 256 + tl.arange(0, 256))[None, :]
        values = tl.load(own_ptr + inside)
        for step in tl.static_range(1, WORLD):
            to = bf16_at(tl.load(blocks_ptr + (rank + step) % WORLD), offset) + rank * rows * COLUMNS
            tl.store(to + inside, values)


@triton.jit
def bulk_kernel(own_ptr, blocks_ptr, offset, rows, rank, WORLD: tl.constexpr, COLUMNS: tl.constexpr):
    """The same by bulk copies."""
    own = tl.make_tensor_descriptor(own_ptr, [rows, COLUMNS], [COLUMNS, 1], [128, 64])
    for step in tl.static_range(1, WORLD):
        to_ptr = bf16_at(tl.load(blocks_ptr + (rank + step) % WORLD), offset) + rank * rows * COLUMNS
        to = tl.make_tensor_descriptor(to_ptr, [rows, COLUMNS], [COLUMNS, 1], [128, 64])
        for piece in tl.range(tl.program_id(0), rows // 128 * (COLUMNS // 64), tl.num_programs(0), num_stages=4):
            at = [piece // (COLUMNS // 64) * 128, piece % (COLUMNS // 64) * 64]
            to.store(at, own.load(at))


def ways(heap: Heap, own: torch.Tensor, counts: Sequence[int] = PROGRAMS) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What is measured: a name, and what sends `own` to every other rank. `counts` are of a kernel's programs."""
    world, offset = heap.world_size, heap.turn(own.nbytes * heap.world_size).offset

    def sending(kernel: Any, programs: int) -> Callable[[], Any]:
        return lambda: kernel[(programs,)](own, heap.pointers, offset, len(own), heap.rank, world, COLUMNS, num_warps=4)

    for name, kernel in (("stores", stores_kernel), ("bulk", bulk_kernel)):
        for programs in counts:
            yield f"{name}, {programs} programs", sending(kernel, programs)
    streams = [torch.cuda.Stream(own.device) for _ in range(world - 1)]
    targets = [
        heap.view((heap.rank + step) % world, offset, own.dtype, (world, *own.shape))[heap.rank]
        for step in range(1, world)
    ]

    def by_copy_engines() -> None:
        current = torch.cuda.current_stream()
        for stream, target in zip(streams, targets, strict=True):
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                target.copy_(own, non_blocking=True)
            current.wait_stream(stream)

    yield "copy engine", by_copy_engines
    gathered = own.new_empty(world * len(own), COLUMNS)
    yield "nccl", lambda: dist.all_gather_into_tensor(gathered, own)


def parts(problem: str, shipped: Callable[[], Any], sizes: tuple[int, ...], heap: Heap, clock: Clock) -> list[float]:
    """The microseconds of a shape's shipped kernel, of its product, of its bytes, and of its collective."""
    world, rows, columns, depth, _ = sizes  # of the rank's product
    device = heap.device
    left, right = (torch.randn(size, depth, device=device).bfloat16() for size in (rows, columns))
    whole = torch.empty(rows, columns if problem == "gemm_rs" else depth, device=device).bfloat16()
    share = whole[: rows // world].contiguous()
    count = share.numel() // COLUMNS // 32 * 32 or 32
    own = torch.randn(count, COLUMNS, device=device).bfloat16()
    offset, programs = heap.turn(own.nbytes * world).offset, PROGRAMS[-1]
    calls: list[Callable[[], Any]] = [
        shipped,
        lambda: torch.mm(left, right.T),
        lambda: stores_kernel[(programs,)](own, heap.pointers, offset, count, heap.rank, world, COLUMNS, num_warps=4),
        lambda: (
            dist.reduce_scatter_tensor(share, whole)
            if problem == "gemm_rs"
            else dist.all_gather_into_tensor(whole, share)
        ),
    ]
    times: list[list[float]] = [[] for _ in calls]
    for _, (kept, call) in itertools.product(range(ROUNDS), zip(times, calls, strict=True)):
        call()
        kept.append(clock.time_us(call))
    return [statistics.median(kept) for kept in times]


def opened(rank: int, world: int, folder: str) -> Heap:
    """The heap of a rank whose process has just begun; all ranks meet in that folder, and have a GPU each."""
    torch.cuda.set_device(rank)
    device, meeting = torch.device("cuda", rank), f"file://{folder}/meeting"
    dist.init_process_group("nccl", init_method=meeting, rank=rank, world_size=world, device_id=device)
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=device))
    heap = open_heap(device)
    assert heap is not None
    return heap


def rank_main(rank: int, options: argparse.Namespace, folder: str) -> None:
    world, heap = options.ranks, opened(rank, options.ranks, folder)
    heap.turn(world * (max([64, *options.megabytes]) << 20))  # grows now, not in between
    clock = Clock(heap)
    sent, shapes = [], []
    for megabytes in options.megabytes:
        count = (megabytes << 20) // (world - 1) // (2 * COLUMNS) // 128 * 128
        own = torch.randn(count, COLUMNS, device=heap.device).bfloat16()
        for name, send in ways(heap, own):
            send()
            us = clock.time_us(send)
            sent.append((megabytes, name, us, own.nbytes * (world - 1) / us / 1e3))
    for problem in PROBLEMS:
        submission, _ = load(problem)
        reference = importlib.import_module("reference")
        for case in cases_of(problem, world):
            with heap.device:
                data = reference.generate_input(rank=rank, world_size=world, seed=0, **case.params)
            shipped = functools.partial(submission.custom_kernel, data)
            times = parts(problem, shipped, case.sizes, heap, clock)
            shapes.append((problem, " x ".join(map(str, case.shape)), *times))
    if rank == 0:
        Path(folder, "found.json").write_text(json.dumps([sent, shapes]))
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--megabytes", type=int, nargs="*", default=[8, 25, 50], help="that a rank sends (%(default)s)")
    add_data_argument(parser)
    options = parser.parse_args()
    need_gpus(parser, options.ranks, torch.cuda.device_count(), f"torch {torch.__version__}")
    figures = Figures("Parts", f"{options.ranks}x {torch.cuda.get_device_name(0)}")
    with tempfile.TemporaryDirectory() as folder:
        spawn(rank_main, (options, folder), nprocs=options.ranks)
        sent, shapes = json.loads(Path(folder, "found.json").read_text())
    names = list(dict.fromkeys(name for _, name, _, _ in sent))
    rows = [[name, *(f"{us:.1f} ({rate:.0f})" for _, other, us, rate in sent if other == name)] for name in names]
    if rows:
        columns = ["way", *(f"{megabytes} MiB" for megabytes in options.megabytes)]
        figures.table(columns, rows, "Every rank to all others: us (GB/s that leave a rank)")
    for problem in PROBLEMS:
        found = [(shape, *times) for name, shape, *times in shapes if name == problem]
        means = [geomean(times) for times in list(zip(*found, strict=True))[1:]]
        figures.table(
            ["a rank's product", "ours", "product", "ours over it", "bytes", "collective"],
            [
                (shape, ours, product, f"{ours / product:.3f}", *others)
                for shape, ours, product, *others in [*found, ("geometric mean", *means)]
            ],
            f"{problem}, W = {options.ranks}: the parts by themselves, us",
        )
    figures.write(options.data)


if __name__ == "__main__":
    main()
