"""What the kernels of a2a and moe share: whose a token's experts are, where its rows lie in the heap, and how a program
learns whether they came.

Rows lie in a rank's block of the heap (see heap) and have flags (see signals). A flag at `epoch` says that a row has
come, a flag at `epoch` + 1 that none will: so no rank has to be told how many there are.
"""

import triton
import triton.language as tl


@triton.jit
def rows_at(blocks, offset):
    """The fp16 numbers that lie at this offset of the blocks at these addresses."""
    return tl.multiple_of(tl.cast(blocks + offset, tl.pointer_type(tl.float16)), 16)


@triton.jit
def words_at(block, offset):
    """The int32 numbers that lie at this offset of the block at this address."""
    return tl.multiple_of(tl.cast(block + offset, tl.pointer_type(tl.int32)), 16)


@triton.jit
def floats_at(block, offset):
    """Likewise the float32 numbers."""
    return tl.multiple_of(tl.cast(block + offset, tl.pointer_type(tl.float32)), 16)


@triton.jit
def turned(program, programs, before, DIES: tl.constexpr):
    """The number of this program in a phase, where the items of earlier phases, `before`, were dealt out ahead.

    A token's items of all phases go to programs of one die, which has its row in the L2 then.
    """
    return (program + programs - tl.cdiv(before, DIES) * DIES % programs) % programs


@triton.jit
def ranks_of(indices, token, PER_RANK: tl.constexpr, TOP_K: tl.constexpr):
    """The ranks of the token's experts, [K]; -1 for none."""
    choices_K = tl.arange(0, triton.next_power_of_2(TOP_K))
    experts_K = tl.load(indices + token * TOP_K + choices_K, mask=choices_K < TOP_K, other=0)
    return tl.where(choices_K < TOP_K, experts_K // PER_RANK, -1)


@triton.jit
def wait_for_pieces(flags, epoch, mask):
    """Returns, once all flags (a tensor) where `mask` is set have come to `epoch`, which stand for data."""
    zeros = tl.zeros_like(mask).to(tl.int32)
    bits = 1 << tl.arange(0, mask.shape[0])
    least = epoch - 1
    data = 0  # a number, as Triton 3.6 cannot take a tensor out of such a loop
    while least < epoch:
        values = tl.atomic_add(flags, zeros, mask=mask, sem="acquire", scope="sys")
        least = tl.min(tl.where(mask, values, epoch))
        data = tl.sum(tl.where(mask & (values == epoch), bits, 0))
    tl.debug_barrier()  # what the program loads from now on, any of its threads may load
    return (data & bits) != 0
