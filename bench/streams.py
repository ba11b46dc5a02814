"""What rate a GPU's memory reaches in streams of a kernel's mix of reads and writes, by which instructions.

    python3 bench/streams.py                        all mixes, of the official shapes' sizes
    python3 bench/streams.py 2:1 3:2                these
    python3 bench/streams.py 1:1 --mib 4000         as much read as written, of another size
    python3 bench/streams.py 1:0                    reads alone
    python3 bench/streams.py --data docs/measurements/4-gpu-1x-h200/20-streams.yaml     ... and in the document

1:1  as cross_entropy's logits of 8192 x 32000, in place and elsewhere
2:1  swiglu forward, 8192 x 28672: both halves of each row; the result
3:2  swiglu backward: the same and a gradient; both halves of each row of the result
2:2  rms_norm forward, 8192 x 8192: x and the residual; the normed rows and the sum
3:1  rms_norm backward: the sum and two gradients; a gradient
1:0  the weights of gemm_rs's and ag_gemm's first shape on 2 GPUs, 7168 x 9216: behind the flush of evaluations, which
     leaves lines in the L2 that have to be written back, and behind one that leaves none

A kernel that is bound by memory cannot be faster than the stream that it resembles. The clock is the tuner's: the
median of events around calls with cold caches. Every stream's result is looked at before it is timed.

a program a block   each thread loads 16 bytes a time, and stores what it makes of them; with cache modifiers of stores
                    and eviction policies of either
stay                programs that stay, by registers; a block ahead or none
ring (cp.async)     programs that stay, and copy blocks ahead into shared memory, as cross_entropy's ring; Hopper
bulk copies         the same by bulk copies, and stored by them, so that no thread sees the bytes; Hopper
"""

import argparse
import itertools
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

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
from harness.tuning.clock import DeviceClock, TimedCall

WORDS = 4096  # of 32 bits: a block of the rings, 16 KiB
RESIDENT, SLOTS, WARPS = 4, 3, 4  # programs of a multiprocessor, blocks and warps of a program
WARM, CALLS = 3, 15
INNER = 256  # words of a line of the bulk copies' blocks
Stream = Callable[[Tensor, Tensor], None]


@triton.jit
def double(source, target, LOAD: tl.constexpr, STORE: tl.constexpr, BLOCK: tl.constexpr):
    """Words become twice what they were. LOAD is the loads' eviction policy, STORE the stores' cache modifier."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    words = tl.load(source + place, eviction_policy=LOAD) * 2
    tl.store(target + place, words, cache_modifier=STORE)


@triton.jit
def add_up(source, sums, LOAD: tl.constexpr, BLOCK: tl.constexpr):
    """Words are only read: the sum of a program's block."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(sums + tl.program_id(0), tl.sum(tl.load(source + place, eviction_policy=LOAD)))


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


@triton.jit
def mix(
    a,  # int32 [rows, columns], a row every `stride`, as the next
    b,
    c,  # a row every `columns`; read if READS is 3
    y,  # a row every `to`, as the next
    z,  # written if WRITES is 2
    columns,
    stride,
    to,
    READS: tl.constexpr,
    WRITES: tl.constexpr,
    LOAD: tl.constexpr,
    STORE: tl.constexpr,
    KEEP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A block of a row: `y` is the sum of what is read, `z` one more. KEEP is the stores' eviction policy."""
    blocks = tl.cdiv(columns, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = at < columns
    words = tl.load(a + row * stride + at, mask=inside, eviction_policy=LOAD)
    words += tl.load(b + row * stride + at, mask=inside, eviction_policy=LOAD)
    if READS == 3:
        words += tl.load(c + row * columns + at, mask=inside, eviction_policy=LOAD)
    tl.store(y + row * to + at, words, mask=inside, cache_modifier=STORE, eviction_policy=KEEP)
    if WRITES == 2:
        tl.store(z + row * to + at, words + 1, mask=inside, cache_modifier=STORE, eviction_policy=KEEP)


@triton.jit
def stay_mix(a, b, c, y, rows, columns, LOAD: tl.constexpr, STORE: tl.constexpr, BLOCK: tl.constexpr):
    """3:1 by programs that take row after row, the next one on its way to registers, as rms_norm's backward pass."""
    at = tl.arange(0, BLOCK)
    first, step = tl.program_id(0), tl.num_programs(0)
    place = first.to(tl.int64) * columns + at
    next_a = tl.load(a + place, mask=at < columns, eviction_policy=LOAD)
    next_b = tl.load(b + place, mask=at < columns, eviction_policy=LOAD)
    next_c = tl.load(c + place, mask=at < columns, eviction_policy=LOAD)
    for row in range(first, rows, step):
        place = tl.cast(row, tl.int64) * columns + at
        words = next_a + next_b + next_c
        ahead, there = place + step * columns, at < tl.where(row + step < rows, columns, 0)
        next_a = tl.load(a + ahead, mask=there, eviction_policy=LOAD)
        next_b = tl.load(b + ahead, mask=there, eviction_policy=LOAD)
        next_c = tl.load(c + ahead, mask=there, eviction_policy=LOAD)
        tl.store(y + place, words, mask=at < columns, cache_modifier=STORE)


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
    ("a program a block, loads evict_last, stores .cs", True, 2, by_threads("evict_last", ".cs")),
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


@dataclass(frozen=True, kw_only=True)
class Mix:
    """So many matrices read and written, each of rows x columns words. `halves`: the first two that are read are the
    halves of each row of one, and so are those that are written."""

    kernel: str
    reads: int
    writes: int
    rows: int
    columns: int
    halves: bool


MIXES = {
    "2:1": Mix(kernel="swiglu forward", reads=2, writes=1, rows=8192, columns=14336, halves=True),
    "3:2": Mix(kernel="swiglu backward", reads=3, writes=2, rows=8192, columns=14336, halves=True),
    "2:2": Mix(kernel="rms_norm forward", reads=2, writes=2, rows=8192, columns=4096, halves=False),
    "3:1": Mix(kernel="rms_norm backward", reads=3, writes=1, rows=8192, columns=4096, halves=False),
}
IN_PLACE, READ = "1:1", "1:0"
READ_WORDS = 7168 * 9216 // 2  # 132 MB
# Words of a block, its threads, the loads' eviction policy, the stores' modifier and policy: first as swiglu's rows.
WAYS = [
    (1024, 256, "", "", ""),
    (1024, 256, "evict_last", "", ""),
    (1024, 256, "evict_last", ".cs", ""),
    (1024, 256, "evict_last", ".wt", ""),
    (1024, 256, "evict_first", "", "evict_last"),
    (1024, 256, "evict_last", "", "evict_first"),
    (4096, 1024, "evict_last", "", ""),
    (4096, 256, "evict_last", "", ""),
]


class Matrices(NamedTuple):
    """What a mix reads and writes, as int32 [rows, columns] each, with rows `stride` and `to` words apart."""

    read: list[Tensor]
    written: list[Tensor]
    stride: int
    to: int


def matrices(mix_of: Mix) -> Matrices:
    """Numbers to read."""

    def new(count: int, halves: bool) -> tuple[list[Tensor], int]:
        wide = mix_of.columns * (2 if halves else 1)
        made = [
            torch.randint(-(2**20), 2**20, (mix_of.rows, wide), dtype=torch.int32, device="cuda")
            for _ in range(count // 2 if halves else count)
        ]
        return [half for one in made for half in one.split(mix_of.columns, dim=1)], wide

    read, stride = new(2, mix_of.halves)
    read += new(mix_of.reads - 2, False)[0]
    written, to = new(mix_of.writes, mix_of.halves and mix_of.writes == 2)
    return Matrices(read, written, stride, to)


def by_blocks(mix_of: Mix, given: Matrices, way: tuple[int, int, str, str, str]) -> None:
    block, threads, load, store, keep = way
    a, b, c = (given.read + given.read[:1])[:3]
    y, z = (given.written * 2)[:2]
    grid = (mix_of.rows * triton.cdiv(mix_of.columns, block),)
    options = (mix_of.columns, given.stride, given.to, mix_of.reads, mix_of.writes, load, store, keep, block)
    mix[grid](a, b, c, y, z, *options, num_warps=threads // 32)


def by_staying_rows(mix_of: Mix, given: Matrices, threads: int) -> None:
    grid = (programs(given.read[0]) // RESIDENT * (512 // threads),)
    sizes = (mix_of.rows, mix_of.columns)
    stay_mix[grid](*given.read, *given.written, *sizes, "evict_last", "", mix_of.columns, num_warps=threads // 32)


def ways_of(mix_of: Mix, given: Matrices) -> Iterator[tuple[str, Callable[[], None]]]:
    """The streams of a mix by their names."""
    for way in WAYS:
        block, threads, load, store, keep = way
        policies = [f"loads {load}"] * bool(load) + [f"stores {store or keep}"] * bool(store or keep)
        name = ", ".join([f"a program a block of {4 * block >> 10} KiB, {threads} threads", *policies])
        yield name, partial(by_blocks, mix_of, given, way)
    if (mix_of.reads, mix_of.writes) == (3, 1):
        yield "512 threads x 1 stay, a row ahead, loads evict_last", partial(by_staying_rows, mix_of, given, 512)


def measured_mix(mix_of: Mix, peak_bytes_per_s: float) -> Iterator[list[str | float]]:
    """A row a stream."""
    clock, given = DeviceClock(), matrices(mix_of)
    right = sum(given.read[1:], given.read[0])
    nbytes = 4 * mix_of.rows * mix_of.columns * (mix_of.reads + mix_of.writes)
    for name, stream in ways_of(mix_of, given):

        def call(stream: Callable[[], None] = stream) -> None:
            for one in given.written:
                one.zero_()
            stream()
            if not all(torch.equal(one, right + place) for place, one in enumerate(given.written)):
                raise ValueError("wrong")

        yield [name, *timed(clock, call, stream, nbytes / peak_bytes_per_s)]


def timed(
    clock: DeviceClock, check: Callable[[], None], call: Callable[[], None], least_s: float
) -> tuple[str | float, str]:
    """How long it takes, us, and how much of the data sheet's rate that is, or what is wrong with it."""
    try:
        check()
        time_us = statistics.median(clock.times_us([TimedCall(call, lambda: None)] * (WARM + CALLS))[WARM:])
    except Exception as error:  # of one stream must not cost the other figures
        return f"{type(error).__name__}: {str(error)[:60]}", "-"
    return time_us, f"{least_s * 1e6 / time_us:.1%}"


def measured_in_place(words: int, peak_bytes_per_s: float) -> Iterator[list[str | float]]:
    """The same of as many reads as writes."""
    clock = DeviceClock()
    given = torch.randint(-(2**20), 2**20, (words,), dtype=torch.int32, device="cuda")
    for name, in_place, factor, stream in STREAMS:
        source = given.clone()
        target = source if in_place else torch.empty_like(source)

        def check(stream: Stream = stream, a: Tensor = source, b: Tensor = target, factor: int = factor) -> None:
            stream(a, b)
            if not torch.equal(b, given * factor):
                raise ValueError("wrong")

        found = timed(clock, check, partial(stream, source, target), 8 * words / peak_bytes_per_s)
        yield [f"{name}, {'in place' if in_place else 'elsewhere'}", *found]


class CleanClock(DeviceClock):
    """Its calls begin with an L2 that has nothing to write back."""

    def flush(self) -> None:
        super().flush()
        self.scratch.sum()


def measured_reads(words: int, peak_bytes_per_s: float) -> Iterator[list[str | float]]:
    """A row for each policy of loads and each flush."""
    given = torch.randint(-(2**20), 2**20, (words,), dtype=torch.int32, device="cuda")
    right = given.view(-1, WORDS).sum(1, dtype=torch.int32)
    sums = torch.empty_like(right)
    flushes = {"the usual flush": DeviceClock(), "a flush that leaves the L2 clean": CleanClock()}
    for policy, (flush, clock) in itertools.product(("", "evict_first", "evict_last"), flushes.items()):
        stream = partial(add_up[(len(sums),)], given, sums, policy, WORDS, num_warps=WARPS)

        def check(stream: Callable[[], None] = stream) -> None:
            sums.zero_()
            stream()
            if not torch.equal(sums, right):
                raise ValueError("wrong")

        name = f"a program a block of {4 * WORDS >> 10} KiB{', loads ' * bool(policy)}{policy}, behind {flush}"
        yield [name, *timed(clock, check, stream, 4 * words / peak_bytes_per_s)]


def shown(rows: Iterator[list[str | float]]) -> Iterator[list[str | float]]:
    """Each row, as it comes, for people who wait."""
    for row in rows:
        print(*(f"{cell:.1f}" if isinstance(cell, float) else cell for cell in row), file=sys.stderr, flush=True)
        yield row


def main() -> None:
    names = [IN_PLACE, *MIXES, READ]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mixes", nargs="*", metavar="MIX", help=f"of {', '.join(names)} (default: all)")
    parser.add_argument(
        "--mib", type=int, default=500, metavar="N", help="MiB that are read by 1:1 (default: %(default)s)"
    )
    add_data_argument(parser)
    options = parser.parse_args()
    if unknown := set(options.mixes) - set(names):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    need_gpus(parser, 1, torch.cuda.device_count())
    gpu = torch.cuda.get_device_name(0)
    peaks = hardware.match(gpu)
    assert peaks is not None, f"{gpu} is not in hardware.yaml"
    figures = Figures("What rate a stream of a kernel's reads and writes reaches", f"1x {gpu}")
    for name in options.mixes or names:
        if name == IN_PLACE:
            rows, kernel = measured_in_place(options.mib << 18, peaks.hbm_bytes_per_s), "cross_entropy"
        elif name == READ:
            rows, kernel = measured_reads(READ_WORDS, peaks.hbm_bytes_per_s), "gemm_rs"
        else:
            rows, kernel = measured_mix(MIXES[name], peaks.hbm_bytes_per_s), MIXES[name].kernel
        columns = ("stream", "us", "of the data sheet's rate")
        figures.table(columns, list(shown(rows)), f"{name}, as {kernel}")
        figures.write(options.data)


if __name__ == "__main__":
    main()
