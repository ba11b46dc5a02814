"""cross_entropy on Hopper: rows are copied ahead into shared memory, are read there twice, and never wait for memory.

A program has a part of a row, and in shared memory a ring of SLOTS parts of consecutive rows. Every thread copies, and
later reads, the same 16 bytes of each vector, so a part needs no barrier to be complete. It goes through registers as
32-bit words of two bf16 each: once for its largest logit and its sum of exponentials, once for the gradient, and in
between its place in the ring is filled again. With two or more PARTS, programs tell each other what they found, and
LAG 1 puts the gradient off by a row, so that what the others found has come when it is needed.

Legend: T threads, V vectors of 4 words.
"""

from common.bulk import copy_ahead
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

LOG2E = gl.constexpr(1.4426950408889634)
NOTHING = gl.constexpr(-8323200)  # two bf16 of minus infinity
LEAST = gl.constexpr(-1e30)  # a maximum is at least this, so that no difference of two is infinity less infinity


@gluon.jit
def unpacked(words):
    """The bf16 numbers in 32-bit words as float32: those at even columns, those at odd ones."""
    return (words << 16).to(gl.float32, bitcast=True), (words & -65536).to(gl.float32, bitcast=True)


@gluon.jit
def packed(even, odd):
    """32-bit words of two bf16 numbers each."""
    return gl.inline_asm_elementwise(
        "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f", [even, odd], gl.int32, is_pure=True, pack=1
    )


@gluon.jit
def larger(one, other):
    """Of words of two bf16 numbers each: the larger even one and the larger odd one."""
    return gl.inline_asm_elementwise("max.bf16x2 $0, $1, $2;", "=r,r,r", [one, other], gl.int32, is_pure=True, pack=1)


@gluon.jit
def added(one, other):
    return one + other


@gluon.jit
def own_sum(values):
    """[V, T, 4] -> [T]: what a thread holds."""
    return gl.reduce(gl.reduce(values, 2, added), 0, added)


@gluon.jit
def bits(high, low):
    """A word of 64 bits of two float32 numbers."""
    low_bits = low.to(gl.int32, bitcast=True).to(gl.int64) & 0xFFFFFFFF
    return (high.to(gl.int32, bitcast=True).to(gl.int64) << 32) | low_bits


@gluon.jit
def heard_of(slots, PARTS: gl.constexpr, layout: gl.constexpr):
    """What all parts have told, as pairs of float32 [PARTS] each. A word that was written is not 0."""
    parts = gl.arange(0, PARTS, layout=layout)
    heard = gl.load(slots + parts, volatile=True)
    while gl.min((heard != 0).to(gl.int32), 0) == 0:
        heard = gl.load(slots + parts, volatile=True)
    return (heard >> 32).to(gl.int32).to(gl.float32, bitcast=True), heard.to(gl.int32).to(gl.float32, bitcast=True)


@gluon.jit
def counted(targets, tokens, ignore_index, BLOCK: gl.constexpr, layout: gl.constexpr):
    """How many tokens count."""
    count = gl.zeros((BLOCK,), gl.int32, layout)
    for start in range(0, tokens, BLOCK):
        at = start + gl.arange(0, BLOCK, layout=layout)
        count += (gl.load(targets + at, mask=at < tokens, other=ignore_index) != ignore_index).to(gl.int32)
    return gl.sum(count, 0)


@gluon.jit(do_not_specialize=["ignore_index"])
def ring_kernel(
    logits,  # bf16 [tokens, vocab], a row every 8 * quads
    targets,  # int64 [tokens]
    losses,  # float32 [tokens]
    slots,  # int64 [tokens, PARTS], 0: a part's largest logit and its sum of exponentials relative to that
    sums,  # int64 [tokens, PARTS], 0: its sum of logits, and 1
    tokens,
    vocab,
    width,  # logits of a part, a multiple of 8
    quads,  # of 4 words of two logits
    ignore_index,
    smoothing,
    loss_scale,
    PARTS: gl.constexpr,
    VECTORS: gl.constexpr,  # of a thread, a part
    SLOTS: gl.constexpr,
    LAG: gl.constexpr,
    SMOOTH: gl.constexpr,
):
    THREADS: gl.constexpr = 32 * gl.num_warps()
    layout: gl.constexpr = gl.BlockedLayout([VECTORS, 1, 4], [1, 32, 1], [1, gl.num_warps(), 1], [2, 1, 0])
    of_threads: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, layout))
    linear: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [2, 1, 0])
    small: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    ring = gl.allocate_shared_memory(gl.int32, [SLOTS, VECTORS, THREADS, 4], linear)

    words = logits.to(gl.pointer_type(gl.int32), bitcast=True)
    part = gl.program_id(0) % PARTS
    first, step = gl.program_id(0) // PARTS, gl.num_programs(0) // PARTS
    count = gl.where(first < step, (tokens - first + step - 1) // step, 0)  # rows of this program

    vector = gl.arange(0, VECTORS, layout=gl.SliceLayout(1, gl.SliceLayout(2, layout)))
    thread = gl.arange(0, THREADS, layout=of_threads)
    within = gl.arange(0, 4, layout=gl.SliceLayout(0, gl.SliceLayout(0, layout)))
    quad = gl.expand_dims(gl.expand_dims(vector * THREADS, 1) + gl.expand_dims(thread, 0), 2)  # [V, T, 1]
    inside = quad * 8 < gl.minimum(width, vocab - part * width)
    place = part * (width // 8 * 4) + quad * 4 + gl.expand_dims(gl.expand_dims(within, 0), 0)  # [V, T, 4], words

    for ahead_by in gl.static_range(SLOTS):
        row = first + ahead_by * step
        line = words + gl.cast(row, gl.int64) * quads * 4
        copy_ahead(ring.index(ahead_by), line + place, mask=inside & (ahead_by < count))
        async_copy.commit_group()
    factor = loss_scale / counted(targets, tokens, ignore_index, 16 * THREADS, small).to(gl.float32)

    target = gl.load(targets + first, mask=count > 0, other=0).to(gl.int32)
    # Each a value of its own: names of one value ahead of a loop stay one in it (Triton 3.6).
    before, following = target * 0, target * 0
    own, before_own = loss_scale * 0.0, loss_scale * 0.0
    most, total, plain = loss_scale * 0.0, loss_scale * 0.0, loss_scale * 0.0
    for index in range(count + LAG):
        row = first + index * step
        if index < count:
            line = words + gl.cast(row, gl.int64) * quads * 4
            following = gl.load(targets + row + step, mask=index + 1 < count, other=0).to(gl.int32)
            chosen = gl.where(target == ignore_index, 0, target)
            word = gl.load(line + chosen // 2)
            async_copy.wait_group(SLOTS - 1 - LAG)
            pairs = gl.where(inside, ring.index(index % SLOTS).load(layout), NOTHING)
            even, odd = unpacked(gl.reduce(gl.reduce(pairs, 2, larger), 0, larger))
            mine = gl.maximum(gl.maximum(even, odd), LEAST)
            base = gl.expand_dims(gl.expand_dims(mine * LOG2E, 0), 2)
            even, odd = unpacked(pairs)
            mine_total = own_sum(gl.exp2(even * LOG2E - base) + gl.exp2(odd * LOG2E - base))
            if SMOOTH:
                plain = gl.sum(own_sum(gl.where(inside, even + odd, 0.0)), 0)
            most = gl.max(mine, 0)
            total = gl.sum(mine_total * gl.exp2((mine - most) * LOG2E), 0)
            even_own, odd_own = unpacked(word)
            own = gl.where(chosen % 2 == 0, even_own, odd_own)
            if PARTS > 1:
                if SMOOTH:
                    gl.store(sums + row * PARTS + part, bits(plain, own * 0.0 + 1.0))
                gl.store(slots + row * PARTS + part, bits(most, total))
        if index >= LAG:
            row = first + (index - LAG) * step
            at = before if LAG else target
            own_logit = before_own if LAG else own
            if PARTS > 1:
                mosts, totals = heard_of(slots + row * PARTS, PARTS, small)
                most = gl.max(mosts, 0)
                total = gl.sum(totals * gl.exp2((mosts - most) * LOG2E), 0)
                if SMOOTH:
                    plains, _ = heard_of(sums + row * PARTS, PARTS, small)
                    plain = gl.sum(plains, 0)
            counts = at != ignore_index
            line = words + gl.cast(row, gl.int64) * quads * 4
            slot = ring.index((index - LAG) % SLOTS)
            pairs = slot.load(layout)
            ahead = inside & (index - LAG + SLOTS < count)
            copy_ahead(slot, line + gl.cast(SLOTS * step, gl.int64) * quads * 4 + place, mask=ahead)
            async_copy.commit_group()
            share = factor / total
            base = most * LOG2E
            even, odd = unpacked(pairs)
            even = gl.exp2(even * LOG2E - base) * share
            odd = gl.exp2(odd * LOG2E - base) * share
            if SMOOTH:
                even -= factor * smoothing / vocab
                odd -= factor * smoothing / vocab
            gl.store(line + place, packed(even, odd) & gl.where(counts, -1, 0), mask=inside)
            # The target's element once more, by the thread that has just stored it.
            column = at - part * width
            is_mine = counts & (column >= 0) & (column < width)
            right = gl.exp2((own_logit - most) * LOG2E) / total - (1 - smoothing) - smoothing / vocab
            address = logits + (gl.cast(row, gl.int64) * quads * 8 + at) + thread * 0
            gl.store(address, (factor * right).to(gl.bfloat16), mask=is_mine & (column // 8 % THREADS == thread))
            loss = most + gl.log(total) - (1 - smoothing) * own_logit - smoothing / vocab * plain
            gl.store(losses + row, gl.where(counts, loss, 0.0), mask=gl.where(counts, is_mine, part == 0))
        if index < count:
            before, before_own = target, own
            target = following
