"""Flags between the kernels of several ranks: what one rank wrote before it signals, another sees after it waited.

A flag is the first 32-bit word of its line; it holds an epoch, which only grows (see heap). The order of memory is
made by a release at system scope on the writer's side (at the device's, where only that device waits) and an acquire at
system scope on the reader's. Some things have to be helped:
- Up to Triton 3.8 an atomic with release is not preceded by a barrier of its block, so that only the stores of the
  thread that does it would be released. Hence the barrier in `finish_stores`.
- A loop over plain loads is deleted by the compiler, and volatile loads hang on gfx942. Hence `wait` reads by adding 0.
- On AMD's GPUs a block's barrier does not wait for its waves' stores to memory, and before llvm-project #178316 (2026;
  Triton 3.6 is older) a release does not wait for the cache to be written back. Hence each wave's own release in
  `finish_stores` where `AMD` is set.
"""

import triton
import triton.language as tl

LINE_WORDS = tl.constexpr(32)  # 128 bytes, as in heap


@triton.jit
def flag_pointers(blocks, indices):
    """Flags `indices` of the blocks at addresses `blocks` (int64); both scalars or tensors."""
    return tl.cast(blocks, tl.pointer_type(tl.int32)) + indices * LINE_WORDS


@triton.jit
def finish_stores(AMD: tl.constexpr):
    """All that this program has stored is before what it releases next."""
    if AMD:  # gfx942 and gfx950
        tl.inline_asm_elementwise(
            "s_waitcnt vmcnt(0)\nbuffer_wbl2 sc0 sc1\ns_waitcnt vmcnt(0)\nv_mov_b32 $0, 0",
            "=v,~{memory}",
            [],
            tl.int32,
            False,
            1,
        )
    tl.debug_barrier()


@triton.jit
def signal(flags, epoch, mask=None, AMD: tl.constexpr = False, HERE: tl.constexpr = False):
    """Sets the flags to `epoch` once all that this program has stored can be seen by whoever sees them. With HERE that
    holds on this device alone, and does not wait for what is on its way to others."""
    finish_stores(AMD)
    if HERE:
        tl.atomic_xchg(flags, epoch, mask=mask, sem="release", scope="gpu")
    else:
        tl.atomic_xchg(flags, epoch, mask=mask, sem="release", scope="sys")


@triton.jit
def count_up(counter):
    """Adds one to a counter once all that this program has stored can be seen by whoever sees that. (Not on AMD's GPUs,
    see `signal`.)"""
    tl.debug_barrier()
    tl.atomic_add(counter, 1, sem="release", scope="sys")


@triton.jit
def arrive(counter, AMD: tl.constexpr):
    """How many programs of this device have arrived at the counter before this one, which then sees what they had
    stored. Counts it."""
    finish_stores(AMD)
    before = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
    tl.debug_barrier()  # what the program loads from now on, any of its threads may load
    return before


@triton.jit
def wait(flags, epoch, mask):
    """Returns once all flags (a tensor) where `mask` is set have come to `epoch`."""
    zeros = tl.zeros_like(mask).to(tl.int32)
    least = epoch - 1
    while least < epoch:
        values = tl.atomic_add(flags, zeros, mask=mask, sem="acquire", scope="sys")
        least = tl.min(tl.where(mask, values, epoch))
    tl.debug_barrier()  # what the program loads from now on, any of its threads may load


@triton.jit
def wait_beyond(flags, epoch, mask, places, count, most):
    """How many of the first flags have come to `epoch`, as soon as these are more than `count`. `places` (a tensor as
    flags and mask) says which is the how-manieth; those of one place count together, and there are `most` places."""
    zeros = tl.zeros_like(mask).to(tl.int32)
    come = count
    while come <= count:
        values = tl.atomic_add(flags, zeros, mask=mask & (places >= count), sem="acquire", scope="sys")
        missing = mask & (places >= count) & (values < epoch)
        come = tl.min(tl.where(missing, places, most))
    tl.debug_barrier()  # as in `wait`
    return come


@triton.jit
def order_bulk_loads(BULK: tl.constexpr):
    """What this program has waited for is seen by its bulk copies (tensor descriptors on NVIDIA) as well, which go
    past the path of ordinary loads."""
    if BULK:
        tl.inline_asm_elementwise("fence.proxy.async.global; mov.b32 $0, 0;", "=r", [], tl.int32, False, 1)


@triton.jit
def finish_bulk_stores(BULK: tl.constexpr):
    """What this program has stored through tensor descriptors has arrived, so that a signal may follow. Triton itself
    waits only until their source may be overwritten."""
    if BULK:
        tl.inline_asm_elementwise(
            "cp.async.bulk.wait_group 0; fence.proxy.async.global; mov.b32 $0, 0;", "=r", [], tl.int32, False, 1
        )


@triton.jit(do_not_specialize=["rank", "epoch", "flags"])
def barrier_kernel(blocks_ptr, rank, epoch, flags, WORLD: tl.constexpr):
    """One program: ends once every rank's has begun. Takes a turn of the heap with W flags, which begin at `flags`."""
    peers = tl.arange(0, WORLD)
    everywhere = peers >= 0
    signal(flag_pointers(tl.load(blocks_ptr + peers) + flags, rank), epoch, everywhere)
    wait(flag_pointers(tl.load(blocks_ptr + rank) + flags, peers), epoch, everywhere)
