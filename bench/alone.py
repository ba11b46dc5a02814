"""What one rank's kernel of gemm_rs or ag_gemm takes when it never waits for another, and nothing goes over links: on
one GPU, in whose memory all ranks' blocks lie, with every flag set. How far the kernel by itself is from the library's
product, and the same kernel among other ranks from it (docs/kernels.md), says where the time goes.

    python3 bench/alone.py gemm_rs ag_gemm --ranks 4        as one of 4

Medians by the device's events, on cold caches; official benchmark shapes. What the tuning table leaves to a copy engine
is done by the kernel. The results are wrong, of course.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from figures import Figures, add_data_argument
from tune import FLUSH_BYTES, cases_of, load

CALLS, WARM = 25, 5
LEAD_CYCLES = 400_000  # the host runs ahead, so that none of its time is in it
ARRIVED = 1 << 30  # an epoch that no call comes to
RANK = 1
PROBLEMS = ("gemm_rs", "ag_gemm")


def lone_heap(device: torch.device, world_size: int, plan: Any) -> Any:
    """A heap with blocks for such calls, on which nobody else works."""
    module = sys.modules["common.heap"]
    heap = module.Heap(device, RANK, world_size)
    heap.flags, heap.half_bytes = plan.flags, module.aligned(plan.nbytes)
    flags_bytes = 2 * heap.flags * module.LINE_BYTES
    size = flags_bytes + 2 * heap.half_bytes
    heap.blocks = [torch.zeros(size, dtype=torch.uint8, device=device) for _ in range(world_size)]
    heap.blocks[RANK][:flags_bytes].view(torch.int32).fill_(ARRIVED)
    heap.addresses = [block.data_ptr() for block in heap.blocks]
    heap.pointers = torch.tensor(heap.addresses, device=device)
    return heap


def time_us(call: Callable[[], Any], scratch: torch.Tensor) -> float:
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(CALLS)]
    for start, end in events:
        torch.cuda._sleep(LEAD_CYCLES)
        scratch.zero_()
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(float(start.elapsed_time(end)) * 1000 for start, end in events[WARM:])


def measured(problem: str, world_size: int) -> list[tuple[str, float, float]]:
    """Of each shape: its name, and what the kernel and the library's product take, us."""
    submission, tuning = load(problem)
    device = torch.device("cuda", 0)
    chip, scratch = submission.chip_of(device), torch.empty(FLUSH_BYTES, dtype=torch.int8, device=device)
    found = []
    for case in cases_of(problem, world_size):
        (rows, columns, depth), has_bias = case.shape, case.sizes[-1]
        row = submission.nearest(tuning.TABLE, chip.name, case.shape)
        row = row._replace(kernel="plain") if row.kernel == "engine" else row
        plan = submission.make_plan(row, chip, *case.sizes)
        all_rows, weight = (torch.randn(size, depth, device=device).bfloat16() for size in (rows, columns))
        bias = torch.randn(columns, device=device).bfloat16() if has_bias else None
        mine = all_rows if problem == "gemm_rs" else all_rows[: rows // world_size]
        kernel = partial(submission.as_planned, mine, weight, bias, lone_heap(device, world_size, plan), plan)
        library = partial(torch.nn.functional.linear, all_rows, weight, bias)
        found.append((" x ".join(map(str, case.shape)), time_us(kernel, scratch), time_us(library, scratch)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="+", choices=PROBLEMS)
    parser.add_argument("--ranks", type=int, required=True, help="as one of how many the rank works")
    add_data_argument(parser)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error(f"it needs a GPU, and torch {torch.__version__} finds none")
    figures = Figures("A rank alone", f"1x {torch.cuda.get_device_name(0)}")
    for problem in options.problems:
        rows = measured(problem, options.ranks)
        figures.table(
            ("M x N x K", "the kernel", "the library's product"), rows, f"{problem}, one of {options.ranks}: us"
        )
    figures.write(options.data)


if __name__ == "__main__":
    main()
