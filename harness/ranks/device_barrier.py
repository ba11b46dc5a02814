"""A kernel that holds a whole device until the host's barrier opens, and ends on all devices at nearly the same time.
The device clock starts after it.

While the kernel waits it fills the device, so that no other kernel can run there: work that a submission hands to
another stream begins no earlier than the clock does. All work that is submitted meanwhile is in the device's queue when
the kernel ends, so that the time has no latency of the host in it.

Once the barrier is open, the devices meet in the barrier's page. The page lies in the host's memory, and every device
reads it; they leave within a round trip to it.
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
    """Returns once the words at the first `count` lanes' addresses have all come to `epoch`. One thread reads each
    word: if all threads of all programs read the same word, they see a change microseconds late, and each device by
    another number of microseconds."""
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
def device_barrier(
    released,  # the addresses of words of 32 bits, as the device sees them: the epoch that the barrier has released,
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
    """The first program waits for the barrier, then says that this rank has come to `epoch`, and ends once all ranks
    have. The other programs end when it does."""
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
