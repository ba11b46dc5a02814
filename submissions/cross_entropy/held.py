"""cross_entropy on Hopper with one exponential a logit: a row's wait in registers until their sum is known.

A program has a part of a row. Parts of the next rows are copied ahead into a ring of SLOTS in shared memory, as in
ring.py. A part is read from there once: each thread finds its own largest logit, and replaces its logits by their
exponentials relative to that, rounded to bf16, which takes the registers that the logits had. So its place in the ring
is free, and is filled again, before anything is known of the row's other parts. Programs tell each other their largest
logit and their sum of exponentials (of float32). With these, a gradient is a product of its exponential and a number
that all of a thread's have in common: two instructions on pairs of bf16. LAG 1 puts that off by a row, so that what the
others found has come when it is needed.

Without a RING, parts come by loads to registers instead: those can ask the L2 cache to keep lines until the gradient
is written over them, which Triton 3.6 leaves out of copies to shared memory.

What a program tells is one word of 64 bits: its largest logit as bf16, its sum as float32, and in the 16 bits between
them a tag that is another in each call. So nobody has to clear these words between calls.

Legend: T threads, V vectors of 4 words.
"""

from common.bulk import copy_ahead
from ring import LOG2E, NOTHING, counted, larger, own_sum, packed, unpacked
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

LOWEST = gl.constexpr(-(2.0**99))  # a maximum is at least this (which bf16 has): differences of two are finite
TAGS = gl.constexpr(1 << 16)


@gluon.jit
def times(words, factors):
    """Products of bf16 numbers in 32-bit words of two each."""
    return gl.inline_asm_elementwise(
        "mul.rn.bf16x2 $0, $1, $2;", "=r,r,r", [words, factors], gl.int32, is_pure=True, pack=1
    )


@gluon.jit
def times_plus(words, factors, others):
    """The same, and a sum, rounded once."""
    return gl.inline_asm_elementwise(
        "fma.rn.bf16x2 $0, $1, $2, $3;", "=r,r,r,r", [words, factors, others], gl.int32, is_pure=True, pack=1
    )


@gluon.jit
def fetch(addresses, mask):
    """Lines of 128 bytes on their way to the L2 cache, to stay there longer than others."""
    gl.inline_asm_elementwise(
        "{ .reg .pred %p; setp.ne.s32 %p, $2, 0; @%p prefetch.global.L2::evict_last [$1]; mov.u32 $0, 0; }",
        "=r,l,r",
        [addresses.to(gl.int64, bitcast=True), mask.to(gl.int32)],
        gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def tagged(most, tag, total):
    """A word of 64 bits: a number that bf16 has, a tag, and a float32."""
    low = total.to(gl.int32, bitcast=True).to(gl.int64) & 0xFFFFFFFF
    return ((most.to(gl.int32, bitcast=True) | tag).to(gl.int64) << 32) | low


@gluon.jit
def read_tagged(words):
    """The same number, tag and float32."""
    high = (words >> 32).to(gl.int32)
    return (high & -65536).to(gl.float32, bitcast=True), high & 65535, words.to(gl.int32).to(gl.float32, bitcast=True)


@gluon.jit
def heard_in_call(words, heard, tag):
    """What all parts have told in this call at these addresses, as pairs of float32 [PARTS] each; `heard` is what was
    there before."""
    most, found, total = read_tagged(heard)
    while gl.max((found != tag).to(gl.int32), 0) != 0:
        most, found, total = read_tagged(gl.load(words, volatile=True))
    return most, total


@gluon.jit
def logarithm(number):
    """The natural one of a number of 1 or more, off by 2^-22."""
    return gl.inline_asm_elementwise(
        "lg2.approx.ftz.f32 $0, $1;", "=f,f", [number], gl.float32, is_pure=True, pack=1
    ) * (1 / LOG2E)


@gluon.jit(do_not_specialize=["ignore_index"])
def held_kernel(
    logits,  # bf16 [tokens, vocab], a row every 8 * quads
    targets,  # int64 [tokens]
    losses,  # float32 [tokens]
    told,  # int64 [1 or 2, tokens, PARTS]: a part's largest logit and its sum of exponentials relative to that; if
    # SMOOTH its sum of logits; and one more: how many programs have begun, in all calls
    tokens,
    vocab,
    width,  # logits of a part, a multiple of 8
    quads,  # of 4 words of two logits
    ignore_index,
    smoothing,
    loss_scale,
    PARTS: gl.constexpr,
    VECTORS: gl.constexpr,  # of a thread, a part
    FULL: gl.constexpr,  # so many of them, the first ones, are inside every part
    SLOTS: gl.constexpr,
    LAG: gl.constexpr,
    SMOOTH: gl.constexpr,
    RING: gl.constexpr,  # else parts come to registers, and SLOTS 2 is one on its way while a program works on another
    NEAR: gl.constexpr,  # programs that lie num_programs / NEAR apart are on one multiprocessor, and get parts of a row
    LOAD: gl.constexpr,  # the eviction policy of loads; of a ring, how lines are fetched ahead of its copies
    STORE: gl.constexpr,  # the cache modifier of the gradient's stores
    KEEP: gl.constexpr,  # their eviction policy
):
    THREADS: gl.constexpr = 32 * gl.num_warps()
    layout: gl.constexpr = gl.BlockedLayout([VECTORS, 1, 4], [1, 32, 1], [1, gl.num_warps(), 1], [2, 1, 0])
    of_threads: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, layout))
    linear: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [2, 1, 0])
    small: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    if RING:
        ring = gl.allocate_shared_memory(gl.int32, [SLOTS, VECTORS, THREADS, 4], linear)

    words = logits.to(gl.pointer_type(gl.int32), bitcast=True)
    number = gl.program_id(0)
    if NEAR > 1:
        units = gl.num_programs(0) // NEAR
        number = gl.where(units * NEAR == gl.num_programs(0), number % units * NEAR + number // units, number)
    part = number % PARTS
    first, groups = number // PARTS, gl.num_programs(0) // PARTS
    rounds = (tokens + groups - 1) // groups
    step = (tokens + rounds - 1) // rounds  # groups that are needed for so few rounds
    count = gl.where(first < step, (tokens - first + step - 1) // step, 0)  # rows of this program

    vector = gl.arange(0, VECTORS, layout=gl.SliceLayout(1, gl.SliceLayout(2, layout)))
    thread = gl.arange(0, THREADS, layout=of_threads)
    within = gl.arange(0, 4, layout=gl.SliceLayout(0, gl.SliceLayout(0, layout)))
    vector = gl.expand_dims(gl.expand_dims(vector, 1), 2)
    quad = vector * THREADS + gl.expand_dims(gl.expand_dims(thread, 0), 2)  # [V, T, 1]
    inside = (vector < FULL) | (quad * 8 < gl.minimum(width, vocab - part * width))
    # The words of a thread: where its first one is, and how far behind that the others are, which compilers know.
    words += part * (width // 8 * 4) + gl.expand_dims(gl.expand_dims(thread * 4, 0), 2)  # [1, T, 1]
    place = vector * (THREADS * 4) + gl.expand_dims(gl.expand_dims(within, 0), 0)  # [V, 1, 4]
    place_of_quad = vector * (THREADS * 4)
    begins = inside & ((gl.expand_dims(gl.expand_dims(thread, 0), 2) & 7) == 0)  # a line of 128 bytes
    parts = gl.arange(0, PARTS, layout=small)

    if RING:
        for ahead_by in gl.static_range(SLOTS):
            line = words + gl.cast(first + ahead_by * step, gl.int64) * quads * 4
            copy_ahead(ring.index(ahead_by), line + place, mask=inside & (ahead_by < count))
            async_copy.commit_group()
    elif SLOTS > 1:
        line = words + gl.cast(first, gl.int64) * quads * 4
        coming = gl.load(line + place, mask=inside & (count > 0), other=NOTHING, eviction_policy=LOAD)
    if PARTS > 1:
        begun = gl.atomic_add(told + (2 if SMOOTH else 1) * tokens * PARTS, 1, sem="relaxed")
        tag = ((begun // gl.num_programs(0) + 1) % TAGS).to(gl.int32)
    factor = loss_scale / counted(targets, tokens, ignore_index, 16 * THREADS, small).to(gl.float32)

    target = gl.load(targets + first, mask=count > 0, other=0).to(gl.int32)
    # Each a value of its own: names of one value ahead of a loop stay one in it (Triton 3.6).
    before, following = target * 0, target * 0
    most, total, plain = loss_scale * 0.0, loss_scale * 0.0, loss_scale * 0.0
    own, before_own = thread * 0.0, thread * 0.0
    mine, before_mine = thread * 0.0, thread * 0.0
    powers, before_powers = quad * 4 + place * 0, quad * 4 - place
    for index in range(count + LAG):
        row = first + index * step
        if PARTS > 1 and LAG:
            behind = told + gl.maximum(row - step, first) * PARTS + parts
            heard = gl.load(behind, volatile=True)
        if index < count:
            line = words + gl.cast(row, gl.int64) * quads * 4
            following = gl.load(targets + row + step, mask=index + 1 < count, other=0).to(gl.int32)
            # The target's logit, for the thread that is going to write over it.
            column = target - part * width
            is_mine = (
                (target != ignore_index) & (column >= 0) & (column < width) & ((column >> 3) & (THREADS - 1) == thread)
            )
            own = gl.load(logits + (gl.cast(row, gl.int64) * quads * 8 + target) + thread * 0, mask=is_mine, other=0.0)
            own = own.to(gl.float32)
            if RING:
                async_copy.wait_group(SLOTS - 1)
                slot = ring.index(index % SLOTS)
                pairs = gl.where(inside, slot.load(layout), NOTHING)
            elif SLOTS > 1:
                pairs = coming
            else:
                pairs = gl.load(line + place, mask=inside, other=NOTHING, eviction_policy=LOAD)
            even, odd = unpacked(gl.reduce(gl.reduce(pairs, 2, larger), 0, larger))
            mine = gl.maximum(gl.maximum(even, odd), LOWEST)
            base = gl.expand_dims(gl.expand_dims(mine * LOG2E, 0), 2)
            if SMOOTH:
                even, odd = unpacked(pairs)
                plains = own_sum(gl.where(inside, even + odd, 0.0))
                # Adds 0, which the compiler cannot know: else it would keep logits as float32, in twice the registers.
                pairs += gl.expand_dims(gl.expand_dims((plains > 3e38).to(gl.int32), 0), 2)
                plain = gl.sum(plains, 0)
            even, odd = unpacked(pairs)
            even = gl.exp2(even * LOG2E - base)
            odd = gl.exp2(odd * LOG2E - base)
            powers = packed(even, odd)
            mine_total = own_sum(even + odd)
            ahead = inside & (index + SLOTS < count)
            following_line = line + gl.cast(SLOTS * step, gl.int64) * quads * 4
            if RING:
                if LOAD != "":
                    further = following_line + gl.cast(step, gl.int64) * quads * 4
                    fetch(further + place_of_quad, begins & (index + SLOTS + 1 < count))
                copy_ahead(slot, following_line + place, mask=ahead)
                async_copy.commit_group()
            elif SLOTS > 1:
                following_line = line + gl.cast(step, gl.int64) * quads * 4
                ahead = inside & (index + 1 < count)
                coming = gl.load(following_line + place, mask=ahead, other=NOTHING, eviction_policy=LOAD)
            most = gl.max(mine, 0)
            total = gl.sum(mine_total * gl.exp2((mine - most) * LOG2E), 0)
            if PARTS > 1:
                gl.store(told + row * PARTS + part, tagged(most, tag, total))
                if SMOOTH:
                    gl.store(told + (tokens + row) * PARTS + part, tagged(most, tag, plain))
        if index >= LAG:
            row = first + (index - LAG) * step
            at = before if LAG else target
            own_logit = before_own if LAG else own
            own_most = before_mine if LAG else mine
            waiting = before_powers if LAG else powers
            if PARTS > 1:
                if LAG == 0:
                    behind = told + row * PARTS + parts
                    heard = gl.load(behind, volatile=True)
                mosts, totals = heard_in_call(behind, heard, tag)
                most = gl.max(mosts, 0)
                total = gl.sum(totals * gl.exp2((mosts - most) * LOG2E), 0)
                if SMOOTH:
                    behind += tokens * PARTS
                    _, plains = heard_in_call(behind, gl.load(behind, volatile=True), tag)
                    plain = gl.sum(plains, 0)
            share = factor / total
            scale = share * gl.exp2((own_most - most) * LOG2E)
            line = words + gl.cast(row, gl.int64) * quads * 4
            if SMOOTH:
                even, odd = unpacked(waiting)
                scale = gl.expand_dims(gl.expand_dims(scale, 0), 2)
                less = factor * smoothing / vocab
                gradient = packed(even * scale - less, odd * scale - less)
            else:
                # bf16 is not enough for what a whole row is multiplied by; a second number has the rest.
                high = packed(scale, scale)
                rest, _ = unpacked(high)
                low = packed(scale - rest, scale - rest)
                low = gl.expand_dims(gl.expand_dims(low, 0), 2)
                high = gl.expand_dims(gl.expand_dims(high, 0), 2)
                gradient = times_plus(waiting, high, times(waiting, low))
            gl.store(line + place, gradient, mask=inside, cache_modifier=STORE, eviction_policy=KEEP)
            counts = at != ignore_index
            if at == ignore_index:
                gl.store(line + place, gradient & 0, mask=inside)
            # The target's element once more, by the thread that has just stored it.
            column = at - part * width
            is_mine = counts & (column >= 0) & (column < width) & ((column >> 3) & (THREADS - 1) == thread)
            right = gl.exp2((own_logit - most) * LOG2E) * share - factor * (1 - smoothing + smoothing / vocab)
            address = logits + (gl.cast(row, gl.int64) * quads * 8 + at) + thread * 0
            gl.store(address, right.to(gl.bfloat16), mask=is_mine)
            loss = most + logarithm(total) - (1 - smoothing) * own_logit - smoothing / vocab * plain
            is_told = is_mine | ((at == ignore_index) & (part == 0) & (thread == 0))
            gl.store(losses + row + thread * 0, gl.where(counts, loss, 0.0), mask=is_told)
        before, before_own, before_mine, before_powers = target, own, mine, powers
        target = following
