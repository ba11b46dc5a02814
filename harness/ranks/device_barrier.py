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
def _set(addresses, epoch, lanes, count, HIP: tl.constexpr):
    """Sets the words at the first `count` lanes' addresses, each by one thread, to `epoch`."""
    if HIP:
        words = tl.cast(addresses, tl.pointer_type(tl.int32))
        tl.atomic_xchg(words, epoch + 0 * lanes, mask=lanes < count, sem="release", scope="sys")
    else:  # not an atomic, which a GPU cannot do on a host's memory across every bus
        tl.inline_asm_elementwise(
            "{ .reg .pred mine; setp.lt.s32 mine, $3, $4; @mine st.release.sys.global.s32 [$1], $2; mov.b32 $0, 0; }",
            "=r,l,r,r,r",
            [addresses, epoch + 0 * lanes, lanes, count + 0 * lanes],
            tl.int32,
            False,
            1,
        )


@triton.jit
def _wait(addresses, epoch, lanes, count, HIP: tl.constexpr):
    """Returns once the words at the first `count` lanes' addresses have all come to `epoch`. One thread reads each:
    where all threads of all programs read one word, a change of it is seen microseconds late, and on each device by
    another number of them."""
    least = epoch - 1
    while least < epoch:
        if HIP:
            words = tl.cast(addresses, tl.pointer_type(tl.int32))
            read = tl.atomic_add(words, 0 * lanes, mask=lanes < count, sem="acquire", scope="sys")
            seen = tl.where(lanes < count, read, epoch)
        else:
            seen = tl.inline_asm_elementwise(
                "{ .reg .pred mine; setp.lt.s32 mine, $3, $4; mov.s32 $0, $2;"
                " @mine ld.acquire.sys.global.s32 $0, [$1]; }",
                "=&r,l,r,r,r",
                [addresses, epoch + 0 * lanes, lanes, count + 0 * lanes],
                tl.int32,
                False,
                1,
            )
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
    THREADS: tl.constexpr,  # of a program
    STRIDE: tl.constexpr,  # bytes between two ranks' words
    HIP: tl.constexpr,
):
    """The first program waits for the gate, then says that this rank has come to `epoch`, and ends once all have; the
    others end when it does."""
    lanes = tl.arange(0, THREADS)
    nowhere = tl.zeros((THREADS,), tl.int64)
    if tl.program_id(0) == 0:
        _set(held + nowhere, epoch, lanes, 1, HIP)
        _wait(released + nowhere, epoch, lanes, 1, HIP)
        _set(marks + rank.to(tl.int64) * STRIDE + nowhere, epoch, lanes, 1, HIP)
        _wait(marks + lanes.to(tl.int64) * STRIDE, epoch, lanes, WORLD, HIP)
        _set(ended + nowhere, epoch, lanes, 1, HIP)
    else:
        _wait(ended + nowhere, epoch, lanes, 1, HIP)
