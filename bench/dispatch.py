"""What a2a takes where ranks have many tokens, and what its dispatch takes alone, beside plain copies of as many bytes:
how far the kernel is from what links carry.

    python3 bench/dispatch.py --ranks 2                     4096 tokens of 4096 fp16 a rank, 1 and 8 experts a token
    python3 bench/dispatch.py --ranks 2 --tokens 1024 --experts 128 --chosen 8

Tokens choose all experts equally often, so every rank sends as many bytes. Each row that bench/tune.py would try for
the shape is measured, the one that the table has first.

call        a2a as it is: what dispatch sends comes back once more
dispatch    the kernel cut off behind its first phase: it ends on a rank once all that others send there has come, and
            has been seen by the program that would answer it
flags       dispatch of tokens that all stay on their rank: for each piece of a token a flag that says so
copies      as many bytes to the other ranks without flags, as bench/parts.py sends them

A call's result has to pass the strict verdict, and what dispatch leaves at a rank is compared with what was sent. The
time is the median over calls of the slowest rank's, by the devices' events, on cold caches after a barrier of all
devices (see tune).

Of the two rates, the first is of what leaves a rank over links, in one direction; datasheets count so (450 GB/s for an
H100 or H200). The second counts all tokens, those that stay on their rank too, as meta-pytorch/kraken does (pull
request 32: 419 GB/s, 4096 tokens of 4096 bf16 for 8 experts on 2x H100).
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from candidates import candidates
from figures import Figures, add_data_argument, need_gpus
from parts import COLUMNS, opened, ways
from torch.multiprocessing.spawn import spawn
from tune import Clock, ended, load, measured

submission, tuning = load("a2a")

from common.signals import flag_pointers
from common.tokens import turned, wait_for_pieces
from kernel import send

from harness.judging.correctness import strict
from reference import exact_kernel

BLOCK = 128  # rows: copies are of a multiple
CUTTING = ("PIECES", "SENDS", "ROWS")  # constants that differ between rows, of which lines are named
SECONDS = 100.0  # after which ranks are taken to wait for each other forever

Found = tuple[str, float, int, int]  # what, its us, how many bytes leave a rank, how many all its tokens are


@triton.jit(do_not_specialize=["num_tokens", "capacity", "rank", "epoch", "first_flag", "arrivals", "returns"])
def dispatch_kernel(  # what a2a_kernel takes
    x, indices, weights, out, blocks, num_tokens, capacity, rank, epoch, first_flag, arrivals, returns,
    WORLD: tl.constexpr, PER_RANK: tl.constexpr, TOP_K: tl.constexpr, HIDDEN: tl.constexpr, PIECES: tl.constexpr,
    PIECE: tl.constexpr, SENDS: tl.constexpr, ROWS: tl.constexpr, DIES: tl.constexpr, AMD: tl.constexpr,
):  # fmt: skip
    """Sends as a2a_kernel does, and waits for what comes as its `answer` does."""
    program, programs, units = tl.program_id(0), tl.num_programs(0), capacity * PIECES
    where = (program, programs, num_tokens, units, rank, epoch, first_flag, arrivals)
    send(x, indices, blocks, *where, WORLD, PER_RANK, TOP_K, HIDDEN, PIECES, PIECE, SENDS, AMD)
    own_block = tl.load(blocks + rank)
    for item in range(turned(program, programs, units, DIES), units * (WORLD - 1), programs * ROWS):
        items_R = item + programs * tl.arange(0, ROWS)
        units_R = items_R // (WORLD - 1)
        places_R = (rank + 1 + items_R % (WORLD - 1)) % WORLD * units + units_R
        wait_for_pieces(flag_pointers(own_block, first_flag + places_R), epoch, units_R < units)


launch_dispatch = submission.Launcher(dispatch_kernel)


def generate(options: argparse.Namespace, chosen: int, rank: int, device: torch.device) -> Any:
    """What a2a is given on that rank: experts e, e + E / k, ... for every k tokens another e, in a random order."""
    generator = torch.Generator(device).manual_seed(rank)
    on: dict[str, Any] = {"device": device, "generator": generator}
    tokens, experts = options.tokens, options.experts
    first_T = torch.randperm(tokens, **on) % experts
    indices_Tk = (first_T[:, None] + torch.arange(chosen, device=device) * (experts // chosen)) % experts
    data = submission.RankTestData(
        tokens,
        indices_Tk.to(torch.int32),
        torch.rand(tokens, chosen, **on),
        torch.randn(tokens, options.hidden, dtype=torch.float16, **on),
    )
    return submission.MoEConfig(experts, chosen, options.hidden, tokens), data


def needed(config: Any, mine: Any, world: int) -> torch.Tensor:
    """[T, W]: whether the token has an expert on the rank."""
    ranks_Tk = mine.indices // (config.num_experts // world)
    return torch.any(ranks_Tk[:, :, None] == torch.arange(world, device=ranks_Tk.device), 1)


def arrived(heap: Any, plan: Any, sent: list[tuple[torch.Tensor, torch.Tensor]]) -> Any:
    """Whether the last call left here what others sent: of each rank its tokens, and which of them go to this rank."""
    torch.cuda.synchronize()
    tokens, hidden = sent[0][0].shape
    offset = 2 * heap.flags * submission.LINE_BYTES + heap.epoch % 2 * heap.half_bytes  # see Heap.turn
    columns = plan.constants["PIECES"] * plan.constants["PIECE"]
    here_WTC = heap.view(heap.rank, offset, torch.float16, (heap.world_size, tokens, columns))
    others = [peer for peer in range(heap.world_size) if peer != heap.rank]
    right = all(torch.equal(here_WTC[peer, sent[peer][1], :hidden], sent[peer][0][sent[peer][1]]) for peer in others)
    return SimpleNamespace(passed=right, message="what came is not what was sent")


def figures_of(options: argparse.Namespace, chosen: int, heap: Any, clock: Clock) -> Iterator[Found]:
    """What is measured where tokens have that many experts."""
    world, rank, chip = heap.world_size, heap.rank, submission.chip_of(heap.device)
    made = [generate(options, chosen, peer, heap.device) for peer in range(world)]
    config, mine = made[rank]
    goes_TW = needed(config, mine, world)
    all_bytes = mine.x.nbytes
    link_bytes = int(goes_TW.sum() - goes_TW[:, rank].sum()) * all_bytes // options.tokens

    shape = (options.hidden, options.tokens, world)
    rows = [submission.nearest(tuning.TABLE, chip.name, shape)]
    rows += candidates("a2a", tuning, chip.name, shape, world, 48, ("plain",))
    sizes = (world, options.experts, chosen, options.hidden, options.tokens)
    plans = [submission.make_plan(row, chip, *sizes) for row in {row[2:-1]: row for row in rows}.values()]
    cuts = [plan._replace(launch=launch_dispatch) for plan in plans]
    for plan in (plans + cuts)[rank::world]:  # the others take it from Triton's cache
        plan.launch.compile(plan.example_arguments(), plan.constants, plan.options)
    dist.barrier()  # waits for: all that others compile
    heap.turn(max(plan.nbytes for plan in plans), max(plan.flags for plan in plans))  # grows now, not in between

    count = link_bytes // (world - 1) // (2 * COLUMNS) // BLOCK * BLOCK
    own = torch.randn(count, COLUMNS, device=heap.device).bfloat16()
    for name, copy in ways(heap, own, (chip.multiprocessors, 2 * chip.multiprocessors, plans[0].programs)):
        copy()
        yield f"copies: {name}", clock.time_us(copy), own.nbytes * (world - 1), 0

    per_rank = options.experts // world
    staying = replace(mine, indices=mine.indices % per_rank + rank * per_rank)
    sent = [(other.x, needed(config, other, world)[:, rank]) for _, other in made]
    judge = partial(strict, expected=exact_kernel((config, mine, rank, world)))
    for plan, cut in zip(plans, cuts, strict=True):
        warps, (pieces, sends, rows) = plan.options["num_warps"], (plan.constants[name] for name in CUTTING)
        name = f"{pieces} pieces, {sends} sent and {rows} answered at a time, {plan.programs} programs of {warps} warps"
        for what, data, way, judged, times in (
            ("call", mine, plan, judge, 2),
            ("dispatch", mine, cut, lambda _, plan=plan: arrived(heap, plan, sent), 1),
            ("flags", staying, cut, lambda _: SimpleNamespace(passed=True), 0),
        ):
            call = partial(submission.as_planned, config, data, heap, way)
            us, wrong = measured([call], way, judged, clock)
            yield f"{what}: {wrong or name}", us, times * link_bytes, times * all_bytes


def rank_main(rank: int, options: argparse.Namespace, folder: str) -> None:
    heap = opened(rank, options.ranks, folder)
    clock = Clock(heap)
    found: dict[int, list[Found]] = {}
    for chosen in options.chosen:
        kept = found.setdefault(chosen, [])
        for one in figures_of(options, chosen, heap, clock):
            kept.append(one)
            if rank == 0:
                print(f"{time.monotonic() - options.began:5.1f} s, k {chosen}: {one[1]:8.1f} us {one[0]}", flush=True)
                Path(folder, "writing").write_text(json.dumps(found))
                Path(folder, "writing").rename(Path(folder, "found"))
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--tokens", type=int, default=4096, help="of a rank (%(default)s)")
    parser.add_argument("--hidden", type=int, default=4096, help="elements of a token (%(default)s)")
    parser.add_argument("--experts", type=int, default=64, help="of all ranks (%(default)s)")
    parser.add_argument("--chosen", type=int, nargs="+", default=[8, 1], help="experts a token (%(default)s)")
    add_data_argument(parser)
    options = parser.parse_args()
    if options.ranks < 2 or any(options.experts % count for count in (options.ranks, *options.chosen)):
        parser.error("--experts has to be a multiple of --ranks, of which there are two or more, and of each --chosen")
    need_gpus(parser, options.ranks, torch.cuda.device_count(), f"torch {torch.__version__}")
    figures = Figures("Dispatch", f"{options.ranks}x {torch.cuda.get_device_name(0)}")
    options.began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        context = spawn(rank_main, (options, folder), nprocs=options.ranks, join=False)
        failure = ended(context, Path(folder, "nothing"), options.began + SECONDS)
        kept = Path(folder, "found")
        found: dict[str, list[Found]] = json.loads(kept.read_text()) if kept.exists() else {}
    for chosen, lines in found.items():
        figures.table(
            ("what", "us", "GB/s that leave a rank", "GB/s of all tokens"),
            [(what, us, rate(link, us), rate(whole, us)) for what, us, link, whole in lines],
            f"E {options.experts} k {chosen} H {options.hidden} T {options.tokens}, W = {options.ranks}",
        )
    figures.write(options.data)
    if failure:
        sys.exit(f"the ranks did not end well: {failure}")


def rate(nbytes: int, us: float) -> str:
    return f"{nbytes / us / 1e3:.0f}" if nbytes and us else "-"


if __name__ == "__main__":
    main()
