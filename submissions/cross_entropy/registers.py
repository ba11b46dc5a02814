"""cross_entropy as plain Triton kernels: `once` holds parts of rows in registers, `twice` takes any shape and stride.

In `once` a row of several PARTS belongs to as many programs, which tell each other their largest logit and their sum of
exponentials through memory: 8 bytes, written once, that are 0 until then. All programs run at once, so that none waits
for one that has not begun. The interpreter runs programs one after the other, so it runs `once` for whole rows only.
"""

import triton
import triton.language as tl
from ring import LOG2E, NOTHING


@triton.jit
def gradient_factor(targets, tokens, ignore_index, loss_scale, COUNTED: tl.constexpr):
    """What the gradient of a token's loss is multiplied by: the scale over the number of tokens that count."""
    counted = tl.zeros((COUNTED,), tl.int32)
    for start in range(0, tokens, COUNTED):
        at = start + tl.arange(0, COUNTED)
        counted += (tl.load(targets + at, mask=at < tokens, other=ignore_index) != ignore_index).to(tl.int32)
    return loss_scale / tl.sum(counted).to(tl.float32)


@triton.jit
def halves(words):
    """The bf16 numbers in 32-bit words as float32: those at even columns, those at odd ones."""
    return (words << 16).to(tl.float32, bitcast=True), (words & -65536).to(tl.float32, bitcast=True)


@triton.jit
def again(words, number):
    """The same words: adds 0, as `number` is finite, which the compiler cannot know. Else it would hold a row as
    float32 from one use to the next, in twice the registers."""
    return words + (tl.abs(number) == float("inf")).to(tl.int32)


@triton.jit
def joined(even, odd):
    """32-bit words of two bf16 numbers each."""
    low = even.to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32) & 65535
    return low | (odd.to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32) << 16)


@triton.jit
def exchanged(slots, sums, part, most, total, plain, PARTS: tl.constexpr, SMOOTH: tl.constexpr):
    """The largest logit of the whole row, its sum of exponentials relative to that, and the sum of its logits. A slot
    has the first two of a part; the latter is at least 1, so a slot that was written is not 0."""
    if SMOOTH:
        tl.store(sums + part, plain)
        tl.debug_barrier()  # before the exchange, which another thread may do
    told = (most.to(tl.int32, bitcast=True).to(tl.int64) << 32) | total.to(tl.int32, bitcast=True).to(tl.int64)
    tl.atomic_xchg(slots + part, told, sem="release", scope="gpu")
    parts = tl.arange(0, PARTS)
    nothing = tl.zeros((PARTS,), tl.int64)
    heard = tl.atomic_add(slots + parts, nothing, sem="acquire", scope="gpu")
    while tl.min((heard != 0).to(tl.int32)) == 0:
        heard = tl.atomic_add(slots + parts, nothing, sem="acquire", scope="gpu")
    mosts = (heard >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    totals = heard.to(tl.int32).to(tl.float32, bitcast=True)
    most = tl.max(mosts)
    total = tl.sum(totals * tl.exp2((mosts - most) * LOG2E))
    if SMOOTH:
        tl.debug_barrier()
        plain = tl.sum(tl.load(sums + parts, volatile=True))
    return most, total, plain


@triton.jit(do_not_specialize=["ignore_index"])
def once(
    words,
    logits,
    targets,
    losses,
    slots,
    sums,
    tokens,
    vocab,
    width,
    stride,
    ignore_index,
    smoothing,
    loss_scale,
    PARTS: tl.constexpr,
    WORDS: tl.constexpr,
    SMOOTH: tl.constexpr,
    COUNTED: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Parts of rows. `words` are the logits as 32-bit words, `stride` words a row, `width` words a part; programs come
    in groups of PARTS. With AHEAD a program loads its part of the next row while it works on one."""
    factor = gradient_factor(targets, tokens, ignore_index, loss_scale, COUNTED)
    part = tl.program_id(0) % PARTS
    place = tl.arange(0, WORDS)
    column = part * width + place
    inside = (place < width) & (column < vocab // 2)
    first, step = tl.program_id(0) // PARTS, tl.num_programs(0) // PARTS
    if AHEAD:
        following = tl.load(words + tl.cast(first, tl.int64) * stride + column, mask=inside, other=NOTHING)
    for row in range(first, tokens, step):
        line = words + tl.cast(row, tl.int64) * stride
        if AHEAD:
            pairs = following
            there = inside & (column < tl.where(row + step < tokens, vocab, 0))
            following = tl.load(line + step * stride + column, mask=there, other=NOTHING)
        else:
            pairs = tl.load(line + column, mask=inside, other=NOTHING)
        target = tl.load(targets + row).to(tl.int32)
        if target == ignore_index:
            tl.store(line + column, tl.zeros((WORDS,), tl.int32), mask=inside)
            if part == 0:
                tl.store(losses + row, 0.0)
        else:
            is_mine = target // 2 // width == part
            at_target = logits + tl.cast(row, tl.int64) * stride * 2 + target
            own = tl.load(at_target).to(tl.float32)
            even, odd = halves(pairs)
            most = tl.max(tl.maximum(even, odd))
            plain = 0.0
            if SMOOTH:
                even, odd = halves(again(pairs, most))
                plain = tl.sum(tl.where(inside, even + odd, 0.0))
            even, odd = halves(again(pairs, most + plain))
            total = tl.sum(tl.exp2((even - most) * LOG2E) + tl.exp2((odd - most) * LOG2E))
            if PARTS > 1:
                most, total, plain = exchanged(
                    slots + row * PARTS, sums + row * PARTS, part, most, total, plain, PARTS, SMOOTH
                )
            else:
                tl.debug_barrier()  # the target's logit is read before it is written over
            share = factor / total
            even, odd = halves(again(pairs, total))
            even = tl.exp2((even - most) * LOG2E) * share
            odd = tl.exp2((odd - most) * LOG2E) * share
            if SMOOTH:
                even -= factor * smoothing / vocab
                odd -= factor * smoothing / vocab
            tl.store(line + column, joined(even, odd), mask=inside)
            if is_mine:
                tl.debug_barrier()  # its element is written once more
                right = tl.exp2((own - most) * LOG2E) / total - (1 - smoothing) - smoothing / vocab
                tl.store(at_target, (factor * right).to(logits.dtype.element_ty))
                loss = most + tl.log(total) - (1 - smoothing) * own - smoothing / vocab * plain
                tl.store(losses + row, loss)


@triton.jit(do_not_specialize=["ignore_index"])
def twice(
    logits,
    targets,
    losses,
    tokens,
    vocab,
    stride,
    ignore_index,
    smoothing,
    loss_scale,
    BLOCK: tl.constexpr,
    COUNTED: tl.constexpr,
):
    """Rows, read a second time when their sum of exponentials is known."""
    factor = gradient_factor(targets, tokens, ignore_index, loss_scale, COUNTED)
    for row in range(tl.program_id(0), tokens, tl.num_programs(0)):
        line = logits + tl.cast(row, tl.int64) * stride
        target = tl.load(targets + row).to(tl.int32)
        if target == ignore_index:
            for start in range(0, vocab, BLOCK):
                column = start + tl.arange(0, BLOCK)
                tl.store(line + column, tl.zeros((BLOCK,), logits.dtype.element_ty), mask=column < vocab)
            tl.store(losses + row, 0.0)
        else:
            own = tl.load(line + target).to(tl.float32)
            most, total, plain = float("-inf"), 0.0, 0.0
            for start in range(0, vocab, BLOCK):
                column = start + tl.arange(0, BLOCK)
                value = tl.load(line + column, mask=column < vocab, other=float("-inf")).to(tl.float32)
                larger = tl.maximum(most, tl.max(value))
                total = total * tl.exp2((most - larger) * LOG2E) + tl.sum(tl.exp2((value - larger) * LOG2E))
                most = larger
                plain += tl.sum(tl.where(column < vocab, value, 0.0))
            tl.debug_barrier()  # all has been read before any of it is written over
            for start in range(0, vocab, BLOCK):
                column = start + tl.arange(0, BLOCK)
                value = tl.load(line + column, mask=column < vocab, other=0.0).to(tl.float32)
                right = tl.exp2((value - most) * LOG2E) / total - smoothing / vocab
                right -= tl.where(column == target, 1 - smoothing, 0.0)
                tl.store(line + column, (factor * right).to(logits.dtype.element_ty), mask=column < vocab)
            loss = most + tl.log(total) - (1 - smoothing) * own - smoothing / vocab * plain
            tl.store(losses + row, loss)
