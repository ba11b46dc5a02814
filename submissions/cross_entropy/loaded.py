"""cross_entropy on Hopper where a row fits into a program's registers: one exponential a logit, and no shared memory.

Each thread finds its own largest logit, and replaces its logits by their exponentials relative to that, rounded to
bf16, which takes the registers that the logits had. When the row's sum is known, a gradient is a product of its
exponential and a number that all of a thread's have in common: two instructions on pairs of bf16. The next row is on
its way to registers meanwhile. Smoothed labels are not for this kernel: where what is subtracted is nearly as large as
the exponential, bf16 is not enough for it.

Loads ask the L2 cache to keep lines until the gradient is written over them. Triton 3.6 cannot ask for that in copies
to shared memory, as ring.py has.

Legend: T threads, V vectors of 4 words.
"""

from ring import LEAST, LOG2E, NOTHING, counted, larger, own_sum, packed, unpacked
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


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
def logarithm(number):
    """The natural one of a number of 1 or more, off by 2^-22."""
    return gl.inline_asm_elementwise(
        "lg2.approx.ftz.f32 $0, $1;", "=f,f", [number], gl.float32, is_pure=True, pack=1
    ) * (1 / LOG2E)


@gluon.jit(do_not_specialize=["ignore_index"])
def loaded_kernel(
    logits,  # bf16 [tokens, vocab], a row every 8 * quads
    targets,  # int64 [tokens]
    losses,  # float32 [tokens]
    tokens,
    vocab,  # a multiple of 8
    quads,  # of 4 words of two logits
    ignore_index,
    smoothing,  # 0
    loss_scale,
    VECTORS: gl.constexpr,  # of a thread
    FULL: gl.constexpr,  # so many of them, the first ones, are inside the row in all threads
):
    THREADS: gl.constexpr = 32 * gl.num_warps()
    layout: gl.constexpr = gl.BlockedLayout([VECTORS, 1, 4], [1, 32, 1], [1, gl.num_warps(), 1], [2, 1, 0])
    of_threads: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, layout))
    small: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    first, step = gl.program_id(0), gl.num_programs(0)

    vector = gl.arange(0, VECTORS, layout=gl.SliceLayout(1, gl.SliceLayout(2, layout)))
    thread = gl.arange(0, THREADS, layout=of_threads)
    within = gl.arange(0, 4, layout=gl.SliceLayout(0, gl.SliceLayout(0, layout)))
    vector = gl.expand_dims(gl.expand_dims(vector, 1), 2)
    quad = vector * THREADS + gl.expand_dims(gl.expand_dims(thread, 0), 2)  # [V, T, 1]
    inside = (vector < FULL) | (quad * 8 < vocab)
    # The words of a thread: where its first one is, and how far behind that the others are, which compilers know.
    words = logits.to(gl.pointer_type(gl.int32), bitcast=True)
    words += gl.expand_dims(gl.expand_dims(thread * 4, 0), 2)  # [1, T, 1]
    place = vector * (THREADS * 4) + gl.expand_dims(gl.expand_dims(within, 0), 0)  # [V, 1, 4]

    line = words + gl.cast(first, gl.int64) * quads * 4
    pairs = gl.load(line + place, mask=inside & (first < tokens), other=NOTHING, eviction_policy="evict_last")
    factor = loss_scale / counted(targets, tokens, ignore_index, 16 * THREADS, small).to(gl.float32)

    target = gl.load(targets + first, mask=first < tokens, other=0).to(gl.int32)
    for row in range(first, tokens, step):
        line = words + gl.cast(row, gl.int64) * quads * 4
        following = gl.load(targets + row + step, mask=row + step < tokens, other=0).to(gl.int32)
        # The target's logit, for the thread that is going to write over it.
        counts = target != ignore_index
        is_mine = counts & ((target >> 3) & (THREADS - 1) == thread)
        at_target = logits + (gl.cast(row, gl.int64) * quads * 8 + target) + thread * 0
        own = gl.load(at_target, mask=is_mine, other=0.0).to(gl.float32)
        even, odd = unpacked(gl.reduce(gl.reduce(pairs, 2, larger), 0, larger))
        mine = gl.maximum(gl.maximum(even, odd), LEAST)
        base = gl.expand_dims(gl.expand_dims(mine * LOG2E, 0), 2)
        even, odd = unpacked(pairs)
        even = gl.exp2(even * LOG2E - base)
        odd = gl.exp2(odd * LOG2E - base)
        powers = packed(even, odd)
        mine_total = own_sum(even + odd)
        next_line = line + gl.cast(step, gl.int64) * quads * 4
        ahead = inside & (row + step < tokens)
        pairs = gl.load(next_line + place, mask=ahead, other=NOTHING, eviction_policy="evict_last")
        most = gl.max(mine, 0)
        total = gl.sum(mine_total * gl.exp2((mine - most) * LOG2E), 0)

        share = factor / total
        scale = share * gl.exp2((mine - most) * LOG2E)
        # bf16 is not enough for what a whole row is multiplied by; a second number has the rest.
        high = packed(scale, scale)
        rest, _ = unpacked(high)
        low = packed(scale - rest, scale - rest)
        low = gl.expand_dims(gl.expand_dims(low, 0), 2)
        high = gl.expand_dims(gl.expand_dims(high, 0), 2)
        gradient = times_plus(powers, high, times(powers, low))
        gl.store(line + place, gradient, mask=inside)
        if target == ignore_index:
            gl.store(line + place, gradient & 0, mask=inside)
        # The target's element once more, by the thread that has just stored it.
        right = gl.exp2((own - most) * LOG2E) * share - factor
        gl.store(at_target, right.to(gl.bfloat16), mask=is_mine)
        loss = most + logarithm(total) - own
        is_told = is_mine | ((target == ignore_index) & (thread == 0))
        gl.store(losses + row + thread * 0, gl.where(counts, loss, 0.0), mask=is_told)
        target = following
