"""A decode step of one sequence on Hopper in one kernel, behind the token's embedding.

One program runs on each multiprocessor until the step is over. The model's matrices lie behind each other in one buffer
(packed.py) and are cut into tiles of LINES lines of 64 numbers. Program p takes the tiles p, p + P, p + 2 P, ... of all
layers and of the last matrix, so all programs stream the same bytes, to a tile. Bulk copies bring tiles into a ring in
shared memory, and a place of the ring is filled again as soon as its tile is in registers. Copies therefore run ahead
of activations, across layers, and memory stays busy while programs wait for each other.

A layer has five phases: (1) norm, queries, keys and values; (2) attention; (3) output projection; (4) norm, gate and
up; (5) down. Each begins when all programs have finished the one before. Programs count themselves in a word of global
memory, which is never reset: `base` is the count where the step begins. A program that waits for seconds traps, so that
the launch fails instead of never ending.

Queries and keys are turned where they are used, in attention. A program of that phase has a part of a key head's cache,
whose earlier tokens it loads before it waits; the last one of a head to arrive puts the parts together.

Legend: P programs, K hidden, F ffn, H heads, G key heads, D head_dim, R heads of a key head; S parts of a head's cache,
N keys of a part; a row of a matrix is L lines of E = 64 numbers.
"""

from common.bulk import bulk_load, bulk_view, partition_barrier
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

LINE = gl.constexpr(64)  # bf16 numbers, 128 bytes
TIMES = gl.constexpr(16)  # that a program may note
LEAST = gl.constexpr(-1e30)  # a logit that is left out; -inf less -inf is no number


@gluon.jit
def wait_for_kernel_before():
    gl.inline_asm_elementwise(
        "griddepcontrol.wait; mov.b32 $0, 0;", "=r,~{memory}", [], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def arrive(count_ptr):
    """Counts this program, behind all that its threads have stored."""
    partition_barrier()
    gl.inline_asm_elementwise(
        "{ .reg .pred first; .reg .b32 thread; mov.u32 thread, %tid.x; setp.eq.u32 first, thread, 0;"
        " @first red.release.gpu.global.add.u32 [$1], 1; mov.b32 $0, 0; }",
        "=r,l,~{memory}",
        [count_ptr],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def wait_for(count_ptr, target):
    """Returns once the count, modulo 2**32, has come to `target`; traps after 2**32 clocks."""
    gl.inline_asm_elementwise(
        "{ .reg .pred over; .reg .b32 thread, found; .reg .b64 begun, now;"
        " mov.u32 thread, %tid.x; setp.ne.u32 over, thread, 0; @over bra DONE; mov.u64 begun, %clock64;"
        " AGAIN: ld.acquire.gpu.global.u32 found, [$1]; sub.u32 found, found, $2; setp.ge.s32 over, found, 0;"
        " @over bra DONE; mov.u64 now, %clock64; sub.u64 now, now, begun; setp.gt.u64 over, now, 4294967296;"
        " @over trap; bra AGAIN; DONE: mov.b32 $0, 0; }",
        "=r,l,r,~{memory}",
        [count_ptr, target],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )
    partition_barrier()


@gluon.jit
def note(times_ptr, number, TIMED: gl.constexpr):
    """Stores the multiprocessor's clock as the program's time of that number, if TIMED."""
    if TIMED:
        clock = gl.inline_asm_elementwise(
            "mov.u64 $0, %clock64;", "=l,~{memory}", [], dtype=gl.int64, is_pure=False, pack=1
        )
        gl.store(times_ptr + gl.program_id(0) * TIMES + number, clock)


@gluon.jit
def lines_of(tile, LINES: gl.constexpr, PLAN: gl.constexpr):
    """Where both halves of a tile begin. Half of a tile of gates and ups is gates."""
    HALF: gl.constexpr = LINES // 2
    GATES: gl.constexpr = (PLAN.down - PLAN.gate_up) * HALF  # lines
    behind = tile % PLAN.end
    in_gates = (behind >= PLAN.gate_up) & (behind < PLAN.down) & (tile < PLAN.layers * PLAN.end)
    line = tile * LINES - gl.where(in_gates, (behind - PLAN.gate_up) * HALF, 0)
    return line, line + gl.where(in_gates, GATES, HALF)


@gluon.jit
def prefetch(address, count):
    """Asks for so many bytes, a multiple of 16, to be in the L2."""
    gl.inline_asm_elementwise(
        "{ .reg .pred first; .reg .b32 thread; mov.u32 thread, %tid.x; setp.eq.u32 first, thread, 0;"
        " @first cp.async.bulk.prefetch.L2.global [$1], $2; mov.b32 $0, 0; }",
        "=r,l,r,~{memory}",
        [address, count],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def prefetch_part(
    k_ptr, v_ptr, position, G: gl.constexpr, D: gl.constexpr, LENGTH: gl.constexpr, S: gl.constexpr
):  # fmt: skip
    """Asks for the keys and values that the program attends to. Otherwise attention would wait for them behind all the
    weights that are on their way."""
    number = gl.minimum(gl.program_id(0), G * S - 1)
    keys_of_part = (position + S) // S
    at = number // S * LENGTH * D + number % S * keys_of_part * D
    prefetch(k_ptr + at, keys_of_part * (D * 2))
    prefetch(v_ptr + at, keys_of_part * (D * 2))


@gluon.jit
def fill(weights, index, LINES: gl.constexpr, SLOTS: gl.constexpr, PLAN: gl.constexpr, AHEAD: gl.constexpr):
    """Asks for the program's tile of that number, into its place of the ring; and for the one AHEAD behind it, into
    the L2, if not 0."""
    desc, ring, filled, w_ptr = weights
    halves = bulk_view(ring, gl.bfloat16, [2 * SLOTS, LINES // 2, LINE], desc.layout)
    tile, slot = gl.program_id(0) + index * gl.num_programs(0), index % SLOTS
    line, other = lines_of(tile, LINES, PLAN)
    is_there = tile < PLAN.tiles
    mbarrier.expect(filled.index(slot), LINES * LINE * 2, pred=is_there)
    bulk_load(desc, [line, 0], filled.index(slot), halves.index(2 * slot), pred=is_there)
    bulk_load(desc, [other, 0], filled.index(slot), halves.index(2 * slot + 1), pred=is_there)
    if AHEAD > 0:
        later = gl.minimum(tile + AHEAD * gl.num_programs(0), PLAN.tiles - 1)
        line, other = lines_of(later, LINES, PLAN)
        prefetch(w_ptr + gl.cast(line, gl.int64) * LINE, LINES * LINE)
        prefetch(w_ptr + gl.cast(other, gl.int64) * LINE, LINES * LINE)


@gluon.jit
def take(weights, index, LINES: gl.constexpr, SLOTS: gl.constexpr, PLAN: gl.constexpr, AHEAD: gl.constexpr):
    """The program's tile of that number, bf16 [LINES, E], whose place of the ring is filled again."""
    layout: gl.constexpr = gl.BlockedLayout([8, 8], [4, 8], [gl.num_warps(), 1], [1, 0])
    _, ring, filled, _ = weights
    slot = index % SLOTS
    mbarrier.wait(filled.index(slot), index // SLOTS & 1)
    tile = ring.index(slot).load(layout)
    # What was read may be overwritten by bulk copies behind the fence, once all threads have come to the barrier.
    fence_async_shared()
    partition_barrier()
    fill(weights, index + SLOTS, LINES, SLOTS, PLAN, AHEAD)
    return tile


@gluon.jit
def product(tile, a_LE, ROWS: gl.constexpr, wide: gl.constexpr):
    """[ROWS] float32: the tile's rows times the vector. A thread has 8 x 8 numbers of one row."""
    LINES_OF_ROW: gl.constexpr = a_LE.shape[0]
    tile_RLE = gl.convert_layout(gl.reshape(tile, [ROWS, LINES_OF_ROW, LINE]), wide, assert_trivial=True)
    parts_RLE = tile_RLE.to(gl.float32) * gl.expand_dims(a_LE, 0)
    sums_R = gl.sum(gl.reshape(parts_RLE, [ROWS, LINES_OF_ROW * LINE]), 1)
    return gl.convert_layout(sums_R, gl.SliceLayout(1, gl.SliceLayout(2, wide)))


@gluon.jit
def tiles_of(begin, end):
    """The program's numbers of the tiles from `begin` to `end`: the first, and the one behind the last."""
    programs = gl.num_programs(0)
    before = programs - 1 - gl.program_id(0)
    return (begin + before) // programs, (end + before) // programs


@gluon.jit
def normed(x_ptr, norm_LE, at_LE, eps, K: gl.constexpr):
    """The residual stream, normalised, float32 [L, E]."""
    x_LE = gl.load(x_ptr + at_LE)
    return x_LE * gl.rsqrt(gl.sum(gl.reshape(x_LE * x_LE, [K]), 0) / K + eps) * norm_LE.to(gl.float32)


@gluon.jit
def turned(rows_ptr, head, d, cos, sin, D: gl.constexpr):
    """Heads of queries or keys, turned by a position, rounded to bf16 in float32."""
    one, other = gl.load(rows_ptr + head * D + d), gl.load(rows_ptr + head * D + (d + D // 2) % D)
    made = one * cos + gl.where(d < D // 2, -other, other) * sin
    return made.to(gl.bfloat16).to(gl.float32)


@gluon.jit
def attend(
    made_ptr,  # float32 [H + 2 G, D]: queries, keys, values, not turned
    turn_ptr,  # of the token's position
    position,
    k_ptr,  # bf16 [G, LENGTH, D], the layer's, as v
    v_ptr,
    sums,  # where persistent_step sums up
    count_ptr,
    target,
    scale,
    H: gl.constexpr,
    G: gl.constexpr,
    D: gl.constexpr,
    LENGTH: gl.constexpr,
    S: gl.constexpr,
):
    """One token attends to all up to itself; its key and value go into the cache."""
    R: gl.constexpr = H // G
    N: gl.constexpr = LENGTH // S
    WARPS: gl.constexpr = gl.num_warps()
    # [R, N, D]: for scores a warp has a few keys; for sums it has a head and all keys, and needs no other warp's.
    wide: gl.constexpr = gl.BlockedLayout([R, 1, 8], [1, 4, 8], [1, WARPS, 1], [2, 1, 0])
    tall: gl.constexpr = gl.BlockedLayout([1, 1, 4], [1, 4, 8], [R, 1, WARPS // R], [2, 1, 0])
    keys: gl.constexpr = gl.SliceLayout(0, wide)
    values: gl.constexpr = gl.SliceLayout(0, tall)
    rows: gl.constexpr = gl.SliceLayout(1, wide)
    parts_ptr, scales_ptr, arrived_ptr, mixed_ptr = sums
    keys_of_part = (position + S) // S  # of position + 1 tokens, rounded up
    for number in range(gl.program_id(0), G * S, gl.num_programs(0)):
        pair, part = number // S, number % S
        first, kept = part * keys_of_part, pair * LENGTH * D
        end = gl.minimum(first + keys_of_part, position)  # of earlier tokens
        key_N, d_D = first + gl.arange(0, N, gl.SliceLayout(1, keys)), gl.arange(0, D, gl.SliceLayout(0, keys))
        is_old_ND = gl.expand_dims(key_N < end, 1)
        place_ND = kept + gl.expand_dims(key_N * D, 1) + gl.expand_dims(d_D, 0)
        k_ND = gl.load(k_ptr + place_ND, mask=is_old_ND, other=0.0)
        key_N, d_D = first + gl.arange(0, N, gl.SliceLayout(1, values)), gl.arange(0, D, gl.SliceLayout(0, values))
        is_old_ND = gl.expand_dims(key_N < end, 1)
        place_ND = kept + gl.expand_dims(key_N * D, 1) + gl.expand_dims(d_D, 0)
        v_ND = gl.load(v_ptr + place_ND, mask=is_old_ND, other=0.0)
        wait_for(count_ptr, target)
        r_R, d_D = gl.arange(0, R, gl.SliceLayout(1, rows)), gl.arange(0, D, gl.SliceLayout(0, rows))
        cos_D, sin_D = gl.load(turn_ptr + d_D % (D // 2)), gl.load(turn_ptr + D // 2 + d_D % (D // 2))
        new_k_D = turned(made_ptr, H + pair, d_D, cos_D, sin_D, D)
        head_R, d_RD = gl.expand_dims(pair * R + r_R, 1), gl.expand_dims(d_D, 0)
        q_RD = turned(made_ptr, head_R, d_RD, gl.expand_dims(cos_D, 0), gl.expand_dims(sin_D, 0), D)
        logit_RN = gl.sum(gl.expand_dims(q_RD, 1) * gl.expand_dims(k_ND.to(gl.float32), 0), 2) * scale
        key_N = first + gl.arange(0, N, gl.SliceLayout(0, gl.SliceLayout(2, wide)))
        is_key_N = key_N < gl.minimum(first + keys_of_part, position + 1)
        logit_RN = gl.where(gl.expand_dims(is_key_N, 0), logit_RN, LEAST)
        if part == position // keys_of_part:
            gl.store(k_ptr + kept + position * D + d_D, new_k_D.to(gl.bfloat16))
            new_R = gl.sum(q_RD * gl.expand_dims(new_k_D, 0), 1) * scale
            new_R = gl.convert_layout(new_R, gl.SliceLayout(1, gl.SliceLayout(2, wide)))
            logit_RN = gl.where(gl.expand_dims(key_N == position, 0), gl.expand_dims(new_R, 1), logit_RN)
        most_R = gl.max(logit_RN, 1)
        weight_RN = gl.exp(logit_RN - gl.expand_dims(most_R, 1))
        weight_RN = gl.where(gl.expand_dims(is_key_N, 0), weight_RN, 0.0)  # of a part without keys too
        r_R = gl.arange(0, R, gl.SliceLayout(1, gl.SliceLayout(2, wide)))
        gl.store(scales_ptr + (pair * R + r_R) * 2 * S + part, most_R)
        gl.store(scales_ptr + (pair * R + r_R) * 2 * S + S + part, gl.sum(weight_RN, 1))
        weight_RN = gl.convert_layout(weight_RN, gl.SliceLayout(2, tall))
        total_RD = gl.sum(gl.expand_dims(weight_RN, 2) * gl.expand_dims(v_ND.to(gl.float32), 0), 1)
        r_R = pair * R + gl.arange(0, R, gl.SliceLayout(1, gl.SliceLayout(1, tall)))
        d_D = gl.arange(0, D, gl.SliceLayout(0, gl.SliceLayout(1, tall)))
        if part == position // keys_of_part:
            new_v_D = gl.load(made_ptr + (H + G + pair) * D + d_D).to(gl.bfloat16)
            gl.store(v_ptr + kept + position * D + d_D, new_v_D)
            is_new_N = first + gl.arange(0, N, gl.SliceLayout(0, gl.SliceLayout(2, tall))) == position
            new_R = gl.sum(gl.where(gl.expand_dims(is_new_N, 0), weight_RN, 0.0), 1)
            new_R = gl.convert_layout(new_R, gl.SliceLayout(1, gl.SliceLayout(1, tall)))
            total_RD += gl.expand_dims(new_R, 1) * gl.expand_dims(new_v_D.to(gl.float32), 0)
        gl.store(parts_ptr + gl.expand_dims((r_R * S + part) * D, 1) + gl.expand_dims(d_D, 0), total_RD)
        partition_barrier()  # every thread's stores come before the count
        if gl.atomic_add(arrived_ptr + pair, 1, sem="acq_rel") == S - 1:
            gl.store(arrived_ptr + pair, 0)
            put_together(parts_ptr, scales_ptr, mixed_ptr, pair, R, D, S)
            arrive(count_ptr)


@gluon.jit
def put_together(parts_ptr, scales_ptr, mixed_ptr, pair, R: gl.constexpr, D: gl.constexpr, S: gl.constexpr):
    """The heads of a key head, of their parts. A thread has all parts of what it sums up."""
    ACROSS: gl.constexpr = D // 32
    wide: gl.constexpr = gl.BlockedLayout([1, S, 1], [1, 1, 32], [gl.num_warps() // ACROSS, 1, ACROSS], [2, 1, 0])
    r_R = gl.arange(0, R, gl.SliceLayout(1, gl.SliceLayout(2, wide)))
    s_S = gl.arange(0, S, gl.SliceLayout(0, gl.SliceLayout(2, wide)))
    d_D = gl.arange(0, D, gl.SliceLayout(0, gl.SliceLayout(0, wide)))
    at_RS = gl.expand_dims((pair * R + r_R) * 2 * S, 1) + gl.expand_dims(s_S, 0)
    part_RS = gl.expand_dims((pair * R + r_R) * S, 1) + gl.expand_dims(s_S, 0)
    at_RSD = gl.expand_dims(part_RS * D, 2) + gl.expand_dims(gl.expand_dims(d_D, 0), 0)
    part_RSD = gl.load(parts_ptr + at_RSD)
    most_RS, sum_RS = gl.load(scales_ptr + at_RS), gl.load(scales_ptr + at_RS + S)
    weight_RS = gl.exp(most_RS - gl.expand_dims(gl.max(most_RS, 1), 1))
    weight_RS = weight_RS / gl.expand_dims(gl.sum(weight_RS * sum_RS, 1), 1)
    mixed_RD = gl.sum(part_RSD * gl.expand_dims(weight_RS, 2), 1)
    r_R = gl.arange(0, R, gl.SliceLayout(1, gl.SliceLayout(1, wide)))
    d_D = gl.arange(0, D, gl.SliceLayout(0, gl.SliceLayout(1, wide)))
    to_RD = gl.expand_dims((pair * R + r_R) * D, 1) + gl.expand_dims(d_D, 0)
    gl.store(mixed_ptr + to_RD, mixed_RD.to(gl.bfloat16))


@gluon.jit
def vector(SIZE: gl.constexpr, layout: gl.constexpr):
    """Places of a vector's numbers, [L, E]."""
    line_L = gl.arange(0, SIZE // LINE, gl.SliceLayout(1, layout))
    return gl.expand_dims(line_L * LINE, 1) + gl.expand_dims(gl.arange(0, LINE, gl.SliceLayout(0, layout)), 0)


@gluon.jit
def swiglu(out_ptr, both_R, HALF: gl.constexpr):
    """silu(gate) * up, of HALF gates and their ups, which different warps have."""
    pairs: gl.constexpr = gl.BlockedLayout([1, 2], [32, 1], [gl.num_warps(), 1], [1, 0])
    gate_R, up_R = gl.convert_layout(gl.reshape(both_R, [2, HALF]).permute((1, 0)), pairs).split()
    inner_R = gate_R / (1 + gl.exp(-gate_R)) * up_R
    gl.store(out_ptr + gl.arange(0, HALF, gl.SliceLayout(1, pairs)), inner_R.to(gl.bfloat16))


@gluon.jit
def persistent_step(
    desc,  # bf16 [lines, E]: all matrices, in blocks of half a tile
    w_ptr,  # the same
    norms_ptr,  # bf16 [2 layers + 1, K]: of attention and ffn in turn, and the last
    turn_ptr,  # float32 [LENGTH, D]: cosines, then sines, of each pair
    at_ptr,  # int32: the token's position, which moves by one
    count_ptr,  # int32: what programs count themselves in
    base_ptr,  # int32: what that was where the step begins
    x_ptr,  # float32 [K]: the residual stream
    made_ptr,  # float32 [H + 2 G, D]: queries, keys, values
    k_ptr,  # bf16 [layers, G, LENGTH, D], as v
    v_ptr,
    parts_ptr,  # float32 [H, S, D]: sums of parts of the cache
    scales_ptr,  # float32 [H, 2, S]: their largest logits, and sums of weights
    arrived_ptr,  # int32 [G], 0 between layers
    mixed_ptr,  # bf16 [H, D]
    inner_ptr,  # bf16 [F]
    out_ptr,  # float32 [words]
    times_ptr,  # int64 [P, TIMES]: the last layer's (packed.PHASES)
    scale,
    eps,
    K: gl.constexpr,
    F: gl.constexpr,
    H: gl.constexpr,
    G: gl.constexpr,
    D: gl.constexpr,
    LENGTH: gl.constexpr,
    S: gl.constexpr,
    LINES: gl.constexpr,  # of a tile
    SLOTS: gl.constexpr,  # places of the ring
    PLAN: gl.constexpr,  # packed.Plan
    AHEAD: gl.constexpr,  # tiles behind the ring's that are asked into the L2
    WAITS: gl.constexpr,  # False shows what waits cost: results are wrong
    TIMED: gl.constexpr,  # whether programs note times
):
    ROWS: gl.constexpr = LINES * LINE // K
    FEW: gl.constexpr = LINES * LINE // F  # rows of a tile of the down projection
    WARPS: gl.constexpr = gl.num_warps()
    EASE: gl.constexpr = 0 if WAITS else 1 << 30  # what a count has always come to
    wide: gl.constexpr = gl.BlockedLayout([1, 8, 8], [1, 4, 8], [WARPS * 2048 // K, K // 2048, 1], [2, 1, 0])
    long: gl.constexpr = gl.BlockedLayout([1, 8, 8], [1, 4, 8], [WARPS * 2048 // F, F // 2048, 1], [2, 1, 0])
    note(times_ptr, 0, TIMED)
    ring = gl.allocate_shared_memory(gl.bfloat16, [SLOTS, LINES, LINE], desc.layout)
    filled = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(SLOTS):
        mbarrier.init(filled.index(slot), count=1)
    fence_async_shared()
    partition_barrier()
    weights = (desc, ring, filled, w_ptr)
    for early in gl.static_range(SLOTS):
        fill(weights, early, LINES, SLOTS, PLAN, AHEAD)
    at_LE = vector(K, gl.SliceLayout(0, wide))
    long_LE = vector(F, gl.SliceLayout(0, long))
    row_R = gl.arange(0, ROWS, gl.SliceLayout(1, gl.SliceLayout(2, wide)))
    few_R = gl.arange(0, FEW, gl.SliceLayout(1, gl.SliceLayout(2, long)))
    first, programs = gl.program_id(0), gl.num_programs(0)
    norm_LE = gl.load(norms_ptr + at_LE)
    wait_for_kernel_before()
    position, base = gl.load(at_ptr), gl.load(base_ptr)
    target = base
    prefetch_part(k_ptr, v_ptr, position, G, D, LENGTH, S)
    for layer in range(PLAN.layers):
        begin = layer * PLAN.end
        note(times_ptr, 1, TIMED)
        wait_for(count_ptr, target - EASE)
        note(times_ptr, 2, TIMED)
        x_LE = normed(x_ptr, norm_LE, at_LE, eps, K)
        start, stop = tiles_of(begin, begin + PLAN.out)
        for index in range(start, stop):
            made_R = product(take(weights, index, LINES, SLOTS, PLAN, AHEAD), x_LE, ROWS, wide)
            gl.store(made_ptr + (first + index * programs - begin) * ROWS + row_R, made_R)
        arrive(count_ptr)
        target += programs
        note(times_ptr, 3, TIMED)
        kept = layer * G * LENGTH * D
        sums = (parts_ptr, scales_ptr, arrived_ptr, mixed_ptr)
        attend(
            made_ptr, turn_ptr + position * D, position, k_ptr + kept, v_ptr + kept, sums, count_ptr,
            target - EASE, scale, H, G, D, LENGTH, S,
        )  # fmt: skip
        target += G  # programs that have put a head together
        norm_LE = gl.load(norms_ptr + (2 * layer + 1) * K + at_LE)
        note(times_ptr, 4, TIMED)
        wait_for(count_ptr, target - EASE)
        note(times_ptr, 5, TIMED)
        a_LE = gl.load(mixed_ptr + at_LE).to(gl.float32)
        start, stop = tiles_of(begin + PLAN.out, begin + PLAN.gate_up)
        for index in range(start, stop):
            to_R = (first + index * programs - begin - PLAN.out) * ROWS + row_R
            x_R = gl.load(x_ptr + to_R)  # before all that takes its time
            gl.store(x_ptr + to_R, x_R + product(take(weights, index, LINES, SLOTS, PLAN, AHEAD), a_LE, ROWS, wide))
        note(times_ptr, 6, TIMED)
        arrive(count_ptr)
        target += programs
        wait_for(count_ptr, target - EASE)
        note(times_ptr, 7, TIMED)
        x_LE = normed(x_ptr, norm_LE, at_LE, eps, K)
        start, stop = tiles_of(begin + PLAN.gate_up, begin + PLAN.down)
        for index in range(start, stop):
            both_R = product(take(weights, index, LINES, SLOTS, PLAN, AHEAD), x_LE, ROWS, wide)
            to = (first + index * programs - begin - PLAN.gate_up) * (ROWS // 2)
            swiglu(inner_ptr + to, both_R, ROWS // 2)
        note(times_ptr, 8, TIMED)
        arrive(count_ptr)
        target += programs
        norm_LE = gl.load(norms_ptr + (2 * layer + 2) * K + at_LE)
        next_kept = gl.minimum(layer + 1, PLAN.layers - 1) * G * LENGTH * D
        prefetch_part(k_ptr + next_kept, v_ptr + next_kept, position, G, D, LENGTH, S)
        wait_for(count_ptr, target - EASE)
        note(times_ptr, 9, TIMED)
        a_LE = gl.load(inner_ptr + long_LE).to(gl.float32)
        start, stop = tiles_of(begin + PLAN.down, begin + PLAN.end)
        for index in range(start, stop):
            to_R = (first + index * programs - begin - PLAN.down) * FEW + few_R
            x_R = gl.load(x_ptr + to_R)
            gl.store(x_ptr + to_R, x_R + product(take(weights, index, LINES, SLOTS, PLAN, AHEAD), a_LE, FEW, long))
        note(times_ptr, 10, TIMED)
        arrive(count_ptr)
        target += programs
    wait_for(count_ptr, target - EASE)
    note(times_ptr, 11, TIMED)
    x_LE = normed(x_ptr, norm_LE, at_LE, eps, K)
    start, stop = tiles_of(PLAN.layers * PLAN.end, PLAN.tiles)
    for index in range(start, stop):
        to = (first + index * programs - PLAN.layers * PLAN.end) * ROWS
        gl.store(out_ptr + to + row_R, product(take(weights, index, LINES, SLOTS, PLAN, AHEAD), x_LE, ROWS, wide))
    note(times_ptr, 12, TIMED)
    if first == 0:
        gl.store(at_ptr, position + 1)
        gl.store(base_ptr, target)
