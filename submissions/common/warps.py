"""What gemm_rs's and ag_gemm's kernels with explicit warps (Hopper) have in common: a ring of stages in shared memory
between the warp that loads and those that multiply; tiles that leave through shared memory; and flags between ranks.

Memory that ranks share is written and read by bulk copies here, which go past the path of ordinary loads and stores.
So the order of memory has four links: the copies to a rank are complete, which the whole warp waits for
(`finish_copies`); its threads set flags with a release at system scope (`set_flags`); the other rank's warp reads them
with an acquire at system scope (`read_flag`), and a fence lets the bulk copies that follow see what it has seen
(`order_copies`).
"""

from common.bulk import partition_barrier
from common.launch import Tiles
from common.merged import MARK
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

GROUPS = gl.constexpr(2)  # warpgroups that multiply, each a half of a tile's rows
FLAG_BYTES = gl.constexpr(128)  # a flag's line, as in heap


def ring_tiles(shape: tuple[int, int], block: tuple[int, int]) -> Tiles:
    """A bf16 matrix whose blocks bulk copies bring into shared memory as rings have them, each by itself."""
    return Tiles(shape, block, gl.NVMMASharedLayout.get_default_for([*block], gl.bfloat16))


@gluon.jit
def made_ring(
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    PARTS: gl.constexpr = 1,
):
    """An empty ring: [STAGES * GROUPS, BLOCK_M / GROUPS, BLOCK_K] and [STAGES * PARTS, BLOCK_N, BLOCK_K] of operands,
    and the barriers that say that a stage is filled, or that both warpgroups have emptied it."""
    HALF: gl.constexpr = BLOCK_M // GROUPS
    a_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([HALF, BLOCK_K], gl.bfloat16)
    b_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_N, BLOCK_K], gl.bfloat16)
    a_ring = gl.allocate_shared_memory(gl.bfloat16, [STAGES * GROUPS, HALF, BLOCK_K], a_layout)
    b_ring = gl.allocate_shared_memory(gl.bfloat16, [STAGES * PARTS, BLOCK_N, BLOCK_K], b_layout)
    filled = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    emptied = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(filled.index(stage), count=1)
        mbarrier.init(emptied.index(stage), count=GROUPS)
    return a_ring, b_ring, filled, emptied


@gluon.jit
def next_stage(slot, phase, STAGES: gl.constexpr):
    """The stage of the ring behind this one, and the phase of its barriers."""
    wraps = (slot == STAGES - 1).to(gl.int32)
    return (slot + 1) * (1 - wraps), phase ^ wraps


@gluon.jit
def multiplied(
    a_ring,
    b_ring,
    filled,
    emptied,
    acc,
    steps,
    slot,
    phase,
    MINE: gl.constexpr,
    STAGES: gl.constexpr,
):
    """`acc` + the product of what the next `steps` stages hold, and the stage behind them with its phase."""
    acc = warpgroup_mma_init(acc)
    for step in range(steps):
        mbarrier.wait(filled.index(slot), phase)
        acc = warpgroup_mma(a_ring.index(slot * GROUPS + MINE), b_ring.index(slot).permute((1, 0)), acc, is_async=True)
        # At most this product is under way now: the stage of the one before it may be filled again.
        acc = warpgroup_mma_init(warpgroup_mma_wait(1, deps=(acc,)))
        mbarrier.arrive(emptied.index((slot + STAGES - 1) % STAGES), count=1, pred=step > 0)
        slot, phase = next_stage(slot, phase, STAGES)
    product = warpgroup_mma_wait(0, deps=(acc,))
    mbarrier.arrive(emptied.index((slot + STAGES - 1) % STAGES), count=1)
    return product, slot, phase


@gluon.jit
def multiplied_in_three(
    a_ring,
    b_ring,
    filled,
    emptied,
    first,
    second,
    third,
    steps,
    slot,
    phase,
    MINE: gl.constexpr,
    STAGES: gl.constexpr,
):
    """The same of a tile whose columns are three times a power of two: three blocks of a stage, and three sums, by one
    instruction each 16 of the depth (see merged)."""
    first, second, third = warpgroup_mma_init(first), warpgroup_mma_init(second), warpgroup_mma_init(third)
    for step in range(steps):
        mbarrier.wait(filled.index(slot), phase)
        a_s = a_ring.index(slot * GROUPS + MINE)
        as_one_product()
        first = warpgroup_mma(a_s, b_ring.index(slot * 3).permute((1, 0)), first, is_async=True)
        second = warpgroup_mma(a_s, b_ring.index(slot * 3 + 1).permute((1, 0)), second, is_async=True)
        third = warpgroup_mma(a_s, b_ring.index(slot * 3 + 2).permute((1, 0)), third, is_async=True)
        first, second, third = warpgroup_mma_wait(3, deps=(first, second, third))
        first, second, third = warpgroup_mma_init(first), warpgroup_mma_init(second), warpgroup_mma_init(third)
        mbarrier.arrive(emptied.index((slot + STAGES - 1) % STAGES), count=1, pred=step > 0)
        slot, phase = next_stage(slot, phase, STAGES)
    first, second, third = warpgroup_mma_wait(0, deps=(first, second, third))
    mbarrier.arrive(emptied.index((slot + STAGES - 1) % STAGES), count=1)
    return first, second, third, slot, phase


@gluon.jit
def as_one_product():
    """The three products that come next are one of as many columns (see merged)."""
    text: gl.constexpr = MARK + "\n\tmov.b32 $0, 0;"
    gl.inline_asm_elementwise(text, "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def bf16_behind(block, offset):
    """A pointer to the bf16 that lie `offset` bytes behind the address of a block of the heap."""
    return (block + offset).to(gl.pointer_type(gl.bfloat16))


@gluon.jit
def wait_until_under_way(COPIES: gl.constexpr):
    """Waits until at most COPIES of the warp's bulk copies are incomplete."""
    gl.inline_asm_elementwise(
        f"cp.async.bulk.wait_group {COPIES}; mov.b32 $0, 0;",
        "=r,~{memory}",
        [],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def finish_copies():
    """All bulk copies that this warp has started are complete, and what they wrote is before what it releases next."""
    gl.inline_asm_elementwise(
        "cp.async.bulk.wait_group 0; fence.proxy.async.global; mov.b32 $0, 0;",
        "=r,~{memory}",
        [],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )
    partition_barrier()


@gluon.jit
def thread_numbers():
    """Those of a warp's threads, one in each."""
    return gl.arange(0, 32, gl.BlockedLayout([1], [32], [1], [0]))


@gluon.jit
def set_flags(addresses, epoch, mask):
    """Each thread of the warp sets the flag at its address (int64) to `epoch`, where `mask` is set, once all that the
    warp has stored can be seen by whoever sees that. This waits for all that is on its way from the multiprocessor."""
    gl.inline_asm_elementwise(
        "{ .reg .pred some; setp.ne.u32 some, $3, 0; @some st.release.sys.global.u32 [$1], $2; mov.b32 $0, 0; }",
        "=r,l,r,r,~{memory}",
        [addresses, epoch, mask.to(gl.int32)],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def set_flag(address, epoch):
    """One thread does so."""
    threads = thread_numbers()
    set_flags(address + 0 * threads, epoch, threads == 0)


@gluon.jit
def read_flag(address):
    """The flags at these addresses (int64), each acquired by the thread that reads it."""
    return gl.inline_asm_elementwise(
        "ld.acquire.sys.global.u32 $0, [$1];", "=r,l,~{memory}", [address], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def order_copies():
    """What this warp's threads have acquired is seen by its bulk copies from here on."""
    partition_barrier()
    gl.inline_asm_elementwise(
        "fence.proxy.async.global; mov.b32 $0, 0;", "=r,~{memory}", [], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def wait_for(address, epoch):
    """Returns once the flag at this address has come to `epoch`; what it tells of may then be copied."""
    value = epoch - 1
    while value < epoch:
        value = read_flag(address)
    order_copies()
