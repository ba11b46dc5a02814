"""A kernel that ends on all devices at nearly the same time: what a device's clock starts after.

A device that waits in its stream for the gate's word looks for it only every few microseconds, so that devices leave
up to ten microseconds after each other, and whoever is early would wait for the others within the time. This kernel
then meets the others' in the gate's page, in the host's memory, which all devices read; they leave within a round
trip to it.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["address", "rank", "epoch"])
def line_up(
    address,  # of rank 0's word, 32 bits, as the device sees it
    rank,
    epoch,
    WORLD: tl.constexpr,
    LANES: tl.constexpr,  # WORLD rounded up to a power of two
    STRIDE: tl.constexpr,  # bytes between two ranks' words
    HIP: tl.constexpr,
):
    """One program: says that this rank has come to `epoch`, and ends once all have."""
    words = address + tl.minimum(tl.arange(0, LANES), WORLD - 1) * STRIDE
    own = address + rank.to(tl.int64) * STRIDE
    if HIP:
        tl.atomic_xchg(tl.cast(own, tl.pointer_type(tl.int32)), epoch, sem="release", scope="sys")
    else:  # not an atomic, which a GPU cannot do on a host's memory across every bus
        tl.inline_asm_elementwise(
            "st.release.sys.global.s32 [$1], $2; mov.b32 $0, 0;", "=r,l,r", [own, epoch], tl.int32, False, 1
        )
    least = epoch - 1
    while least < epoch:
        if HIP:
            seen = tl.atomic_add(
                tl.cast(words, tl.pointer_type(tl.int32)), tl.zeros_like(words).to(tl.int32), sem="acquire", scope="sys"
            )
        else:
            seen = tl.inline_asm_elementwise("ld.acquire.sys.global.s32 $0, [$1];", "=r,l", [words], tl.int32, False, 1)
        least = tl.min(seen)
