"""cross_entropy on Hopper for rows too long for one program: loaded ahead into registers, with one exponential a logit.

A program has a part of a row, as in ring.py. While its part of the next row is on its way to registers, it replaces the
logits of this one by their exponentials, as in loaded.py, and tells the other parts its largest logit and its sum. The
exponentials then wait in shared memory: they are multiplied a row later, when the other parts have told theirs. Loads
can ask the L2 cache to keep lines until the gradient is written over them; copies to shared memory, which ring.py has,
cannot in Triton 3.6. Smoothed labels are not for this kernel, for the reason that loaded.py gives.

Legend: T threads, V vectors of 4 words.
"""

from loaded import logarithm, times, times_plus
from ring import LEAST, LOG2E, NOTHING, bits, counted, larger, own_sum, packed, unpacked
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def all_told(words, told):
    """What all parts have told at these addresses, as pairs of float32 [PARTS] each; `told` is what was there before. A
    word that was written is not 0."""
    while gl.min((told != 0).to(gl.int32), 0) == 0:
        told = gl.load(words, volatile=True)
    return (told >> 32).to(gl.int32).to(gl.float32, bitcast=True), told.to(gl.int32).to(gl.float32, bitcast=True)


@gluon.jit(do_not_specialize=["ignore_index"])
def held_kernel(
    logits,  # bf16 [tokens, vocab], a row every 8 * quads
    targets,  # int64 [tokens]
    losses,  # float32 [tokens]
    slots,  # int64 [tokens, PARTS], 0: a part's largest logit and its sum of exponentials relative to that
    tokens,
    vocab,
    width,  # logits of a part, a multiple of 8
    quads,  # of 4 words of two logits
    ignore_index,
    smoothing,  # 0
    loss_scale,
    PARTS: gl.constexpr,
    VECTORS: gl.constexpr,  # of a thread, a part
    FULL: gl.constexpr,  # so many of them, the first ones, are inside every part in all threads
):
    THREADS: gl.constexpr = 32 * gl.num_warps()
    layout: gl.constexpr = gl.BlockedLayout([VECTORS, 1, 4], [1, 32, 1], [1, gl.num_warps(), 1], [2, 1, 0])
    of_threads: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, layout))
    small: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    linear: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [2, 1, 0])
    waiting = gl.allocate_shared_memory(gl.int32, [VECTORS, THREADS, 4], linear)  # the exponentials of the row before
    part = gl.program_id(0) % PARTS
    first, step = gl.program_id(0) // PARTS, gl.num_programs(0) // PARTS
    count = gl.where(first < step, (tokens - first + step - 1) // step, 0)  # rows of this program

    vector = gl.arange(0, VECTORS, layout=gl.SliceLayout(1, gl.SliceLayout(2, layout)))
    thread = gl.arange(0, THREADS, layout=of_threads)
    within = gl.arange(0, 4, layout=gl.SliceLayout(0, gl.SliceLayout(0, layout)))
    vector = gl.expand_dims(gl.expand_dims(vector, 1), 2)
    quad = vector * THREADS + gl.expand_dims(gl.expand_dims(thread, 0), 2)  # [V, T, 1]
    inside = (vector < FULL) | (quad * 8 < gl.minimum(width, vocab - part * width))
    # The words of a thread: where its first one is, and how far behind that the others are, which compilers know.
    words = logits.to(gl.pointer_type(gl.int32), bitcast=True) + part * (width // 8 * 4)
    words += gl.expand_dims(gl.expand_dims(thread * 4, 0), 2)  # [1, T, 1]
    place = vector * (THREADS * 4) + gl.expand_dims(gl.expand_dims(within, 0), 0)  # [V, 1, 4]
    parts = gl.arange(0, PARTS, layout=small)

    line = words + gl.cast(first, gl.int64) * quads * 4
    coming = gl.load(line + place, mask=inside & (count > 0), other=NOTHING, eviction_policy="evict_last")
    factor = loss_scale / counted(targets, tokens, ignore_index, 16 * THREADS, small).to(gl.float32)

    target = gl.load(targets + first, mask=count > 0, other=0).to(gl.int32)
    # Of the row before. Each a value of its own: names of one value ahead of a loop stay one in it (Triton 3.6).
    before, before_own, before_mine = target * 0, thread * 0.0, thread * 0.0
    for index in range(gl.where(count > 0, count + 1, 0)):
        row = first + index * step
        is_there = index < count
        line = words + gl.cast(row, gl.int64) * quads * 4
        behind = slots + gl.maximum(row - step, first) * PARTS + parts
        told = gl.load(behind, volatile=True)  # long before it is needed
        following = gl.load(targets + row + step, mask=index + 1 < count, other=0).to(gl.int32)
        # The target's logit, for the thread that is going to write over it.
        column = target - part * width
        is_mine = (target != ignore_index) & (column >= 0) & (column < width)
        is_mine = is_mine & is_there & ((column >> 3) & (THREADS - 1) == thread)
        at_target = logits + (gl.cast(row, gl.int64) * quads * 8 + target) + thread * 0
        own = gl.load(at_target, mask=is_mine, other=0.0).to(gl.float32)
        pairs = coming
        even, odd = unpacked(gl.reduce(gl.reduce(pairs, 2, larger), 0, larger))
        mine = gl.maximum(gl.maximum(even, odd), LEAST)
        base = gl.expand_dims(gl.expand_dims(mine * LOG2E, 0), 2)
        even, odd = unpacked(pairs)
        even = gl.exp2(even * LOG2E - base)
        odd = gl.exp2(odd * LOG2E - base)
        powers = packed(even, odd)
        mine_total = own_sum(even + odd)
        next_line = line + gl.cast(step, gl.int64) * quads * 4
        ahead = inside & (index + 1 < count)
        coming = gl.load(next_line + place, mask=ahead, other=NOTHING, eviction_policy="evict_last")
        most = gl.max(mine, 0)
        total = gl.sum(mine_total * gl.exp2((mine - most) * LOG2E), 0)
        gl.store(slots + row * PARTS + part, bits(most, total), mask=is_there)
        if index > 0:  # the gradient of the row before
            row = first + (index - 1) * step
            line = words + gl.cast(row, gl.int64) * quads * 4
            mosts, totals = all_told(behind, told)
            most = gl.max(mosts, 0)
            total = gl.sum(totals * gl.exp2((mosts - most) * LOG2E), 0)
            share = factor / total
            scale = share * gl.exp2((before_mine - most) * LOG2E)
            # bf16 is not enough for what a whole row is multiplied by; a second number has the rest.
            high = packed(scale, scale)
            rest, _ = unpacked(high)
            low = packed(scale - rest, scale - rest)
            low = gl.expand_dims(gl.expand_dims(low, 0), 2)
            high = gl.expand_dims(gl.expand_dims(high, 0), 2)
            before_powers = waiting.load(layout)
            gradient = times_plus(before_powers, high, times(before_powers, low))
            gl.store(line + place, gradient, mask=inside)
            if before == ignore_index:
                gl.store(line + place, gradient & 0, mask=inside)
            # The target's element once more, by the thread that has just stored it.
            counts = before != ignore_index
            column = before - part * width
            is_mine = counts & (column >= 0) & (column < width) & ((column >> 3) & (THREADS - 1) == thread)
            at_target = logits + (gl.cast(row, gl.int64) * quads * 8 + before) + thread * 0
            right = gl.exp2((before_own - most) * LOG2E) * share - factor
            gl.store(at_target, right.to(gl.bfloat16), mask=is_mine)
            loss = most + logarithm(total) - before_own
            is_told = is_mine | (~counts & (part == 0) & (thread == 0))
            gl.store(losses + row + thread * 0, gl.where(counts, loss, 0.0), mask=is_told)
        waiting.store(powers)
        before, before_own, before_mine = target, own, mine
        target = following
