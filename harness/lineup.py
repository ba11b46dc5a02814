"""A kernel that holds a whole device until the gate opens, and ends on all devices at nearly the same time: what a
device's clock starts after.

While it waits it fills the device, so that no other kernel can run there: work that a submission hands to another
stream, which does not wait for the timed one, begins no earlier than the clock does. And all that is submitted
meanwhile is in the device's queue when it ends, so that no latency of the host is in the time.

Once the gate is open the devices meet in the gate's page, in the host's memory, which all of them read; they leave
within a round trip to it.
"""

import triton
import triton.language as tl


@triton.jit
def _set(address, value, HIP: tl.constexpr):
    if HIP:
        tl.atomic_xchg(tl.cast(address, tl.pointer_type(tl.int32)), value, sem="release", scope="sys")
    else:  # not an atomic, which a GPU cannot do on a host's memory across every bus
        tl.inline_asm_elementwise(
            "st.release.sys.global.s32 [$1], $2; mov.b32 $0, 0;", "=r,l,r", [address, value], tl.int32, False, 1
        )


@triton.jit
def _wait(words, epoch, HIP: tl.constexpr):
    """Returns once all words at these addresses have come to `epoch`."""
    least = epoch - 1
    while least < epoch:
        if HIP:
            seen = tl.atomic_add(
                tl.cast(words, tl.pointer_type(tl.int32)), tl.zeros_like(words).to(tl.int32), sem="acquire", scope="sys"
            )
        else:
            seen = tl.inline_asm_elementwise("ld.acquire.sys.global.s32 $0, [$1];", "=r,l", [words], tl.int32, False, 1)
        least = tl.min(seen)


@triton.jit(do_not_specialize=["released", "held", "marks", "ended", "rank", "epoch"])
def line_up(
    released,  # the addresses of words of 32 bits, as the device sees them: the epoch that the gate has released,
    held,  # where this device says that it waits for it,
    marks,  # rank 0's device's, where it says that it is on its way, with the others' behind it,
    ended,  # and one in its own memory
    rank,
    epoch,
    WORLD: tl.constexpr,
    LANES: tl.constexpr,  # WORLD rounded up to a power of two
    STRIDE: tl.constexpr,  # bytes between two ranks' words
    HIP: tl.constexpr,
):
    """The first program waits for the gate, then says that this rank has come to `epoch`, and ends once all have; the
    others end when it does."""
    if tl.program_id(0) == 0:
        lanes = tl.arange(0, LANES)
        _set(held, epoch, HIP)
        _wait(released + 0 * lanes, epoch, HIP)
        _set(marks + rank.to(tl.int64) * STRIDE, epoch, HIP)
        _wait(marks + tl.minimum(lanes, WORLD - 1) * STRIDE, epoch, HIP)
        _set(ended, epoch, HIP)
    else:
        _wait(ended + 0 * tl.arange(0, 2), epoch, HIP)
