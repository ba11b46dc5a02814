"""What rate a GPU's memory reaches when as much is written as is read: elsewhere or in place, by which instructions.

    python3 bench/streams.py                 524 MB, as cross_entropy's logits of 8192 x 32000
    python3 bench/streams.py --mib 4000
    python3 bench/streams.py --data docs/measurements/4-gpu-1x-h200/20-streams.yaml     ... and in the document

A kernel that is bound by memory cannot be faster than the stream that it resembles. The clock is the tuner's: the
median of events around calls with cold caches. Every stream's result is looked at before it is timed.

a program a block   each thread loads 16 bytes a time, and stores them doubled; with cache modifiers
stay                programs that stay, by registers; a block ahead or none
ring (cp.async)     programs that stay, and copy blocks ahead into shared memory, as cross_entropy's ring; Hopper
bulk copies         the same by bulk copies, and stored by them, so that no thread sees the bytes; Hopper
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "submissions")]

import torch
import triton
import triton.language as tl
from common.bulk import bulk_load, bulk_store, copy_ahead
from figures import Figures, add_data_argument, need_gpus
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from harness.machine import hardware
from harness.tuning.child import Bench

WORDS = 4096  # of 32 bits: a block of the rings, 16 KiB
RESIDENT, SLOTS, WARPS = 4, 3, 4  # programs of a multiprocessor, blocks and warps of a program
INNER = 256  # words of a line of the bulk copies' blocks
Stream = Callable[[Tensor, Tensor], None]


@triton.jit
def double(source, target, LOAD: tl.constexpr, STORE: tl.constexpr, BLOCK: tl.constexpr):
    """Words become twice what they were. LOAD is the loads' eviction policy, STORE the stores' cache modifier."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    words = tl.load(source + place, eviction_policy=LOAD) * 2
    tl.store(target + place, words, cache_modifier=STORE)


@gluon.jit
def stay_double(source, target, blocks, BLOCK: gl.constexpr, AHEAD: gl.constexpr, LOAD: gl.constexpr):
    """The same by programs that stay; with AHEAD a block is on its way to registers while another is stored."""
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [gl.num_warps()], [0])
    place = gl.arange(0, BLOCK, layout=layout)
    first, step = gl.program_id(0), gl.num_programs(0)
    if AHEAD:
        coming = gl.load(source + gl.cast(first, gl.int64) * BLOCK + place, eviction_policy=LOAD)
    for block in range(first, blocks, step):
        if AHEAD:
            words = coming
            ahead = block + step
            from_there = source + gl.cast(ahead, gl.int64) * BLOCK + place
            coming = gl.load(from_there, mask=ahead + place * 0 < blocks, other=0, eviction_policy=LOAD)
        else:
            words = gl.load(source + gl.cast(block, gl.int64) * BLOCK + place, eviction_policy=LOAD)
        gl.store(target + gl.cast(block, gl.int64) * BLOCK + place, words * 2)


@gluon.jit
def ring_double(source, target, blocks, BLOCK: gl.constexpr, SLOTS: gl.constexpr, STORE: gl.constexpr):
    """The same by programs that stay. `blocks` is how many there are of BLOCK words."""
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [gl.num_warps()], [0])
    ring = gl.allocate_shared_memory(gl.int32, [SLOTS, BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    place = gl.arange(0, BLOCK, layout=layout)
    first, step = gl.program_id(0), gl.num_programs(0)
    for index in gl.static_range(SLOTS):
        to_come = first + index * step
        from_there = source + gl.cast(to_come, gl.int64) * BLOCK + place
        copy_ahead(ring.index(index), from_there, mask=to_come + place * 0 < blocks)
        async_copy.commit_group()
    for block in range(first, blocks, step):
        async_copy.wait_group(SLOTS - 1)
        slot = ring.index((block - first) // step % SLOTS)
        words = slot.load(layout)
        ahead = block + SLOTS * step
        copy_ahead(slot, source + gl.cast(ahead, gl.int64) * BLOCK + place, mask=ahead + place * 0 < blocks)
        async_copy.commit_group()
        to_there = target + gl.cast(block, gl.int64) * BLOCK + place
        gl.store(to_there, words * 2, cache_modifier=STORE)


@gluon.jit
def bulk_move(source, target, blocks, LINES: gl.constexpr, INNER: gl.constexpr, SLOTS: gl.constexpr):
    """Moves words unchanged, in blocks of LINES x INNER."""
    layout: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=2)
    source_desc = tma.make_tensor_descriptor(source, [blocks * LINES, INNER], [INNER, 1], [LINES, INNER], layout)
    target_desc = tma.make_tensor_descriptor(target, [blocks * LINES, INNER], [INNER, 1], [LINES, INNER], layout)
    ring = gl.allocate_shared_memory(gl.int32, [SLOTS, LINES, INNER], layout)
    filled = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(SLOTS):
        mbarrier.init(filled.index(slot), count=1)
    fence_async_shared()
    first, step = gl.program_id(0), gl.num_programs(0)
    for place in gl.static_range(SLOTS):
        if first + place * step < blocks:
            mbarrier.expect(filled.index(place), LINES * INNER * 4)
            bulk_load(source_desc, [(first + place * step) * LINES, 0], filled.index(place), ring.index(place))
    for block in range(first, blocks, step):
        index = (block - first) // step
        mbarrier.wait(filled.index(index % SLOTS), index // SLOTS % 2)
        bulk_store(target_desc, [block * LINES, 0], ring.index(index % SLOTS))
        # The block before has left its slot, which the copies need for one that is SLOTS further on.
        tma.store_wait(1)
        ahead = block + (SLOTS - 1) * step
        if (index > 0) & (ahead < blocks):
            left = (index - 1) % SLOTS
            mbarrier.expect(filled.index(left), LINES * INNER * 4)
            bulk_load(source_desc, [ahead * LINES, 0], filled.index(left), ring.index(left))
    tma.store_wait(0)


def by_torch(source: Tensor, target: Tensor) -> None:
    target.copy_(source)


def by_threads(load: str = "", store: str = "") -> Stream:
    def run(source: Tensor, target: Tensor) -> None:
        double[(len(source) // WORDS,)](source, target, load, store, WORDS, num_warps=8)

    return run


def programs(source: Tensor) -> int:
    return RESIDENT * torch.cuda.get_device_properties(source.device).multi_processor_count


def by_ring(store: str = "") -> Stream:
    def run(source: Tensor, target: Tensor) -> None:
        blocks = len(source) // WORDS
        ring_double[(programs(source),)](source, target, blocks, WORDS, SLOTS, store, num_warps=WARPS)

    return run


def by_staying(threads: int, resident: int, ahead: bool, load: str = "evict_last") -> Stream:
    """32 words a thread."""

    def run(source: Tensor, target: Tensor) -> None:
        block, most = 32 * threads, 65536 // (threads * resident)
        grid, options = (
            (programs(source) // RESIDENT * resident,),
            {"num_warps": threads // 32, "maxnreg": min(most, 255)},
        )
        stay_double[grid](source, target, len(source) // block, block, ahead, load, **options)

    return run


def allocate(nbytes: int, alignment: int, stream: int | None) -> Tensor:
    return torch.empty(nbytes, dtype=torch.int8, device="cuda")


def by_bulk(source: Tensor, target: Tensor) -> None:
    triton.set_allocator(allocate)  # for the descriptors, which programs make
    blocks = len(source) // WORDS
    bulk_move[(programs(source),)](source, target, blocks, WORDS // INNER, INNER, SLOTS, num_warps=1)


# name, whether in place, by how much words are multiplied, the stream
STREAMS: list[tuple[str, bool, int, Stream]] = [
    ("torch copy", False, 1, by_torch),
    ("a program a block", False, 2, by_threads()),
    ("a program a block", True, 2, by_threads()),
    ("a program a block, stores .cs", True, 2, by_threads(store=".cs")),
    ("a program a block, loads evict_first", True, 2, by_threads("evict_first")),
    ("a program a block, loads evict_last", True, 2, by_threads("evict_last")),
    ("a program a block, loads evict_last, stores .wt", True, 2, by_threads("evict_last", ".wt")),
    ("512 threads x 2 stay", True, 2, by_staying(512, 2, False, "")),
    ("512 threads x 2 stay, loads evict_last", True, 2, by_staying(512, 2, False)),
    ("512 threads x 1 stay, one ahead, loads evict_last", True, 2, by_staying(512, 1, True)),
    ("ring (cp.async), programs stay", False, 2, by_ring()),
    ("ring (cp.async), programs stay", True, 2, by_ring()),
    ("ring (cp.async), programs stay, stores .cs", True, 2, by_ring(".cs")),
    ("bulk copies, programs stay", False, 1, by_bulk),
    ("bulk copies, programs stay", True, 1, by_bulk),
]


def measured(words: int, peak_bytes_per_s: float) -> Iterator[list[str | float]]:
    """A row a stream; what fails says why in it."""
    bench = Bench()
    given = torch.randint(-(2**20), 2**20, (words,), dtype=torch.int32, device="cuda")
    for name, in_place, factor, stream in STREAMS:
        source = given.clone()
        target = source if in_place else torch.empty_like(source)
        where = "in place" if in_place else "elsewhere"
        try:
            stream(source, target)
            if not torch.equal(target, given * factor):
                raise ValueError("wrong")
            time_us = statistics.median(bench.times_us(lambda run=stream, a=source, b=target: run(a, b), lambda: None))
            row: list[str | float] = [name, where, time_us, f"{8 * words / time_us * 1e6 / peak_bytes_per_s:.1%}"]
        except Exception as error:  # of one stream must not cost the other figures
            row = [name, where, f"{type(error).__name__}: {str(error)[:60]}", "-"]
        print(*(f"{cell:.1f}" if isinstance(cell, float) else cell for cell in row), file=sys.stderr, flush=True)
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=500, metavar="N", help="MiB that are read (default: %(default)s)")
    add_data_argument(parser)
    options = parser.parse_args()
    need_gpus(parser, 1, torch.cuda.device_count())
    gpu = torch.cuda.get_device_name(0)
    peaks = hardware.match(gpu)
    assert peaks is not None, f"{gpu} is not in hardware.yaml"
    figures = Figures("What rate a stream of as many reads as writes reaches", f"1x {gpu}")
    rows = list(measured(options.mib << 18, peaks.hbm_bytes_per_s))
    figures.table(("stream", "to", "us", "of the data sheet's rate"), rows)
    figures.write(options.data)


if __name__ == "__main__":
    main()
